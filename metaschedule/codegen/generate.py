"""One program, one target, one kernel."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Program
from ..runtime import Kernel
from ..target import Target
from .legal import values_of
from .llvm.module import Module
from .lower import lower

BOUNDS = ("checked", "unchecked")


def generate(program: Program, target: Target, *, fma: bool = True, bounds: str = "checked") -> Kernel:
    """The kernel of a program. Without `fma` no multiplication is fused with an addition: results are
    then what the operators say one by one, which is what candidates are verified against.

    With `bounds="checked"` the kernel fails where an index is outside of its buffer or an integer is divided
    by zero; only what cannot be proved now is checked then. "unchecked" leaves those checks out: such an
    access is undefined."""
    kernel = Module(lower(program, checked=check_bounds(bounds) == "checked"), target, fma).kernel()
    return replace(kernel, values=tuple((b.name, values) for b, values in values_of(program).items()))


def check_bounds(bounds: str) -> str:
    if bounds not in BOUNDS:
        raise ValueError(f"bounds must be one of {', '.join(map(repr, BOUNDS))}, got {bounds!r}")
    return bounds
