"""Sketches in the making, bounded while they are made.

Where modules fork for one block after the other, options multiply: 256 reductions of three options each are
3**256 sketches. Blocks that do not touch are independent, so nothing is lost by not having all combinations:
as soon as there are too many, every partial sketch goes on with one of its options, drawn. Those that take
*the same* option everywhere are always kept, for what is best for one of many equal blocks is best for all:

    options of block 1: a b      of block 2: c d e      at most 4 sketches

    a    b                       all partial sketches are few enough
    ac   ad   bd   be            of ac ad ae bc bd be: `ac` (the first everywhere), `bd` (the second), `be`
                                 (the third, or the last there is), and one that is drawn
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..schedule import Schedule

MOST_SKETCHES = 64
FEWEST_SKETCHES = 4
SMALL = 12  # blocks of a program that gets so many; the cost of a sketch grows with the number of blocks
ANY = 1 << 30  # more than a block has options


def most_sketches(count: int, most: int) -> int:
    """How many sketches are made of a program of so many blocks: fewer of many, which take longer each."""
    count = max(SMALL, count)
    return max(FEWEST_SKETCHES, most * SMALL**2 // count**2)


@dataclass(frozen=True, eq=False)
class Partial:
    """A schedule on its way to a sketch. `ranks`: it is what one gets by taking the option of one of these
    ranks (or the last option) of every block so far; an empty range if its options are mixed."""

    schedule: Schedule
    ranks: range = range(ANY)

    def options(self, made: Sequence[Schedule]) -> list[Partial]:
        """What a module made of it, with their ranks."""
        last = len(made) - 1
        return [Partial(sch, self.narrow(n, ANY if n == last else n + 1)) for n, sch in enumerate(made)]

    def narrow(self, low: int, high: int) -> range:
        return range(max(self.ranks.start, low), min(self.ranks.stop, high))


def thin(families: list[list[Partial]], most: int, rng: random.Random) -> list[list[Partial]]:
    """At most so many of some families of options: all if they are few enough; else those of one rank, one of
    each other family, then any, in the order that they had."""
    if sum(map(len, families)) <= most:
        return families
    uniform = [state for family in families for state in family if state.ranks]
    drawn = [rng.choice(family) for family in families if family and not any(s.ranks for s in family)]
    rest = [state for family in families for state in family]
    rng.shuffle(rest)
    kept = set(list(dict.fromkeys([*uniform, *drawn, *rest]))[:most])
    return [[state for state in family if state in kept] for family in families]
