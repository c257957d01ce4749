"""The command line: `metaschedule tune`, `space`, `show`, `db`."""

from .app import app, main

__all__ = ["app", "main"]
