"""Where to compute a block, as a random variable.

`sample_compute_location(block)` gives a loop for `compute_at(block, loop)`. The loops around all consumers of
the block, outermost first, are its candidates, and the decision is the number of one of them, or -1: the
block stays where it is. So a decision means the same place in every replay on loops of the same structure,
whatever their extents, and the instructions are the same for all decisions: with -1, compute_at changes
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...errors import ScheduleError
from ...ir import Block, Var
from ..distribution import Distribution, distribution
from ..state import State
from .base import BlockRV
from .compute_at import STAY, plan_compute_at
from .query import siblings


@distribution("sample_compute_location")
class ComputeLocation(Distribution):
    """A loop at which a block can be computed, or the place where it is; all equally likely.

    The support is -1 and every n for which compute_at at the n-th loop around all consumers is legal now.
    requires:  1. the block exists
    A block that cannot be moved (an output, for one) has the support [-1]. With `outermost`, only so many of
    the loops are candidates; with `moves`, -1 is none.
    """

    block: BlockRV
    outermost: int = 0
    moves: bool = False

    def at(self, s: State) -> Locations:
        block = s.block(self.block)
        loops = common_loops(s, block)
        return Locations(self, s, block, loops[: self.outermost or None])


class Locations(ComputeLocation):
    """The locations of a block in a state, which must not change while this is used. Legality is looked
    at when asked for: a replay asks for one location only."""

    __slots__ = ("candidates", "node", "state")

    def __init__(self, of: ComputeLocation, state: State, node: Block, candidates: list[Var]) -> None:
        self.block, self.outermost, self.moves = of.block, of.outermost, of.moves
        self.state, self.node, self.candidates = state, node, candidates

    def support(self) -> Sequence[int]:
        return [n for n in range(-1, len(self.candidates)) if self.valid(n)]

    def valid(self, decision: Any) -> bool:
        if type(decision) is not int or not -1 <= decision < len(self.candidates):
            return False
        if decision < 0:
            return not self.moves
        try:
            plan_compute_at(self.state, self.node, self.candidates[decision], True)
        except ScheduleError:
            return False
        return True

    def draw(self, rng: random.Random) -> int:
        # Try candidates in random order instead of listing the support: each is as likely.
        order = list(range(-1, len(self.candidates)))
        rng.shuffle(order)
        found = next((n for n in order if self.valid(n)), None)
        if found is None:
            raise ScheduleError(f"block {self.node.name!r} can be computed at no loop of its consumers")
        return found

    def outcome(self, s: State, decision: int) -> tuple[Any, ...]:
        return (STAY if decision < 0 else self.candidates[decision],)


def common_loops(s: State, block: Block) -> list[Var]:
    """The loops around all blocks that read what a block stores, outermost first."""
    mine = {r.buffer for r in block.writes}
    found: list[Var] | None = None
    for other in siblings(s, block):
        if any(r.buffer in mine for r in other.reads):
            loops = s.loops_around(other.name)
            if found is None:
                found = loops
            else:
                same = [a is b for a, b in zip(found, loops)]
                found = found[: same.index(False) if False in same else len(same)]
    return found or []
