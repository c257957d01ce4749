"""`metaschedule tune`: search, with a live display for people and JSON for scripts."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .. import workloads
from ..report.display import Display, summary
from ..search import Result, tune
from ..target import resolve
from .programs import find_tasks


def command(
    programs: Annotated[
        list[str],
        typer.Argument(help="workloads (GMM, C2D, ...; all), file.py:program or file.py:make_model"),
    ],
    config: Annotated[int, typer.Option(help="configuration of the workloads")] = 0,
    trials: Annotated[int | None, typer.Option(help="candidates to measure per program (64)")] = None,
    minutes: Annotated[float | None, typer.Option(help="time to spend in all")] = None,
    db: Annotated[Path | None, typer.Option(help="database to record in and to go on from")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    target: Annotated[str, typer.Option(help="machine to tune for")] = "native",
    strategy: Annotated[str, typer.Option(help="evolutionary, random or exhaustive")] = "evolutionary",
    as_json: Annotated[bool, typer.Option("--json", help="for scripts")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log what happens")] = False,
) -> None:
    """Find the fastest candidate of each program's space by measuring. Ctrl-C ends with the best so far."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    names = workloads.names() if programs == ["all"] else programs
    found = {name: find_tasks(name, config) for name in names}
    threads, *others = {tasks.threads for tasks in found.values()}
    if others:
        raise typer.BadParameter(
            "models are tuned for torch's threads, programs for all cores: tune them apart"
        )
    machine = resolve(target) if threads is None else resolve(target).with_cores(threads)
    work = {
        program.name: workloads.operations(program if ":" in name else name, config)
        for name, tasks in found.items()
        for program in tasks.programs
    }
    console = Console(stderr=as_json)
    with Display(console, work, machine) as display:
        results: list[Result] = tune(
            [program for tasks in found.values() for program in tasks.programs],
            weights=[weight for tasks in found.values() for weight in tasks.weights],
            trials=trials, minutes=minutes, seed=seed, database=db, target=machine, strategy=strategy,
            threads=threads, progress=display.update,
        )  # fmt: skip
    if as_json:
        print(json.dumps([as_data(r) for r in results]))
    else:
        console.print(summary(results, display))
        if len(results) == 1:
            console.print(str(results[0].trace), markup=False, highlight=False, soft_wrap=True)
    if any(r.best is None for r in results):
        raise typer.Exit(1)


def as_data(result: Result) -> dict[str, object]:
    return {
        "program": result.program.name,
        "latency": result.latency,
        "outcomes": dict(result.outcomes),
        "stopped": result.stopped,
        "seconds": result.seconds,
        "trace": json.loads(result.trace.to_json()),
    }
