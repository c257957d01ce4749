"""Where a command writes: results to standard output, progress to where somebody may be watching."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

WIDE = 160  # columns, where no terminal says how many it has
INTERRUPTED = 130  # exit code, as shells give it after Ctrl-C


class OutputFile(io.FileIO):
    """A file that need not be read to its end: after `| head -1` the rest is written nowhere, and the command
    ends as if it had been read. Nor is what a full disk does not take, but `failure` tells."""

    failure: OSError | None = None

    def write(self, data: Any) -> int | None:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)
        except OSError as error:
            self.failure = error
            return len(data)


def forgive_broken_pipes() -> OutputFile | None:
    """Standard output and error as `OutputFile`; gives the former."""
    result: OutputFile | None = None
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            stream.flush()
            output = OutputFile(stream.fileno(), "w", closefd=False)
            result = output if name == "stdout" else result
            raw = io.BufferedWriter(output)
            live = name == "stderr" or stream.isatty()
            text = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=live)
            setattr(sys, name, text)
    return result


def result_console() -> Console:
    return widen(Console())


def progress_console(as_json: bool = False, quiet: bool = False) -> Console:
    """Of progress: standard error if standard output is for JSON, or a file while a person watches the other;
    else standard output, so that a log has both."""
    apart = as_json or (not sys.stdout.isatty() and sys.stderr.isatty())
    return widen(Console(stderr=apart, quiet=quiet))


def widen(console: Console) -> Console:
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def table_of(lines: Sequence[Sequence[str]], title: str) -> Table:
    """Cells as a table, the heading first."""
    heading, *body = lines
    table = Table(heading[0], box=box.SIMPLE, padding=0, title=title)
    for name in heading[1:]:
        table.add_column(name, justify="right")
    for line in body:
        table.add_row(*line)
    return table


class Status:
    """One line that changes on a terminal; elsewhere a line for each message."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.status("") if console.is_terminal and not console.quiet else None
        self._last = ""

    def __enter__(self) -> Callable[[str], None]:
        live: AbstractContextManager[Any] = self._live or nullcontext()
        live.__enter__()
        return self.update

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, message: str) -> None:
        if self._live is not None:
            self._live.update(message)
        elif message != self._last:
            self._console.print(message, markup=False, highlight=False, soft_wrap=True)
        self._last = message
