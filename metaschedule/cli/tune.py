"""`metaschedule tune`: search, with a live display for people and JSON for scripts."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from .. import workloads
from ..measure import Workers as Place
from ..search import Result, tune
from ..search.display import Display, summary
from ..search.run import INTERRUPTED as BY_CTRL_C
from ..search.tune import STRATEGIES
from ..target import Target
from .options import (
    PLACE,
    Config,
    Quiet,
    Seed,
    Workers,
    check_choice,
    check_database,
    check_minutes,
    find_target,
    find_workers,
)
from .output import INTERRUPTED, progress_console, result_console
from .programs import ONNX, find_tasks

if TYPE_CHECKING:
    from ..torch.placement import GraphCall


def command(
    programs: Annotated[
        list[str],
        typer.Argument(help="workloads (GMM, ...; all), file.py:program, file.py:make_model or model.onnx"),
    ],
    config: Config = 0,
    trials: Annotated[int | None, typer.Option(min=1, help="candidates to measure per program (64)")] = None,
    minutes: Annotated[
        float | None, typer.Option(callback=check_minutes, help="time to spend in all")
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(callback=check_database, help=f"database to record in and to go on from: {PLACE}"),
    ] = None,
    seed: Seed = 0,
    target: Annotated[str, typer.Option(help="machine to tune for")] = "native",
    strategy: Annotated[str, typer.Option(help="evolutionary, random or exhaustive")] = "evolutionary",
    workers: Workers = "local",
    as_json: Annotated[bool, typer.Option("--json", help="for scripts")] = False,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log what happens")] = False,
) -> None:
    """Find the fastest candidate of each program's space by measuring. Ctrl-C ends with the best so far, and
    exit code 130."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    check_choice(strategy, tuple(STRATEGIES), "--strategy")
    names = workloads.names() if programs == ["all"] else programs
    found = {name: find_tasks(name, config) for name in names}
    threads, *others = {tasks.threads for tasks in found.values()}
    if others:
        raise typer.BadParameter(
            "models are tuned for torch's threads, programs for all cores: tune them apart"
        )
    work = {
        program.name: workloads.operations(program if ":" in name or name.endswith(ONNX) else name, config)
        for name, tasks in found.items()
        for program in tasks.programs
    }
    with find_workers(workers) as place:
        machine = find_target(target, place)
        machine = machine if threads is None else machine.with_cores(threads)
        with Display(progress_console(as_json, quiet), work, machine, place.nodes()) as display:
            results: list[Result] = tune(
                [program for tasks in found.values() for program in tasks.programs],
                weights=[weight for tasks in found.values() for weight in tasks.weights],
                trials=trials, minutes=minutes, seed=seed, database=db, target=machine, strategy=strategy,
                threads=threads, progress=display.update, workers=place,
                label=", ".join(names), details={"peak": display.peak},
            )  # fmt: skip
            for tasks in found.values():
                if tasks.calls and db is not None:
                    choose_in_model(tasks.calls, results, db, machine, place, display)
    if as_json:
        print(json.dumps([as_data(r) for r in results]))
    else:
        console = result_console()
        console.print(summary(results, display, console.width))
        if len(results) == 1:
            console.print(str(results[0].trace), markup=False, highlight=False, soft_wrap=True)
    if any(r.stopped == BY_CTRL_C for r in results):
        raise typer.Exit(INTERRUPTED)
    if any(r.best is None or r.failed for r in results):
        raise typer.Exit(1)


def choose_in_model(
    calls: Sequence[GraphCall],
    results: Sequence[Result],
    db: str,
    machine: Target,
    place: Place,
    display: Display,
) -> None:
    """Let a model choose its kernels by what it takes with them."""
    from .. import database
    from ..torch.placement import place as choose
    from ..torch.tasks import can_place, tell_placing

    if can_place(results, place):
        with database.open(db) as opened:
            choose(calls, opened, machine, partial(tell_placing, display))


def as_data(result: Result) -> dict[str, object]:
    return {
        "program": result.program.name,
        "latency": result.latency,
        "kind": result.kind,
        "untuned": result.untuned,
        "outcomes": dict(result.outcomes),
        "stopped": result.stopped,
        "notes": result.notes,
        "disturbed": result.best.disturbed if result.best else None,
        "seconds": result.seconds,
        "trace": json.loads(result.trace.to_json()),
    }
