"""What takes part in a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..case import Case

PRECISIONS = ("float32", "bfloat16", "int8-dynamic", "int8-static")  # in which models are run
ROUND_TIME = 0.1  # seconds that one measurement of a variant takes, or one call if that is longer


@dataclass(frozen=True)
class Variant:
    """One of the variants in which a contestant runs a case, such as a layout of its tensors.

    `seconds` measures anew at every call: the fastest of some runs, warm, in a native loop or called from
    Python. `output` is the result in our layout.
    """

    contestant: str
    kind: str
    native: bool
    seconds: Callable[[], float]
    output: Callable[[], np.ndarray]


class Contestant(Protocol):
    name: str

    def prepare(self, case: Case) -> float | None:
        """What takes long, such as tuning, done before anything is measured: its seconds, if it is done by
        searching and they are known."""
        ...

    def variants(self, case: Case) -> Iterable[Variant]:
        """None if the contestant does not take part in a case of this kind."""
        ...

    def close(self) -> None: ...


class ContestantError(RuntimeError):
    """A contestant is not installed, or fails at what it was asked to do."""
