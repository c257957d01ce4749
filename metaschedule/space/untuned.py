"""The most plausible candidate of a space, without measuring: what `build` takes when nothing is recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Protocol

from ..codegen import split_constants
from ..cost import Analytical
from ..errors import ScheduleError
from ..ir import Program, structural_hash
from ..schedule import Schedule, Trace
from ..target import Target
from .bind_simply import bind_simply
from .default import default
from .gpu_rule import GpuRule
from .pieces import Sketch, join_traces
from .rare_collections import rare_collections
from .space import Space, SpaceLike

DRAWS = 4  # of every sketch
DRAWS_ON_GPU = 4  # fewer sketches, of more decisions
KEPT = 3  # sketches that are looked at again
ROUNDS = 4
NEIGHBOURS = 8  # of each that is kept, in every round
MOST_STEPS = 6000  # of traces, replayed by one of these loops; of longer traces there are fewer draws


class Ranking(Protocol):
    """What ranks candidates: the analytical cost model, or for a GPU a rule of thumb."""

    def predict(self, programs: Sequence[Schedule | Program]) -> Any: ...


@lru_cache(maxsize=8)
def default_space(target: Target) -> Space:
    """One space per target, so that sketches are made once."""
    return default(target)


@rare_collections()
def schedule_untuned(
    program: Program, target: Target, space: SpaceLike | None = None, seed: int = 0
) -> Schedule:
    """Draw a few candidates of every sketch, walk downhill from the best, all by the analytical cost model,
    or the rule of thumb for GPUs. The loops as written (on a GPU, bound) if the space has no better.
    A large program goes piece by piece."""
    space = space or default_space(target)
    parts = space.pieces(program) if isinstance(space, Space) else []
    if len(parts) > 1:
        return piecewise(program, parts, target, space, seed)
    sketches = parts[0][1] if parts else space.sketches(program)
    return most_plausible(program, sketches, target, space, seed, MOST_STEPS)


def most_plausible(
    program: Program, sketches: list[Trace], target: Target, space: SpaceLike, seed: int, most_steps: int
) -> Schedule:
    """The best of some draws and of their neighbours; fewer draws, and no neighbours, if more than so many
    steps of traces would have to be replayed."""
    on_gpu = target.gpu is not None
    model: Ranking = GpuRule(target) if on_gpu else Analytical(target)
    rng = random.Random(seed)
    drawn: list[tuple[int, Schedule]] = [(-1, bind_simply(program, target))] if on_gpu else []
    draws = DRAWS_ON_GPU if on_gpu else DRAWS
    draws = draws if sum(map(len, sketches)) <= most_steps else 1
    for number, sketch in enumerate(sketches):
        for _ in range(draws if sketch.decisions else 1):
            sch = replay_candidate(space, sketch, program, rng)
            drawn += [] if sch is None else [(number, sch)]
    leaders: dict[int, tuple[float, Schedule]] = {}
    for cost, (number, sch) in sorted(
        zip(predict_seconds(model, [sch for _, sch in drawn]), drawn), key=itemgetter(0)
    ):
        kept = KEPT if KEPT * ROUNDS * NEIGHBOURS * len(sch.trace) <= most_steps and not on_gpu else 1
        if len(leaders) < kept:
            leaders.setdefault(number, (cost, sch))
    best = [downhill(space, program, model, rng, *leader, most_steps) for leader in leaders.values()]
    return min(best, key=itemgetter(0))[1] if best else Schedule(program)


def piecewise(
    program: Program, parts: list[tuple[Program, list[Trace]]], target: Target, space: SpaceLike, seed: int
) -> Schedule:
    """The most plausible candidate of every piece, one after the other; equal pieces are looked at once."""
    known: dict[str, Sketch] = {}
    found: list[tuple[Program, Sketch]] = []
    for part, sketches in parts:
        key = structural_hash(part)
        if key not in known:
            best = most_plausible(part, sketches, target, space, seed, MOST_STEPS // len(parts))
            known[key] = Sketch.of(best)
        found.append((part, known[key]))
    return join_traces(program, found).apply(program)


def downhill(
    space: SpaceLike,
    program: Program,
    model: Ranking,
    rng: random.Random,
    cost: float,
    sch: Schedule,
    most_steps: int,
) -> tuple[float, Schedule]:
    """Some neighbours of a candidate, then of the best of them, for some rounds."""
    for _ in range(ROUNDS if ROUNDS * NEIGHBOURS * len(sch.trace) <= most_steps else 0):
        trace = sch.trace
        sites = list(trace.decisions)
        moves = [{rng.choice(sites)} for _ in range(NEIGHBOURS)] if sites else []
        near = [new for moved in moves if (new := replay_candidate(space, trace, program, rng, moved))]
        cost, sch = min([(cost, sch), *zip(predict_seconds(model, near), near)], key=itemgetter(0))
    return cost, sch


def replay_candidate(
    space: SpaceLike, trace: Trace, program: Program, rng: random.Random, moved: set[int] | None = None
) -> Schedule | None:
    """The candidate, if it is valid."""
    try:
        sch = trace.apply(program, rng=rng, moved=moved)
        space.check(sch)
    except ScheduleError:
        return None
    return sch


def predict_seconds(model: Ranking, candidates: Sequence[Schedule]) -> list[float]:
    """Seconds of the kernels; what is done with constants at build time costs nothing."""
    if not candidates:
        return []
    fixed = any(b.constant for b in candidates[0].state.original.inputs)
    kernels = [split_constants(c.program)[1] for c in candidates] if fixed else candidates
    return [float(cost) for cost in model.predict(kernels)]
