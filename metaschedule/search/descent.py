"""`Descent`: the candidates next to the best, one decision changed at a time."""

from __future__ import annotations

import random
from itertools import zip_longest

from .candidate import Candidate
from .history import History

TRIES = 4  # neighbours looked at per decision
STARTS = 3  # of the fastest candidates


class Descent:
    def __init__(self, history: History) -> None:
        self.history = history

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        """Those around the fastest, then those around the next."""
        found: list[Candidate] = []
        for _, best in self.history.ranked[:STARTS]:
            ways = [self.around(best, n, rng) for n in best.trace.decisions]
            # The first of every decision before the second of any: what the model thinks of a decision is
            # put to the test even if it thinks more of others.
            for candidate in [c for rank in zip_longest(*ways) for c in rank if c is not None]:
                if len(found) < count and self.history.claim(candidate):
                    found.append(candidate)
        return found

    def around(self, best: Candidate, decision: int, rng: random.Random) -> list[Candidate]:
        """Neighbours that differ in one decision, the most promising first."""
        made = [self.history.neighbour(best, rng, {decision}) for _ in range(TRIES)]
        near = list({one.key: one for one in made if one}.values())
        ordered = sorted(zip(self.history.predict(near), near), key=lambda one: (one[0], one[1].key))
        return [candidate for _, candidate in ordered]
