"""What a strategy is, and the simplest."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from .candidate import Candidate
from .history import History

ATTEMPTS = 8  # draws per candidate that is asked for


class Strategy(Protocol):
    """Proposes candidates, given the history that it was made with. If it has a true attribute `descends`, a
    quarter of the trials go to the neighbours of the best."""

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        """At most `count` candidates, all claimed; none if it finds no new one. What it gives depends on the
        history and on `rng` alone, never on the order of sets, on addresses or on time."""
        ...


StrategyMaker = Callable[[History], Strategy]


class Replay:
    """Random draws from the space, as they come."""

    def __init__(self, history: History) -> None:
        self.history = history

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        found: list[Candidate] = []
        for _ in range(ATTEMPTS * count):
            if len(found) == count:
                break
            candidate = self.history.draw(rng)
            if candidate is not None and self.history.claim(candidate):
                found.append(candidate)
        return found
