"""Tuning a model: its distinct programs, each with how often a call of the model runs it."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.console import Console

from .. import database as databases
from ..ir import Program, numpy_dtype, replace_fields, structural_hash
from ..measure import LocalWorkers, Workers, open_workers
from ..search import Result, tune
from ..search.display import Display, summary
from ..search.notebook import is_notebook
from ..search.run import INTERRUPTED
from ..target import Target
from ..workloads import operations
from .kernels import is_scheduled
from .pipeline import FusedGraph
from .placement import SECONDS, GraphCall, Version, place

MINUTES = 3.0  # of a model, if no budget is given
ENOUGH = 0.01  # of the model: what is left to win when tuning ends by itself
PLACING = 0.2  # of the minutes, for comparing in the model
OPERATIONS_A_BYTE = 4  # that take as long as a byte from memory

DatabaseLike = str | os.PathLike[str] | databases.Database | None


@dataclass
class KernelTask:
    """A program that a model runs `weight` times in a call."""

    program: Program
    weight: int


def tasks(models: Sequence[FusedGraph]) -> list[KernelTask]:
    """The distinct programs of some graphs, in the order of their first use, under different names."""
    found: dict[str, KernelTask] = {}
    for model in models:
        for program in model.programs.values():
            if is_scheduled(program):  # as it is to run
                continue
            found.setdefault(structural_hash(program), KernelTask(program, 0)).weight += 1
    names: Counter[str] = Counter()
    for task in found.values():
        name = task.program.name
        names[name] += 1
        if names[name] > 1:
            task.program = replace_fields(task.program, name=f"{name}_{names[name]}")
    return list(found.values())


def tune_programs(
    found: Sequence[KernelTask],
    database: databases.Database | None,
    show: bool = True,
    calls: Sequence[GraphCall] = (),
    *,
    trials: int | None = None,
    minutes: float | None = None,
    target: Target | None = None,
    **options: Any,
) -> list[Result]:
    """Tune for as many threads as torch uses, for 3 minutes in all if no budget is given; then choose for
    each program of the `calls` of a model by what the model takes. `options` are those of
    `metaschedule.tune`. A `target` that is a GPU is what to tune for."""
    if not found:  # a model without kernels
        return []
    began = time.monotonic()
    if trials is None and minutes is None:
        minutes, options["enough"] = MINUTES, options.get("enough", ENOUGH)
    places = bool(calls) and database is not None
    searching = minutes * (1 - PLACING) if minutes is not None and places else minutes
    deadline = math.inf if minutes is None else began + 60 * minutes
    order = sorted(range(len(found)), key=lambda n: -size_of(found[n]))  # who has most to win begins
    programs, threads = [found[n].program for n in order], torch.get_num_threads()
    options |= {"weights": [found[n].weight for n in order], "database": database, "threads": threads}
    options |= {"trials": trials, "minutes": searching}
    if not show:
        options.setdefault("progress", silent)
    with open_workers(options.pop("workers", None)) as workers:
        machine = workers.resolve("native").with_cores(threads)
        if target is not None and target.gpu is not None:  # placing is by runs of the model on a CPU
            machine, options["threads"], places = target, None, False
            options["target"] = target
        options["workers"] = workers
        if not show or is_notebook():  # where `tune` shows a bar by itself
            results = in_order(tune(programs, **options), order)
            if places and database is not None and can_place(results, workers):
                place(calls, database, machine, deadline=deadline)
            return results
        console = Console(stderr=True)
        work = {program.name: operations(program) for program in programs}
        with Display(console, work, machine, workers.nodes()) as display:
            options["details"] = {"peak": display.peak, **(options.get("details") or {})}
            results = in_order(tune(programs, progress=display.update, **options), order)
            version: Version = {}
            if places and database is not None and can_place(results, workers):
                version = place(calls, database, machine, partial(tell_placing, display), deadline)
    console.print(summary(results, display, console.width))
    if version:
        console.print(describe_version(version), markup=False, highlight=False)
    return results


def size_of(task: KernelTask) -> float:
    """About what a task takes of a model: operations, and bytes, which take as long as some operations."""
    memory = sum(b.size * numpy_dtype(b.dtype).itemsize for b in task.program.params)
    return task.weight * (operations(task.program) + OPERATIONS_A_BYTE * memory)


def in_order(results: Sequence[Result], order: Sequence[int]) -> list[Result]:
    """Results as the programs were given, which were tuned in some order."""
    found = dict(zip(order, results, strict=True))
    return [found[n] for n in range(len(order))]


def can_place(results: Sequence[Result], workers: Workers) -> bool:
    """Whether the model runs where its kernels were measured, and nobody is in a hurry to end."""
    here = isinstance(workers, LocalWorkers)
    return here and not any(r.stopped == INTERRUPTED or r.failed for r in results)


def tell_placing(display: Display, done: int, of: int, what: str) -> None:
    if display.last is not None:
        left = (of - done + 1) * 2 * SECONDS
        display.update(replace(display.last, event="place", done=done, of=of, detail=what, left=left))


def describe_version(version: Version) -> str:
    """What was chosen, for people."""
    counts = Counter(how if isinstance(how, str) else "tuned" for how in version.values())
    parts = [f"{n} {how}" for how, n in counts.most_common()]
    return f"in the model, by what it takes: {', '.join(parts)}"


def silent(_: Any) -> None:
    """The audience of a run that is not shown."""


@contextmanager
def open_database(database: DatabaseLike, readonly: bool = False) -> Iterator[databases.Database | None]:
    """The database, closed afterwards if it was opened here; None if there is nothing to read."""
    if isinstance(database, databases.Database) or (database is None and readonly):
        yield database
    else:
        with databases.open(database, readonly=readonly) as db:
            yield db
