"""One program, one target, one kernel."""

from __future__ import annotations

from ..ir import Program
from ..runtime import Kernel
from ..target import Target
from .llvm.module import Module
from .lower import lower


def generate(program: Program, target: Target, *, fma: bool = True) -> Kernel:
    """The kernel of a program. Without `fma` no multiplication is fused with an addition: results are
    then what the operators say one by one, which is what candidates are verified against."""
    return Module(lower(program), target, fma).kernel()
