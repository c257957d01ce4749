"""The commands, and how they end: exit code 0 if done; 1 if something failed, with a line that says what; 2
if the command was wrong; 130 after Ctrl-C."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..database import DatabaseError
from ..errors import ScheduleError, ScriptError, VerifyError
from ..measure import MeasureError
from ..report.contestants import ContestantError
from ..schedule import TraceError
from .bench import commands as bench
from .cache import commands as cache
from .cluster import commands as cluster
from .dashboard import dashboard
from .db import commands as db
from .doctor import doctor
from .output import forgive_broken_pipes
from .report import report
from .show import show
from .space import space
from .tune import command as tune

ERRORS = (
    *(ScheduleError, ScriptError, VerifyError, TraceError),
    *(DatabaseError, MeasureError, ContestantError, OSError),
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # which may hold passwords
    help="Search spaces of tensor programs, and the fast kernels in them.",
)
app.command(name="tune")(tune)
app.command()(space)
app.command()(show)
app.command()(doctor)
app.command()(dashboard)
app.command()(report)
app.add_typer(bench, name="bench")
app.add_typer(cache, name="cache")
app.add_typer(cluster, name="cluster")
app.add_typer(db, name="db")


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"metaschedule {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Search spaces of tensor programs, and the fast kernels in them."""


def main() -> None:
    """The entry point: errors of the input are a message, not a traceback."""
    output = forgive_broken_pipes()
    try:
        try:
            app()
        finally:
            if output is not None:
                sys.stdout.flush()
                if output.failure is not None:
                    raise output.failure
    except ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
