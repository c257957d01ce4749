"""What a program did wrong, where, and at which values of the loops."""

from __future__ import annotations

from typing import Any

from metaschedule.ir import Program, underline


class InterpreterError(RuntimeError):
    """A program that has no meaning for these inputs.

    Raised with the bare fact; the statements around it add where they are as the error passes, and
    `interpret` adds the program. Rendered only when asked for.
    """

    def __init__(self, message: str, label: str = "here") -> None:
        super().__init__(message)
        self.message = message
        self.label = label
        self.node: Any = None  # the line of the program to underline
        self.block: str | None = None
        self.iters: list[tuple[str, int]] = []  # of the innermost block
        self.loops: list[tuple[str, int]] = []  # outermost first
        self.program: Program | None = None

    def at(self, node: Any) -> None:
        """Mark the place, unless something further inside already has."""
        if self.node is None:
            self.node = node

    def inside_block(self, name: str, iters: list[tuple[str, int]]) -> None:
        if self.block is None:
            self.block, self.iters = name, iters

    def inside_loop(self, name: str, value: int) -> None:
        self.loops.insert(0, (name, value))

    def __str__(self) -> str:
        where: list[str] = []
        if self.block is not None:
            where.append(f'in block "{self.block}"' + format_values(" at ", self.iters))
        if self.loops:
            where.append("in loops" + format_values(" ", self.loops))
        text = "\n".join([self.message, *where])
        if self.program is not None:
            marks = {} if self.node is None else {self.node: self.label}
            text += "\n\n" + underline(self.program, marks)
        return text


def format_values(before: str, values: list[tuple[str, int]]) -> str:
    return before + ", ".join(f"{name}={value}" for name, value in values) if values else ""
