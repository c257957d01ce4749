"""The most plausible candidate of a space, without measuring: what `build` takes when nothing is recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..codegen import split_constants
from ..cost import Analytical
from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Schedule, Trace
from ..target import Target
from .default import default
from .space import Space, SpaceLike

DRAWS = 2  # of every sketch
KEPT = 3  # sketches that are looked at again
ROUNDS = 3
NEIGHBOURS = 5  # of each that is kept, in every round


@lru_cache(maxsize=8)
def default_space(target: Target) -> Space:
    """One space per target, so that sketches are made once."""
    return default(target)


def untuned(program: Program, target: Target, space: SpaceLike | None = None, seed: int = 0) -> Schedule:
    """Draw a few candidates of every sketch, walk downhill from the best, all by the analytical cost model.
    The loops as written if the space has no candidate for them."""
    space = space or default_space(target)
    model = Analytical(target)
    rng = random.Random(seed)
    drawn: list[tuple[int, Schedule]] = []
    for number, sketch in enumerate(space.sketches(program)):
        for _ in range(DRAWS if sketch.decisions else 1):
            sch = replayed(space, sketch, program, rng)
            drawn += [] if sch is None else [(number, sch)]
    leaders: dict[int, tuple[float, Schedule]] = {}
    for cost, (number, sch) in sorted(zip(predicted(model, [sch for _, sch in drawn]), drawn), key=first):
        if len(leaders) < KEPT:
            leaders.setdefault(number, (cost, sch))
    best = [downhill(space, program, model, rng, *leader) for leader in leaders.values()]
    return min(best, key=first)[1] if best else Schedule(program)


def first(pair: tuple[float, Any]) -> float:
    return pair[0]


def downhill(
    space: SpaceLike, program: Program, model: Analytical, rng: random.Random, cost: float, sch: Schedule
) -> tuple[float, Schedule]:
    """Some neighbours of a candidate, then of the best of them, for some rounds."""
    for _ in range(ROUNDS):
        trace = sch.trace
        sites = list(trace.decisions)
        moves = [{rng.choice(sites)} for _ in range(NEIGHBOURS)] if sites else []
        near = [new for moved in moves if (new := replayed(space, trace, program, rng, moved))]
        cost, sch = min([(cost, sch), *zip(predicted(model, near), near)], key=first)
    return cost, sch


def replayed(
    space: SpaceLike, trace: Trace, program: Program, rng: random.Random, moved: set[int] | None = None
) -> Schedule | None:
    """The candidate, if it is valid."""
    try:
        sch = trace.apply(program, rng=rng, moved=moved)
        space.check(sch)
    except ScheduleError:
        return None
    return sch


def predicted(model: Analytical, candidates: Sequence[Schedule]) -> list[float]:
    """Seconds of the kernels; what is done with constants at build time costs nothing."""
    if not candidates:
        return []
    fixed = any(b.constant for b in candidates[0].state.original.inputs)
    kernels = [split_constants(c.program)[1] for c in candidates] if fixed else candidates
    return [float(cost) for cost in model.predict(kernels)]
