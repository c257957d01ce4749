"""RandomComputeLocation: where a producer is computed is a random variable.

This is also how padding is materialised: as a whole, or for a chunk, a row or a tile of its consumer.

On a GPU the threads of a block compute what their block needs, for all chunks of its consumer or for some:

    for b in blockIdx.x:
        for t in threadIdx.x: pad (the tile of b), in shared memory if it is small
        for k0: for t in threadIdx.x: fetch a chunk of pad; ...
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import Block
from ..ir.annotations import CLAIMED, TILED
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import attempt, consumers, find_only_store, is_output, is_spatial, reduction_loops
from .stage import fuse, schedule_stage


@dataclass(frozen=True)
class RandomComputeLocation:
    """Compute a stage at a drawn loop of its consumers (or leave it where it is), vectorized in its place.
    Forks on a GPU: at a drawn loop, by the threads of its consumers; and where it is, a kernel of its own."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        users = consumers(sch, block)
        if is_output(sch, block) or not users or not is_spatial(node) or find_only_store(node) is None:
            return [sch]
        if any(writes_same(user, node) for user in users):
            return [sch]
        if not any(CLAIMED.is_on(user) or TILED.is_on(user) for user in users):
            return [sch]  # its consumers have no tiles at which to compute it
        if target.gpu is not None:
            return [*attempt(sch, place_in_kernel, block), sch]
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


def place_in_kernel(sch: Schedule, block: BlockRV) -> None:
    """Compute a stage in the kernel that all of its consumers are in, outside of the loops over threads."""
    user = consumers(sch, block)[0]
    around = sch.get_loops(sch.get_block(user.name))
    kinds = [sch.get(loop).kind for loop in around]
    if "blockIdx.x" not in kinds or "threadIdx.x" not in kinds:
        raise ScheduleError(f"block {user.name!r}, which reads it, has no threads of its own")
    threads = next(n for n, kind in enumerate(kinds) if not is_for_all_threads(kind))
    lanes = sch.get_extent(around[kinds.index("threadIdx.x")])
    place = sch.sample_compute_location(block, threads, moves=True)
    sch.compute_at(block, place)
    node: Block = sch.get(block)
    if not node.iters:
        raise ScheduleError(f"block {node.name!r} has a single element")
    _, own = sch.split(fuse(sch, sch.get_loops(block, len(node.iters))), [None, lanes])
    sch.bind(own, "threadIdx.x")
    sch.annotate(block, CLAIMED.key, "RandomComputeLocation")


def is_for_all_threads(kind: str) -> bool:
    return kind in ("serial", "unrolled", "blockIdx.x")


def loops_before_reduction(sch: Schedule, name: str) -> int:
    """How many loops there are outside the reduction loops of a block: inside them a stage would be computed
    again for every term."""
    reducing = reduction_loops(sch, name)
    loops = sch.state.loops_around(name)
    return next((n for n, loop in enumerate(loops) if loop in reducing), len(loops))
