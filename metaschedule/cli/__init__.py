"""The command line: `metaschedule tune`, `space`, `show`, `bench`, `db`, `doctor`."""

from .app import app, main

__all__ = ["app", "main"]
