"""`metaschedule show`: a program, what is made of it, and the machine code."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from ..build import build, choose_schedule
from .options import PLACE, Config, check_database, find_target
from .programs import find_program

LANGUAGES = {"program": "python", "trace": "python", "schedule": "python", "llvm": "llvm", "asm": "nasm"}


def show(
    program: Annotated[str, typer.Argument(help="a workload (GMM, C2D, ...) or file.py:program")],
    what: Annotated[str, typer.Argument(help="program, trace, schedule, llvm or asm")] = "schedule",
    config: Config = 0,
    target: Annotated[str, typer.Option(help="machine to build for")] = "native",
    db: Annotated[
        str | None,
        typer.Option(callback=check_database, help=f"take the best record of this database: {PLACE}"),
    ] = None,
) -> None:
    """Print the program as written, or the trace, the program or the code of what `build` would take."""
    if what not in LANGUAGES:
        raise typer.BadParameter(f"{what!r} is none of {', '.join(LANGUAGES)}")
    machine = find_target(target)
    found = find_program(program, config)
    text = str(found)
    if what != "program":
        sch = choose_schedule(found, machine, database=db)
        text = str(
            {"trace": sch.trace, "schedule": sch.program}.get(what) or build(sch, target=machine).source(what)
        )
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, LANGUAGES[what], theme="ansi_light", word_wrap=True))
    else:
        print(text)
