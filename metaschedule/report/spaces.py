"""The comparison of search spaces: the same search, code generator and budget on each, with several seeds.

    loops < autotvm < ansor < default: every module that a space has more should find better programs.

The course of a run is the best latency after each of its trials. What its winner takes is measured again at
the end, the winners of all spaces and seeds of a workload by turns, so that runs at different times compare.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from ..database import Database
from ..ir import Program
from ..measure import Measurer, Workers
from ..search import Result, tune
from ..search.display import PERIOD, microseconds, time_left
from ..search.progress import Progress
from ..search.run import INTERRUPTED
from ..space import Space, preset
from ..target import Target

WORKLOADS = ("FDENSE", "GMM", "C2D", "CBR")  # the paper's subject of this experiment, and others
SPACES = ("loops", "autotvm", "ansor", "default")  # from the poorest to the richest
NOISE = 0.05  # of a latency; a richer space that is slower by less is as good


class SpaceSubject(Protocol):
    """What is tuned."""

    @property
    def label(self) -> str: ...
    @property
    def program(self) -> Any: ...  # a Program, which may be made when it is first asked for


class Band(NamedTuple):
    """Of the seeds."""

    low: float
    median: float
    high: float


def band_of(values: Sequence[float]) -> Band:
    return Band(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Course:
    """One tuning run: the best latency after each trial (seconds; infinite before the first that works), the
    winner's as measured beside the others', and the trials that there were (a small space has no more)."""

    space: str
    seed: int
    best: list[float]
    latency: float
    trials: int


@dataclass
class SpacesRow:
    """The runs of a subject, by space from the poorest to the richest."""

    label: str
    trials: int
    courses: list[Course] = field(default_factory=list)

    @property
    def spaces(self) -> list[str]:
        return list(dict.fromkeys(course.space for course in self.courses))

    def latency(self, space: str) -> Band:
        return band_of([c.latency for c in self.courses if c.space == space])

    def course(self, space: str) -> list[Band]:
        """Of the best latency, after each trial."""
        runs = [c.best for c in self.courses if c.space == space]
        return [band_of(values) for values in zip(*runs, strict=True)]

    def gain(self, poorer: str, richer: str) -> float:
        """How many times as fast the programs of the richer space are."""
        return self.latency(poorer).median / self.latency(richer).median

    @property
    def steps(self) -> list[tuple[str, str]]:
        return list(zip(self.spaces, self.spaces[1:]))

    @property
    def failures(self) -> list[str]:
        """Where a richer space is worse than the poorer one by more than noise."""
        return [
            f"{self.label}: {richer} is {1 / self.gain(poorer, richer):.2f} times as slow as {poorer}"
            for poorer, richer in self.steps
            if self.gain(poorer, richer) < 1 - NOISE
        ]

    def as_data(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "latency": {space: self.latency(space)._asdict() for space in self.spaces},
            "gains": {f"{richer} over {poorer}": self.gain(poorer, richer) for poorer, richer in self.steps},
            "runs": [
                {"space": c.space, "seed": c.seed, "trials": c.trials, "latency": c.latency,
                 "best": [best if math.isfinite(best) else None for best in c.best]}
                for c in self.courses
            ],
        }  # fmt: skip


class InterruptedRows(KeyboardInterrupt):
    """Ctrl-C, with what was compared until then."""

    def __init__(self, rows: list[SpacesRow]) -> None:
        super().__init__("the comparison was interrupted")
        self.rows = rows


def compare_spaces(
    subjects: Sequence[SpaceSubject],
    spaces_of: Callable[[SpaceSubject], Mapping[str, Space]],
    seeds: Sequence[int],
    trials: int,
    database: Database,
    target: Target,
    tell: Callable[[str], None],
    workers: Workers | None = None,
) -> list[SpacesRow]:
    """A row for each subject, whose spaces are given by name. Records go to the database, and the same call
    again goes on from them. Ctrl-C raises `InterruptedRows`."""
    todo = [(subject, spaces_of(subject)) for subject in subjects]
    clock = Clock(len(seeds) * sum(len(named) for _, named in todo))
    rows: list[SpacesRow] = []
    try:
        for subject, named in todo:
            results: list[tuple[str, int, Result]] = []
            for seed in seeds:
                for name, space in named.items():
                    listener = clock.listener(f"{subject.label}, {name}, seed {seed}", tell)
                    own = own_space(name, space, seed)
                    result = search(subject.program, own, seed, trials, database, target, listener, workers)
                    results.append((name, seed, result))
                    clock.done += 1
            tell(f"{subject.label}: measuring {len(results)} winners by turns{clock.left()}")
            courses = courses_of(subject.program, results, trials, target, workers)
            order = list(named)
            rows.append(SpacesRow(subject.label, trials, sorted(courses, key=lambda c: order.index(c.space))))
    except KeyboardInterrupt:
        raise InterruptedRows(rows) from None
    return rows


def presets_of(names: Sequence[str], target: Target) -> dict[str, Space]:
    return {name: preset(name, target) for name in names}


def search(
    program: Program, space: Space, seed: int, trials: int, database: Database, target: Target,
    listener: Callable[[Progress], None], workers: Workers | None,
) -> Result:  # fmt: skip
    result = tune(
        program, trials=trials, seed=seed, space=space, database=database, target=target, progress=listener,
        workers=workers,
    )  # fmt: skip
    if result.stopped == INTERRUPTED:  # `tune` ends quietly, the comparison does too
        raise KeyboardInterrupt
    return result


def own_space(name: str, space: Space, seed: int) -> Space:
    """A space under a name of its own for each seed: a search learns from the records of a space, whatever
    their seed, and seeds are to be independent."""
    return Space(space.modules, space.postprocessors, space.checks, space.target, f"{name}, seed {seed}")


def courses_of(
    program: Program, results: Sequence[tuple[str, int, Result]], trials: int, target: Target,
    workers: Workers | None,
) -> Iterator[Course]:  # fmt: skip
    with Measurer(program, target, workers=workers) as measurer:
        outcomes = measurer.confirm([result.schedule.program for _, _, result in results])
    for (name, seed, result), outcome in zip(results, outcomes, strict=True):
        best = best_after_each(result, trials)
        latency = outcome.latency if outcome.latency is not None else result.latency
        yield Course(name, seed, best, latency or float("inf"), min(trials, len(result.records)))


def best_after_each(result: Result, trials: int) -> list[float]:
    """The best latency after each trial; of a space with fewer candidates the last one stays."""
    records = sorted(result.records, key=lambda record: record.trial or 0)[:trials]
    best = list(accumulate((r.latency or float("inf") for r in records), min)) or [float("inf")]
    return best + best[-1:] * (trials - len(best))


class Clock:
    """Time left of some runs, by those that are done: those that found their trials recorded take no time."""

    def __init__(self, runs: int) -> None:
        self.runs, self.done, self.began = runs, 0, time.monotonic()

    def left(self, current: float | None = None) -> str:
        """With the seconds that the current run still takes, as far as is known."""
        if not self.done:
            return "" if current is None else time_left(current * self.runs)
        others = max(0, self.runs - self.done - (current is not None))
        return time_left((time.monotonic() - self.began) / self.done * others + (current or 0.0))

    def listener(self, what: str, tell: Callable[[str], None]) -> Callable[[Progress], None]:
        told = 0.0

        def show(p: Progress) -> None:
            nonlocal told
            if p.event not in ("measured", "confirmed") and time.monotonic() - told < PERIOD:
                return
            told = time.monotonic()
            done = f"{self.done} of {self.runs} runs done"
            best = microseconds(p.latency)
            tell(f"{what}: {p.trials} of {p.budget} trials, best {best}; {done}{self.left(p.left)}")

        return show
