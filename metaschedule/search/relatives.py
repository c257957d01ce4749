"""Relatives: what is known of programs of the same structure, whatever their sizes, as first candidates.

Programs are relatives if their scripts differ in numbers alone. The best trace of one is replayed on the
other, with the decisions that are not valid there changed to the nearest that are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property

from ..database import Database, Record
from ..ir import Program, structural_hash
from ..schedule import Schedule, Trace, TraceError
from ..schedule.distribution import Decision, Distribution
from ..target import Target

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NAME = re.compile(r"def \w+")
MOST = 4  # relatives that are asked


class Relatives:
    """The programs of a database, when it was first asked for relatives, by structure."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @cached_property
    def known(self) -> dict[str, list[tuple[str, list[float]]]]:
        found: dict[str, list[tuple[str, list[float]]]] = {}
        for workload in self.db.workloads():
            structure, numbers = structure_of(workload.script)
            found.setdefault(structure, []).append((workload.hash, numbers))
        return found

    def records(self, program: Program, target: Target) -> Iterator[Record]:
        """The best of each relative that was measured, the nearest in its sizes first."""
        structure, numbers = structure_of(str(program))
        own = structural_hash(program)
        others = [
            (distance(numbers, known), key) for key, known in self.known.get(structure, ()) if key != own
        ]
        asked = 0
        for _, key in sorted(others):
            if asked == MOST:
                return
            if (record := self.db.best(key, target)) is not None and record.reliable:
                asked += 1
                yield record


def structure_of(script: str) -> tuple[str, list[float]]:
    """A script without its numbers and the program's name, and the numbers.

    >>> structure_of("def f(A: T.Tensor((3, 4)))") == structure_of("def g(A: T.Tensor((5, 4)))")
    False
    >>> structure_of("def f(A: T.Tensor((3, 4)))")
    ('def _(A: T.Tensor((#, #)))', [3.0, 4.0])
    """
    text = NAME.sub("def _", script, count=1)
    return NUMBER.sub("#", text), [float(n) for n in NUMBER.findall(text)]


def distance(a: list[float], b: list[float]) -> float:
    return sum(abs(math.log((x + 1) / (y + 1))) for x, y in zip(a, b, strict=True))


def adapt(trace: Trace, program: Program) -> Schedule:
    """The trace on a program of other sizes; `ScheduleError` where a step is illegal there."""

    def choose(_: int, site: Distribution, old: Decision) -> Decision:
        return old if site.valid(old) else site.nearest(old)

    return trace.replay(program, choose)


def adapt_record(record: Record, program: Program) -> Schedule:
    """What a relative's record makes of a program."""
    if record.trace is None:
        raise TraceError(f"record {record.uid} has no trace")
    return adapt(record.trace, program)
