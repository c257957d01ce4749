"""`metaschedule space`: what is in the space of a program."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..space import default
from ..space.statistics import Statistics, statistics
from .options import Config, Seed, find_target
from .output import result_console
from .programs import find_program


def space(
    program: Annotated[str, typer.Argument(help="a workload (GMM, C2D, ...) or file.py:program")],
    config: Config = 0,
    target: Annotated[str, typer.Option(help="machine to schedule for")] = "native",
    draws: Annotated[int, typer.Option(min=0, help="random candidates to draw")] = 64,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="for scripts")] = False,
) -> None:
    """Show the sketches of a program, their random variables and sizes, and what is rejected and why."""
    found = statistics(default(find_target(target)), find_program(program, config), draws, seed)
    if as_json:
        print(json.dumps(found.as_data()))
        return
    show(found, result_console())


def show(found: Statistics, console: Console) -> None:
    table = Table("", "sketch", "instructions", "random variables", "decisions", title="sketches")
    for n, sketch in enumerate(found.sketches):
        counted = {site: sketch.sites.count(site) for site in dict.fromkeys(sketch.sites)}
        sites = ", ".join(f"{times} {site}" for site, times in counted.items())
        table.add_row(str(n), sketch.outline, str(sketch.instructions), sites, str(sketch.size))
    console.print(table)
    if used := sorted({name for sketch in found.sketches for name in sketch.hardware}):
        console.print(f"hardware instructions: {', '.join(used)}")
    console.print(
        f"{found.size} decisions in all; {found.accepted} of {found.draws} random candidates are valid"
    )
    for title, counts in (("rejected", found.rejected), ("refused while sketches were made", found.refused)):
        if counts:
            reasons = Table("by", "reason", "times", title=title)
            for (who, why), times in counts.most_common():
                reasons.add_row(who, why, str(times))
            console.print(reasons)
