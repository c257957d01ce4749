"""Who takes part in a comparison: this package, PyTorch, TVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...target import Target
from .contestant import Contestant, ContestantError, Variant
from .ours import Ours
from .tvm import TVM

__all__ = ["Contestant", "ContestantError", "Ours", "Variant", "opponents"]

NAMES = ("torch", "torch-compile", "tvm", "tvm-default")


def opponents(
    names: Sequence[str], target: Target, tvm_trials: int, tvm_cache: Path, seed: int
) -> list[Contestant]:
    """The contestants of these names; torch is imported only if it takes part."""
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"there is no contestant {unknown[0]!r}; there are {', '.join(NAMES)}")
    found: list[Contestant] = []
    for name in names:
        if name.startswith("tvm"):
            found.append(TVM(target, tvm_trials, seed, tvm_cache, by_default=name == "tvm-default"))
            continue
        try:
            from .pytorch import Compiled, Eager
        except ModuleNotFoundError as error:
            raise ContestantError("comparing with PyTorch needs it: pip install torch==2.13.0") from error
        found.append((Eager if name == "torch" else Compiled)(target.cores))
    return found
