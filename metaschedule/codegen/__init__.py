"""From programs to machine code: `lower` (program to program), `llvm` (program to LLVM text)."""

from .constants import split_constants
from .executable import executable
from .generate import generate

__all__ = ["executable", "generate", "split_constants"]
