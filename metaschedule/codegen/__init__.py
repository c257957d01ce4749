"""From programs to machine code: `lower` (program to program), `llvm` (program to LLVM text)."""

from .generate import generate

__all__ = ["generate"]
