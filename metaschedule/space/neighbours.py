"""Moving in a space: one decision of a candidate changed to one next to it."""

from __future__ import annotations

import random

from ..schedule import Distribution, Schedule, Trace


def neighbour(sch: Schedule, rng: random.Random, attempts: int = 8) -> Trace | None:
    """The candidate's trace with one decision replaced; None if no decision can change.

    The distribution of a decision is the one that the candidate drew it from: loops have the extents they
    had then. Decisions that it makes invalid further down are found when the trace is replayed.
    """
    trace = sch.trace
    sites = list(trace.decisions)
    for _ in range(attempts if sites else 0):
        at = rng.choice(sites)
        site = trace.instructions[at].primitive
        assert isinstance(site, Distribution)
        now = trace.decisions[at]
        there = sch.concrete(at).neighbour(now, rng)
        if there != now:
            return trace.with_decisions({at: there})
    return None
