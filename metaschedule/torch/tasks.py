"""Tuning a model: its distinct programs, each with how often a call of the model runs it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from .. import database as databases
from ..ir import Program, replace_fields, structural_hash
from ..measure import open_workers
from ..search import Result, tune
from ..search.display import Display, summary
from ..workloads import operations
from .pipeline import FusedGraph

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
            found.setdefault(structural_hash(program), KernelTask(program, 0)).weight += 1
    names: Counter[str] = Counter()
    for task in found.values():
        name = task.program.name
        names[name] += 1
        if names[name] > 1:
            task.program = replace_fields(task.program, name=f"{name}_{names[name]}")
    return list(found.values())


def tune_programs(
    found: Sequence[KernelTask], database: databases.Database | None, show: bool = True, **options: Any
) -> list[Result]:
    """Tune for as many threads as torch uses. `options` are those of `metaschedule.tune`."""
    if not found:  # a model without kernels
        return []
    programs, threads = [task.program for task in found], torch.get_num_threads()
    options |= {"weights": [task.weight for task in found], "database": database, "threads": threads}
    if not show:
        return tune(programs, **options)
    console = Console(stderr=True)
    work = {program.name: operations(program) for program in programs}
    with open_workers(options.pop("workers", None)) as workers:
        machine = workers.resolve("native").with_cores(threads)
        with Display(console, work, machine, workers.nodes()) as display:
            results = tune(programs, progress=display.update, workers=workers, **options)
    console.print(summary(results, display, console.width))
    return results


@contextmanager
def open_database(database: DatabaseLike, readonly: bool = False) -> Iterator[databases.Database | None]:
    """The database, closed afterwards if it was opened here; None if there is nothing to read."""
    if isinstance(database, databases.Database) or (database is None and readonly):
        yield database
    else:
        with databases.open(database, readonly=readonly) as db:
            yield db
