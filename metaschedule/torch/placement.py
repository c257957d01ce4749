"""Which kernel runs where: chosen by what the model takes, not by what a kernel takes alone.

A kernel that was measured by itself had its data in other caches and other company than in a model. So the
candidates of all programs (the untuned default, the best records, torch's own operators) are timed in their
place, all at once: two versions of the model run by turns, with a clock after every kernel, and each program
takes the faster. The version that this makes then has to be faster as a whole; where it is not, its changes
are tried one by one. What is chosen is kept in the database, under the model.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..database import Choice, Database, Record
from ..errors import ScheduleError
from ..ir import Program, structural_hash
from ..schedule import TraceError
from ..target import Target
from .clocked import Clocked
from .eager import is_eagers, leave_to_eager
from .kernels import Compiler, name_model
from .pipeline import FusedGraph
from .plan import plan_calls
from .runner import Runner

log = logging.getLogger("metaschedule")
UNTUNED, EAGER = "untuned", "eager"
RECORDS = 3  # of a program, if they are
CLOSE = 1.06  # times the best or less
MARGIN = 0.01  # by which the faster must be it: less is noise
OFTEN = 0.65  # share of the rounds in which it must be
LEAST_ROUNDS, MOST_ROUNDS = 8, 60
SECONDS = 3.0  # of a comparison, if that is at least 8 rounds
WORTH = 0.003  # of the model: a program that takes less is not tried a second time
SLOW_ENOUGH = 20e-6  # seconds: what takes less is over before eager has begun
MOST_TURNS = 8  # changes that are tried one by one

Candidate = Record | str  # a record, or UNTUNED or EAGER
Version = Mapping[str, Candidate]  # by program
Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class GraphCall:
    """A graph of a model, and the tensors that come to it."""

    parts: FusedGraph
    inputs: list[torch.Tensor] = field(default_factory=list)


class Chosen(Compiler):
    """Compiles each program as a version of the model has it."""

    def __init__(self, target: Target, version: Version) -> None:
        super().__init__(target)
        self.version = version

    def find_record(self, program: Program) -> Record | None:
        found = self.version[structural_hash(program)]
        return found if isinstance(found, Record) else None


@dataclass(frozen=True)
class Rounds:
    """What two versions took by turns: as a whole, and each program in its places."""

    old: list[float]
    new: list[float]
    programs: dict[str, tuple[list[float], list[float]]]


class Placement:
    """Finds the version of a model that is fastest, of what the database knows."""

    def __init__(
        self, calls: Sequence[GraphCall], db: Database, target: Target, tell: Tell | None = None
    ) -> None:
        self.calls = [call for call in calls if call.parts.programs]
        self.db, self.target = db, target
        self.tell = tell or (lambda *_: None)
        self.eagers = {  # that torch could run
            structural_hash(program): is_eagers(group, call.parts)
            for call in self.calls
            for group, program in call.parts.programs.items()
        }
        self.programs = {
            structural_hash(program): program
            for call in self.calls
            for program in call.parts.programs.values()
        }
        self.models = [name_model(call.parts.programs.values()) for call in self.calls]
        self.seconds: dict[str, dict[str, float]] = {key: {} for key in self.programs}
        self.step, self.steps = 0, 1

    def choose(self, deadline: float = math.inf) -> Version:
        """The fastest version; what is not compared by the deadline (of `time.monotonic`) stays as it is."""
        untuned: Version = dict.fromkeys(self.programs, UNTUNED)
        ranked = {key: self.best_records(key) for key in self.programs}
        levels = max((len(records) for records in ranked.values()), default=0)
        self.steps = levels + 2
        version = untuned
        for level in range(levels):
            new = {
                key: found[level]
                for key, found in ranked.items()
                if level < len(found) and self.is_worth(key, level)
            }
            late = deadline if level else math.inf  # what was found is compared once, whatever the time
            version = self.improve(version, new, f"records, number {level + 1}", late)
        slow = [key for key in self.programs if self.may_be_eagers(key)]
        version = self.improve(version, dict.fromkeys(slow, EAGER), "torch's own operators", deadline)
        return self.confirm(untuned, version)

    def best_records(self, key: str) -> list[Record]:
        """Those that replay, of different candidates, what the model has now before all others."""
        program = self.programs[key]
        chosen = next(filter(None, [self.db.choice(key, self.target, model) for model in self.models]), None)
        first = [r for r in [self.db.record(chosen.record) if chosen and chosen.record else None] if r]
        found: dict[tuple[str | None, str | None], Record] = {}
        for record in [*first, *self.db.ranked(program, self.target, limit=4 * RECORDS)]:
            if len(found) < RECORDS and record.latency is not None and replays(record, program):
                found.setdefault((record.sketch, record.decisions), record)
        least = min((r.latency or math.inf for r in found.values()), default=0.0)
        ordered = sorted(found.values(), key=lambda r: (not r.reliable, not r.confirmed, r.latency))
        return [r for r in ordered if (r.latency or 0.0) <= CLOSE * least or r in first]

    def is_worth(self, key: str, level: int) -> bool:
        if not level or not self.seconds[key]:
            return True
        whole = sum(min(one.values()) for one in self.seconds.values() if one)
        return min(self.seconds[key].values()) > WORTH * whole

    def may_be_eagers(self, key: str) -> bool:
        known = self.seconds[key]
        return self.eagers[key] and (not known or min(known.values()) > SLOW_ENOUGH)

    # --- comparing ---

    def improve(self, version: Version, changes: Version, what: str, deadline: float = math.inf) -> Version:
        """The version with those changes that make it faster."""
        self.step += 1
        changes = {key: new for key, new in changes.items() if new is not version[key]}
        if not changes or time.monotonic() > deadline:
            return version
        self.tell(self.step, self.steps, what)
        rounds = self.compare(version, {**version, **changes})
        for key, (old, new) in rounds.programs.items():
            self.note(key, version[key], old)
            self.note(key, changes.get(key, version[key]), new)
        faster = {
            key: new
            for key, new in changes.items()
            if is_faster(rounds.programs[key][1], rounds.programs[key][0])
        }
        if not faster:
            return version
        gains = {key: quartile(rounds.programs[key][0]) - quartile(rounds.programs[key][1]) for key in faster}
        better: Version = {**version, **faster}
        whole = self.compare(version, better) if len(faster) < len(changes) else rounds
        if not is_faster(whole.old, whole.new):
            return better
        return self.by_turns(version, faster, gains, deadline)

    def by_turns(
        self, version: Version, changes: Version, gains: Mapping[str, float], deadline: float
    ) -> Version:
        """The model disagrees with the sum of its kernels: each change by itself, the largest gains first."""
        ordered = sorted(changes, key=lambda key: (-gains[key], key))[:MOST_TURNS]
        for n, key in enumerate(ordered):
            if time.monotonic() > deadline:
                break
            self.tell(self.step, self.steps, f"one by one, {n + 1} of {len(ordered)}")
            better = {**version, key: changes[key]}
            rounds = self.compare(version, better)
            if is_faster(rounds.new, rounds.old, margin=0.0):
                version = better
        return version

    def confirm(self, untuned: Version, version: Version) -> Version:
        """The version, unless the untuned model is faster."""
        self.step += 1
        self.tell(self.step, self.steps, "against the untuned model")
        if all(version[key] is untuned[key] for key in version):
            return version
        rounds = self.compare(untuned, version)
        log.info("untuned %.1f us, chosen %.1f us", 1e6 * quartile(rounds.old), 1e6 * quartile(rounds.new))
        return untuned if is_faster(rounds.old, rounds.new) else version

    def compare(self, old: Version, new: Version) -> Rounds:
        """Both by turns, each first in every second round."""
        runners = [self.build(old), self.build(new)]
        places = [[self.places(version, call) for call in self.calls] for version in (old, new)]
        found = Rounds([], [], {key: ([], []) for key in self.programs})
        for both in runners:  # pages are touched, threads are there
            self.run(both)
        began = time.perf_counter()
        for n in range(MOST_ROUNDS):
            if n >= LEAST_ROUNDS and time.perf_counter() - began > SECONDS:
                break
            for side in (0, 1) if n % 2 else (1, 0):
                whole = self.run(runners[side])
                (found.old, found.new)[side].append(whole)
                totals = dict.fromkeys(self.programs, 0.0)
                for runner, keys in zip(runners[side], places[side]):
                    for key, seconds in zip(keys, runner.seconds, strict=True):
                        if key is not None:
                            totals[key] += seconds
                for key, seconds in totals.items():
                    found.programs[key][side].append(seconds)
        return found

    def build(self, version: Version) -> list[Clocked]:
        return [
            Clocked(plan_calls(self.divided(version, call), Chosen(self.target, version), self.target.cores))
            for call in self.calls
        ]

    def divided(self, version: Version, call: GraphCall) -> FusedGraph:
        return leave_to_eager(call.parts, {key for key, how in version.items() if how == EAGER})

    def places(self, version: Version, call: GraphCall) -> list[str | None]:
        """Of each step the program that it is of; None if it is of none."""
        parts = self.divided(version, call)
        owner = {
            node: structural_hash(program)
            for group, program in call.parts.programs.items()
            for node in group.nodes
        }
        return [owner.get(group.sink) for group in parts.groups if not group.is_window]

    def run(self, runners: Sequence[Runner]) -> float:
        start = time.perf_counter()
        for runner, call in zip(runners, self.calls):
            runner(call.inputs)
        return time.perf_counter() - start

    def note(self, key: str, how: Candidate, times: Sequence[float]) -> None:
        name = how if isinstance(how, str) else how.uid
        before = self.seconds[key].get(name, math.inf)
        self.seconds[key][name] = min(before, quartile(times))

    def as_choices(self, version: Version) -> Iterable[Choice]:
        for call, model in zip(self.calls, self.models):
            for key in dict.fromkeys(map(structural_hash, call.parts.programs.values())):
                how = version[key]
                record = how.uid if isinstance(how, Record) else ""
                kind = how if isinstance(how, str) else "record"
                yield Choice(key, self.target.key, model, kind, record, self.seconds[key])


def place(
    calls: Sequence[GraphCall],
    db: Database,
    target: Target,
    tell: Tell | None = None,
    deadline: float = math.inf,
) -> Version:
    """Choose by which kernels a model runs its programs, and keep that in the database."""
    placement = Placement(calls, db, target, tell)
    if not placement.programs:
        return {}
    with torch.no_grad():
        version = placement.choose(deadline)
    for program in placement.programs.values():
        db.add_program(program)
    db.choose(placement.as_choices(version))
    return version


def quartile(times: Sequence[float]) -> float:
    """The lower quartile: what disturbs a call makes it slower."""
    return statistics.quantiles(times, n=4)[0] if len(times) > 1 else times[0]


def is_faster(times: Sequence[float], than: Sequence[float], margin: float = MARGIN) -> bool:
    """Whether the first of two that ran by turns is faster, by more than noise and in most rounds.

    >>> is_faster([1.0, 1.1, 1.0, 1.0], [1.2, 1.3, 1.2, 1.3]), is_faster([1.0, 1.1, 1.0], [1.0, 1.0, 1.1])
    (True, False)
    """
    won = sum(a < b for a, b in zip(times, than, strict=True))
    return quartile(times) < (1 - margin) * quartile(than) and won >= OFTEN * len(times)


def replays(record: Record, program: Program) -> bool:
    try:
        return record.trace is not None and bool(record.trace.apply(program))
    except (ScheduleError, TraceError):
        return False
