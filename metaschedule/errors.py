"""What can go wrong, by audience: the author of a program, of a schedule, or of this library.

    SyntaxError
        ScriptError     the script cannot be read; has file, line and column as Python's errors do
    ValueError
        VerifyError     the program is not well formed; printed with the place underlined
        ScheduleError   a step of a schedule would be wrong; printed with the place underlined
    RuntimeError
        InternalError   our bug; never caught by a search

Messages state the fact in lower case without a full stop; `help` says what to do. Errors keep data
and are rendered only in `__str__`, because searches raise many and print few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .ir import Program, underline


class InternalError(RuntimeError):
    """A mistake of metaschedule itself, whatever the user did."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n\n"
            "this is a bug in metaschedule, not in your program; please report it with the "
            "traceback, the printed program, the printed trace if there is one, and the versions "
            "of metaschedule, Python and NumPy"
        )


class ScriptError(SyntaxError):
    """A script that cannot be read. `lineno`, `offset` (the first column is 1) and `end_offset` say
    where, `text` is the line, so a traceback shows it with carets."""


class MarkedError(ValueError):
    """An error about nodes of a program: `marks` maps each to a label printed under its line."""

    def __init__(
        self,
        message: str,
        marks: Mapping[Any, str] | None = None,
        help: str = "",
        program: Program | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.marks = dict(marks or {})
        self.help = help
        self.program = program
        self.place = ""  # of a parsed program: file, line and column

    def __str__(self) -> str:
        parts = [f"{self.message} ({self.place})" if self.place else self.message]
        if self.program is not None:
            parts.append(underline(self.program, self.marks))
        if self.help:
            parts.append(f"help: {self.help}")
        return "\n\n".join(parts)


class VerifyError(MarkedError):
    """A program that breaks a rule every program must keep; raised by `verify`."""


class ScheduleError(MarkedError):
    """A step that would change what the program computes, or cannot be taken. `call` is the step;
    marks are loop variables and block names until the schedule knows the program (`attach`)."""

    def __init__(self, message: str, marks: Mapping[Any, str] | None = None, help: str = "") -> None:
        super().__init__(message, marks, help)
        self.call = ""
        self._locate: Callable[[], tuple[Program, dict[Any, Any]]] | None = None

    def attach(self, call: str, locate: Callable[[], tuple[Program, dict[Any, Any]]]) -> None:
        """Say which step it was, and how to get at the program and its nodes by key."""
        self.call, self._locate = call, locate

    def __str__(self) -> str:
        if self._locate is not None:
            program, nodes = self._locate()
            self.program, self._locate = program, None
            self.marks = {nodes[key]: label for key, label in self.marks.items() if key in nodes}
        text = super().__str__()
        return f"{self.call}: {text}" if self.call else text
