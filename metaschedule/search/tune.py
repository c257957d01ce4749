"""`tune`: the fastest candidates of the spaces of some programs, found by measuring."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from inspect import signature
from typing import Annotated, Any, TypeVar, overload

from .. import database as databases
from ..cost import CostModel, Learned
from ..database import Database
from ..ir import Program, structural_hash
from ..measure import LocalWorkers, Measurer, Predictor, Workers, missing_device, open_workers
from ..measure.peak import measure_peak
from ..schedule import Schedule
from ..space import as_space
from ..space.space import SpaceLike
from ..space.untuned import default_space
from ..target import Target
from ..validation import MoreThan, Positive, Threads, Within, check_arguments, describe_value
from .evolutionary import Evolutionary
from .exhaustive import Exhaustive
from .notebook import ProgressBar, is_notebook
from .progress import Listener
from .relatives import Relatives
from .result import Result
from .run import Budget, Run
from .scheduler import SCHEDULERS
from .strategy import Replay, StrategyMaker
from .task import MeasurerMaker, Task, TuneCall

TRIALS = 64  # per program, if no budget is given
STRATEGIES: dict[str, StrategyMaker] = {
    "evolutionary": Evolutionary,
    "random": Replay,
    "exhaustive": Exhaustive,
}
Choice = TypeVar("Choice")
AnySpace = SpaceLike | Callable[[Schedule], Any]


@overload
def tune(program: Program, **options: Any) -> Result: ...
@overload
def tune(program: Sequence[Program], **options: Any) -> list[Result]: ...
@check_arguments
def tune(  # pyright: ignore[reportInconsistentOverload]
    program: Program | Sequence[Program],
    *,
    trials: Positive | None = None,
    minutes: Annotated[float, MoreThan(0)] | None = None,
    enough: Annotated[float, Within(0, 1)] | None = None,
    seed: int = 0,
    database: str | os.PathLike[str] | Database | None = None,
    space: AnySpace | None = None,
    target: Target | str | Sequence[Target | str] = "native",
    weights: Sequence[Annotated[float, Within(0, math.inf)]] | None = None,
    scheduler: str = "gradient",
    strategy: str | StrategyMaker = "evolutionary",
    model: Callable[[Target], CostModel] = Learned,
    measurer: MeasurerMaker = Measurer,
    threads: Threads | None = None,
    workers: str | Workers | None = None,
    progress: Listener | None = None,
    label: str = "",
    details: Mapping[str, Any] | None = None,
) -> Result | list[Result]:
    """Find the fastest candidate of a program's space, or of each of several programs.

    The budget is `trials` per program on average (64 unless `minutes` is given), or `minutes` in all,
    whichever ends first. Several programs share it by what they can still win: seconds, if `weights` say how
    often each is called in some whole; else the share of its own latency. Equal programs are tuned once.
    With `enough`, tuning also ends when what is left to win is expected to be less than this share of it all.

    With a `database` every trial is stored when it has been measured. Trials that are there already (of the
    program, target, space and seed) count: the same call again goes on where it was interrupted, and does
    nothing if it was not. No candidate is tried twice, whatever the seed. Ctrl-C ends tuning with the best so
    far.

    `space` is a `Space`, a function that takes a schedule, or anything with `sketches(program)` and
    `sample(program, rng)` (`metaschedule.space.as_space`). `strategy` is "evolutionary", "random",
    "exhaustive" or makes one from a `History`; `model` makes a cost model for a target; `measurer` makes a
    `Measurer`, for other limits or inputs:
    `functools.partial(Measurer, limits=Limits(run_seconds=1))`, or `bounds="unchecked"` of
    `metaschedule.build`. `progress` is called with a `Progress` after every step; without
    it a notebook shows a bar. `label` says, in the
    database, what the programs are of, as the name of a model, and `details` (plain data) what else the
    dashboard shows: the `peak` of the machine in GFLOPS, nodes of the model that run in `eager`.

    `workers` is where candidates are built and run: "local", by processes of this machine; "ray", on the
    cluster of RAY_ADDRESS or else by a Ray on this machine; "ray://host:10001", on another cluster; or
    `Workers` that the caller closes (docs/cluster.md). The target "native" is the machine that runs them. A
    list of targets is for machines of several kinds: there is a result for each target and program.

    For a GPU that is not in this machine ("cuda:sm_86") candidates are built and checked, and ranked by what
    the cost model predicts: `Result.kind` is "predicted", and the database keeps such records apart.

    >>> from metaschedule import workloads
    >>> result = tune(workloads.create("GMM", b=1, n=16, m=16, k=16), trials=4)
    >>> result.outcomes["ok"] == len(result.records) == 4
    True
    """
    programs = [program] if isinstance(program, Program) else list(program)
    if weights is not None and len(weights) != len(programs):
        raise ValueError(f"tune: weights must be one per program, {len(programs)}, got {len(weights)}")
    if not programs:
        return []
    maker = find_choice(strategy, STRATEGIES, "strategy") if isinstance(strategy, str) else strategy
    choose = find_choice(scheduler, SCHEDULERS, "scheduler")
    with ExitStack() as stack:
        place = stack.enter_context(open_workers(workers))
        is_usual = measurer is Measurer
        measurer = with_workers(measurer, place)
        names = [target] if isinstance(target, (str, Target)) else list(target)
        machines = [place.resolve(name) for name in names]
        if threads is not None:
            machines = [machine.with_cores(threads) for machine in machines]
        db = databases.open(database)
        if not isinstance(database, Database):
            stack.callback(db.close)
        tasks: dict[tuple[str, str], Task] = {}
        asked = [(one, machine) for machine in machines for one in programs]
        if trials is None and minutes is None:
            trials = TRIALS
        distinct = {(structural_hash(one), machine.key) for one, machine in asked}
        total = None if trials is None else trials * len(distinct)
        relatives = Relatives(db)
        details = dict(details or {})
        is_here = isinstance(place, LocalWorkers)
        if "peak" not in details and database is not None and target == "native" and is_here:
            details["peak"] = cached_peak(machines[0])
        runners = tuple if is_here else place.nodes
        call = TuneCall(uuid.uuid4().hex, label, total, minutes, details, runners)
        for (one, machine), weight in zip(asked, list(weights or [None] * len(programs)) * len(machines)):
            key = structural_hash(one), machine.key
            if key not in tasks:
                chosen = default_space(machine) if space is None else as_space(space)
                why = missing_device(machine) if is_usual and is_here else None
                tasks[key] = Task(
                    one, machine, chosen, model(machine), maker, Predictor if why else measurer, db, seed,
                    call, why or "", relatives,
                )  # fmt: skip
            if weight is not None:
                tasks[key].weight = (tasks[key].weight or 0.0) + weight
        listener = ProgressBar() if progress is None and is_notebook() else progress
        budget = Budget(total, minutes, enough=enough, is_shared=weights is not None)
        Run(list(tasks.values()), budget, choose, listener, place).tune()
        results = [tasks[structural_hash(one), machine.key].result() for one, machine in asked]
    return results[0] if isinstance(program, Program) and isinstance(target, (str, Target)) else results


@cache
def cached_peak(target: Target) -> float:
    """Half a second, once in a process: what the dashboard's shares are of."""
    return measure_peak(target)


def with_workers(measurer: MeasurerMaker, workers: Workers) -> MeasurerMaker:
    """A maker of measurers that use these workers, if it is one of such that take any."""
    if "workers" in signature(measurer).parameters:
        return partial(measurer, workers=workers)  # pyright: ignore[reportCallIssue]
    if not isinstance(workers, LocalWorkers):
        raise ValueError("tune: with workers a measurer must take them, as Measurer(..., workers=...) does")
    return measurer


def find_choice(name: str, known: Mapping[str, Choice], what: str) -> Choice:
    if name not in known:
        raise ValueError(f"there is no {what} {describe_value(name)}; there are {', '.join(known)}")
    return known[name]
