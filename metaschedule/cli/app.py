"""The commands, and how errors look: a line for people, exit code 1 or 2 for scripts."""

from __future__ import annotations

import sys

import typer

from ..database import DatabaseError
from ..errors import ScheduleError, ScriptError, VerifyError
from ..report.contestants import ContestantError
from .bench import commands as bench
from .db import commands as db
from .show import show
from .space import space
from .tune import command as tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Search spaces of tensor programs, and the fast kernels in them.",
)
app.command(name="tune")(tune)
app.command()(space)
app.command()(show)
app.add_typer(bench, name="bench")
app.add_typer(db, name="db")


def main() -> None:
    """The entry point: errors of the input are a message, not a traceback."""
    try:
        app()
    except (ScheduleError, ScriptError, VerifyError, DatabaseError, ContestantError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
