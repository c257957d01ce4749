"""The script: programs as Python-looking text, read without running it (see the README)."""

from __future__ import annotations

from . import namespace as T
from .entry import parse, program

__all__ = ["T", "parse", "program"]
