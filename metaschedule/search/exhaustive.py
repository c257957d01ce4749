"""`Exhaustive`: every candidate of a space, sketch by sketch; for spaces that are small."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..errors import ScheduleError
from ..schedule import Trace
from ..schedule.distribution import Decision, Distribution
from .candidate import Candidate
from .history import History


class Exhaustive:
    """Every candidate of every sketch, in order."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.left = (c for sketch in history.sketches for c in completions(history, sketch))

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < count and (candidate := next(self.left, None)):
            if self.history.claim(candidate):
                found.append(candidate)
        return found


def completions(history: History, sketch: Trace) -> Iterator[Candidate]:
    """The sketch with all combinations of decisions, the last one changing fastest.

    What can be decided at a position may depend on the decisions before it, so it is asked for when a replay
    gets there: `taken` are the decisions of the present combination, `untaken` the alternatives to each.
    """
    taken: dict[int, Decision] = {}
    untaken: dict[int, Iterator[Decision]] = {}

    def choose(n: int, site: Distribution, old: Decision) -> Decision:
        if n not in taken:
            untaken[n] = iter(site.enumerate())
            taken[n] = next(untaken[n], None)
        if taken[n] is None:
            raise ScheduleError(f"{site!r} has nothing to decide")
        return taken[n]

    while True:
        if candidate := history.make_candidate(lambda: sketch.replay(history.program, choose)):
            yield candidate
        while untaken:
            last = next(reversed(untaken))
            taken[last] = next(untaken[last], None)
            if taken[last] is not None:
                break
            del taken[last], untaken[last]
        else:
            return
