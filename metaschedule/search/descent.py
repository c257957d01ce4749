"""`Descent`: the candidates next to the best, one decision changed at a time."""

from __future__ import annotations

import random

from .candidate import Candidate
from .history import History

TRIES = 4  # neighbours looked at per decision
STARTS = 3  # of the fastest candidates


class Descent:
    def __init__(self, history: History) -> None:
        self.history = history

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        """Those around the fastest, the most promising first, then those around the next."""
        found: list[Candidate] = []
        for _, best in self.history.ranked[:STARTS]:
            around = {
                near.key: near
                for n in best.trace.decisions
                for _ in range(TRIES)
                if (near := self.history.neighbour(best, rng, {n}))
            }
            near = list(around.values())
            ordered = sorted(zip(self.history.predict(near), near), key=lambda one: (one[0], one[1].key))
            for _, candidate in ordered:
                if len(found) < count and self.history.claim(candidate):
                    found.append(candidate)
        return found
