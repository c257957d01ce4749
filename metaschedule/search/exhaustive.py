"""`Exhaustive`: every candidate of a space, sketch by sketch; for spaces that are small."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Schedule, Trace
from ..schedule.distribution import Decision, Distribution
from ..schedule.primitive.base import Handle, mapped
from .candidate import Candidate
from .history import History


class Exhaustive:
    def __init__(self, history: History) -> None:
        self.history = history
        self.left = candidates(history)

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < count and (candidate := next(self.left, None)):
            if self.history.claim(candidate):
                found.append(candidate)
        return found


def candidates(history: History) -> Iterator[Candidate]:
    for sketch in history.sketches:
        for trace in completions(sketch, history.program):
            if candidate := history.replayed(trace):
                yield candidate


def completions(sketch: Trace, program: Program) -> Iterator[Trace]:
    """The sketch with all combinations of decisions. What can be decided depends on earlier decisions, so
    each is listed on the program as those before it have left it."""

    def decided(after: int, decisions: dict[int, Decision]) -> Iterator[Trace]:
        sampling = [n for n, i in enumerate(sketch.instructions) if n >= after and i.is_sampling]
        if not sampling:
            yield sketch.with_decisions(decisions)
            return
        for decision in options(sketch, program, sampling[0], decisions):
            yield from decided(sampling[0] + 1, {**decisions, sampling[0]: decision})

    return decided(0, {})


def options(sketch: Trace, program: Program, n: int, decisions: dict[int, Decision]) -> list[Decision]:
    """What instruction n can decide after these decisions."""
    try:
        sch = Trace(sketch.instructions[:n]).with_decisions(decisions).apply(program)
        return list(distribution_at(sketch, n, sch).enumerate())
    except ScheduleError:
        return []


def distribution_at(sketch: Trace, n: int, sch: Schedule) -> Distribution:
    """The distribution of instruction n, on a schedule that replayed the instructions before it."""
    known: dict[Handle, Handle] = {}
    for old, new in zip(sketch.instructions, sch.trace.instructions):
        known.update(zip(old.outputs, new.outputs))
    primitive = sketch.instructions[n].primitive
    moved = type(primitive)(*[mapped(v, known.__getitem__) for v in primitive.operands()])
    assert isinstance(moved, Distribution)
    return moved.at(sch.state)
