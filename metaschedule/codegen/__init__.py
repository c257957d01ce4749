"""From programs to machine code: `lower` (program to program), `llvm` (program to LLVM text)."""

from .constants import split_constants
from .executable import executable
from .generate import check_bounds, generate

__all__ = ["check_bounds", "executable", "generate", "split_constants"]
