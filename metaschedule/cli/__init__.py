"""The command line: `metaschedule tune`, `space`, `show`, `bench`, `db`."""

from .app import app, main

__all__ = ["app", "main"]
