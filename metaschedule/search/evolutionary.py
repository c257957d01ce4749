"""`Evolutionary`: chains of neighbours, accepted by annealed Metropolis-Hastings on predicted cost.

Replaying and scoring a candidate takes a few milliseconds and measuring it a hundred, so for each that is
measured some ten are looked at. Chains go on from one proposal to the next; some restart at the best
candidates that were measured, some at new draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from .candidate import Candidate
from .history import History
from .strategy import Replay

HOT, COLD = 0.5, 0.05  # temperatures: what a rise of log(seconds) is divided by
PROMISING = 1.5  # times the best prediction: what a sketch that nobody has tried may be predicted to take


class Evolutionary:
    """`chains` candidates take `generations` steps per proposal; of the proposed, a share `epsilon` are
    random draws, whatever the model thinks of them."""

    descends = True

    def __init__(
        self, history: History, chains: int = 64, generations: int = 4, epsilon: float = 0.1
    ) -> None:
        self.history = history
        self.size, self.generations, self.epsilon = chains, generations, epsilon
        self.chains: list[Candidate] = []
        self.sketches_tried: set[str] = set()

    def propose(self, count: int, rng: random.Random) -> list[Candidate]:
        costs: dict[tuple[str, str], float] = {}
        seen: dict[tuple[str, str], Candidate] = {}

        def score(candidates: Sequence[Candidate]) -> list[float]:
            new = {c.key: c for c in candidates if c.key not in costs}
            seen.update(new)
            costs.update(zip(new, self.history.predict(list(new.values()))))
            return [costs[c.key] for c in candidates]

        chains = self.start_chains(rng)
        now = score(chains)
        for generation in range(self.generations):
            cooled = generation / max(1, self.generations - 1)
            temperature = HOT * (COLD / HOT) ** cooled
            moves = [self.move(chain, rng) for chain in chains]
            then = score(moves)
            for n, (move, old, new) in enumerate(zip(moves, now, then)):
                if new <= old or rng.random() < math.exp(math.log(old / new) / temperature):
                    chains[n], now[n] = move, new
        self.chains = sorted(chains, key=lambda c: (costs[c.key], c.key))
        randomly = round(self.epsilon * count)
        found = self.choose(sorted((costs[key], key, c) for key, c in seen.items()), count - randomly)
        return found + Replay(self.history).propose(count - len(found), rng)

    def start_chains(self, rng: random.Random) -> list[Candidate]:
        """A quarter of the chains at the best measured candidates, half where the last proposal left them,
        the others, at first all, anywhere."""
        best = [candidate for _, candidate in self.history.ranked[: self.size // 4]]
        chains = best + self.chains[: self.size // 2]
        drawn = [self.history.draw(rng) for _ in range(self.size - len(chains))]
        return chains + [candidate for candidate in drawn if candidate is not None]

    def move(self, candidate: Candidate, rng: random.Random) -> Candidate:
        """A neighbour in one decision, sometimes in two; the same candidate if there is none."""
        positions = list(candidate.trace.decisions)
        if not positions:
            return candidate
        count = min(len(positions), 1 if rng.random() < 0.75 else 2)
        return self.history.neighbour(candidate, rng, set(rng.sample(positions, count))) or candidate

    def choose(
        self, ordered: Sequence[tuple[float, tuple[str, str], Candidate]], count: int
    ) -> list[Candidate]:
        """The best of candidates that are ordered by cost; half of the places go first to promising ones of
        sketches that nobody has tried, for models are worse at telling sketches apart than decisions."""
        untried: dict[str, Candidate] = {}
        for cost, _, candidate in ordered:
            if candidate.sketch not in self.sketches_tried and cost <= PROMISING * ordered[0][0]:
                untried.setdefault(candidate.sketch, candidate)
        found: list[Candidate] = []
        for candidate in (*list(untried.values())[: count // 2], *(c for _, _, c in ordered)):
            if len(found) < count and self.history.claim(candidate):
                self.sketches_tried.add(candidate.sketch)
                found.append(candidate)
        return found
