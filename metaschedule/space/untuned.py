"""The most plausible candidate of a space, without measuring: what `build` takes when nothing is recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from ..codegen import split_constants
from ..cost import Analytical
from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Schedule, Trace
from ..target import Target
from .default import default
from .space import Space, SpaceLike

DRAWS = 4  # of every sketch
KEPT = 3  # sketches that are looked at again
STEPS = 24  # towards better neighbours, from the best of each


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
    found: list[tuple[float, int, Schedule]] = []
    for number, sketch in enumerate(space.sketches(program)):
        drawn = [sch for _ in range(DRAWS) if (sch := replayed(space, sketch, program, rng=rng))]
        found += zip(predicted(model, drawn), [number] * len(drawn), drawn)
    found.sort(key=lambda one: one[0])
    leaders: dict[int, tuple[float, Schedule]] = {}
    for cost, number, sch in found:
        if len(leaders) < KEPT:
            leaders.setdefault(number, (cost, sch))
    return min(leaders.values(), key=lambda one: one[0])[1] if leaders else Schedule(program)


def replayed(
    space: SpaceLike, trace: Trace, program: Program, rng: random.Random | None = None
) -> Schedule | None:
    """The candidate, if it is valid."""
    try:
        sch = trace.apply(program, rng=rng)
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
