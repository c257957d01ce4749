"""Text of a script and the places in it: reading without executing, and errors that point.

Read `Source.error` first. A text that Python's own parser cannot take (nested too deeply, too long)
is a `ScriptError` like any other mistake.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..errors import ScriptError

R = TypeVar("R")

MAX_CHARACTERS = 4_000_000  # some 300,000 values of embedded tables; the syntax tree takes a gigabyte


class ScriptSource:
    """A script and where it comes from. `shift` is added to line numbers of the syntax tree."""

    def __init__(self, text: str, filename: str, shift: int = 0) -> None:
        self.filename = filename
        self.shift = shift
        self.lines = text.split("\n")

    def error(self, message: str, node: ast.AST | None = None) -> ScriptError:
        """An error at the first line of `node` (None: of the script)."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        start = characters(text, getattr(node, "col_offset", 0))
        end = len(text.rstrip())
        if getattr(node, "end_lineno", None) == line:
            end = characters(text, getattr(node, "end_col_offset", 0))
        lineno = line + self.shift
        place = (self.filename, lineno, start + 1, text, lineno, max(end, start + 1) + 1)
        return ScriptError(message, place)

    def place(self, node: ast.AST) -> str:
        """Where a node is, in words."""
        error = self.error("", node)
        return f"{error.filename}, line {error.lineno}, column {error.offset}"

    def build(self, node: ast.AST, make: Callable[..., R], *args: Any) -> R:
        """`make(*args)`, whose complaints about its arguments are complaints about `node`."""
        try:
            return make(*args)
        except (TypeError, ValueError, OverflowError, IndexError) as complaint:
            raise self.error(str(complaint), node) from None

    def tree(self, text: str) -> ast.Module:
        """The syntax tree of `text`; nothing is executed."""
        if len(text) > MAX_CHARACTERS:
            raise self.error(
                f"the script has {len(text):,} characters, and {MAX_CHARACTERS:,} is the limit: "
                "make large tables inputs of the program"
            )
        try:
            return ast.parse(text)
        except SyntaxError as wrong:
            line = (wrong.lineno or 1) + self.shift
            place = (self.filename, line, wrong.offset, wrong.text, line, wrong.end_offset)
            raise ScriptError(wrong.msg, place) from None
        except (MemoryError, RecursionError):
            raise self.error("the script is nested too deeply: store partial results") from None
        except (ValueError, UnicodeError) as wrong:
            raise self.error(f"the script is not text that Python reads: {wrong}") from None


def characters(line: str, offset: int) -> int:
    """The syntax tree counts columns in UTF-8 bytes; people count characters."""
    return len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "replace"))


def function_source(function: Callable[..., Any]) -> tuple[ScriptSource, ast.Module]:
    """Source and syntax tree of a Python function, with the lines and columns of its file."""
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"@ms.program decorates a function, got {type(function).__name__}")
    filename = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ScriptError(
            f"the source of {function.__name__} cannot be read: write it in a file, or pass its "
            "text to ms.parse",
            (filename, function.__code__.co_firstlineno, 1, None),
        ) from None
    # Inside `if True:` an indented function parses as it stands, and columns need no correction.
    text = "if True:\n" + "".join(lines) if lines[0][:1].isspace() else "".join(lines)
    shift = first - 2 if lines[0][:1].isspace() else first - 1
    source = ScriptSource(text, filename, shift)
    return source, source.tree(text)


def outside_names(function: types.FunctionType) -> Mapping[str, Any]:
    """What the free names of a function refer to: its module's globals, then its closure."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names
