"""RandomComputeLocation: where a producer is computed is a random variable.

This is also how padding is materialised: as a whole, or for a chunk, a row or a tile of its consumer.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Block
from ..ir.annotations import CLAIMED, TILED
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import attempt, consumers, find_only_store, is_output, is_spatial, reduction_loops
from .stage import schedule_stage


@dataclass(frozen=True)
class RandomComputeLocation:
    """Compute a stage at a drawn loop of its consumers (or leave it where it is), vectorized in its place."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        users = consumers(sch, block)
        if is_output(sch, block) or not users or not is_spatial(node) or find_only_store(node) is None:
            return [sch]
        if any(writes_same(user, node) for user in users):
            return [sch]
        if not any(CLAIMED.is_on(user) or TILED.is_on(user) for user in users):
            return [sch]  # its consumers have no tiles at which to compute it
        for first in (0, -1):  # decisions to begin with; replays draw others
            made = attempt(sch, place, block, first, target)
            if made:
                return made
        return [sch]


def writes_same(a: Block, b: Block) -> bool:
    """Whether a block goes on with what another began, as a reduction with its initialisation."""
    return any(x.buffer is y.buffer for x in a.writes for y in b.writes)


def place(sch: Schedule, block: BlockRV, first: int, target: Target) -> None:
    depth = min(loops_before_reduction(sch, user.name) for user in consumers(sch, block))
    sch.compute_at(block, sch.sample_compute_location(block, depth, decision=first))
    schedule_stage(sch, block, target)
    sch.annotate(block, CLAIMED.key, "RandomComputeLocation")


def loops_before_reduction(sch: Schedule, name: str) -> int:
    """How many loops there are outside the reduction loops of a block: inside them a stage would be computed
    again for every term."""
    reducing = reduction_loops(sch, name)
    loops = sch.state.loops_around(name)
    return next((n for n, loop in enumerate(loops) if loop in reducing), len(loops))
