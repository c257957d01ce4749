"""ParallelVectorizeUnroll: what becomes of the loops of blocks that no other module has finished.

The module only annotates; `RewriteLoopKinds` does it at the end, when the loops are what they will be.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import Block
from ..ir.annotations import CLAIMED, LOOP_KINDS, TILED, UNROLL
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import (
    blocks_from_outputs,
    find_only_store,
    find_vector_iterator,
    is_claimed,
    is_spatial,
)
from .stage import fuse, schedule_stage


@dataclass(frozen=True)
class ParallelVectorizeUnroll:
    """Ask for parallel outer loops, vectorized inner ones, unrolling as far as a drawn number of steps."""

    unroll_steps: tuple[int, ...] = (0, 16, 64, 256)

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        if not node.iters:
            return [sch]
        sch.annotate(block, LOOP_KINDS.key, True)
        if not is_spatial(node):
            choices = [1 / len(self.unroll_steps)] * len(self.unroll_steps)
            sch.annotate(block, UNROLL.key, sch.sample_categorical(self.unroll_steps, choices))
        return [sch]


@dataclass(frozen=True)
class RewriteLoopKinds:
    """Carry out what `ParallelVectorizeUnroll` asked for."""

    def __call__(self, sch: Schedule, target: Target) -> None:
        for name in blocks_from_outputs(sch):
            if not LOOP_KINDS.is_on(sch.state.nodes[name]) or is_claimed(sch.state.nodes[name]):
                continue
            block = sch.get_block(name)
            sch.unannotate(block, LOOP_KINDS.key)
            node: Block = sch.get(block)
            steps = (
                (set_tile_kinds,)
                if TILED.is_on(node)
                else (set_stage_kinds, vectorize_own_loop, parallelize_outer_loop)
            )
            for step in steps:
                trial = sch.fork()
                try:
                    step(trial, trial.get_block(name), target)
                except ScheduleError:
                    continue
                step(sch, block, target)
                break


def set_stage_kinds(sch: Schedule, block: BlockRV, target: Target) -> None:
    node: Block = sch.get(block)
    if find_only_store(node) is None or not is_spatial(node) or len(sch.get_loops(block)) != len(node.iters):
        raise ScheduleError("not a stage of its own")
    schedule_stage(sch, block, target)
    sch.annotate(block, CLAIMED.key, "ParallelVectorizeUnroll")


def vectorize_own_loop(sch: Schedule, block: BlockRV, target: Target) -> None:
    """The last loop of a stage that follows the tiles of another block, in vectors."""
    node: Block = sch.get(block)
    if not is_spatial(node) or find_vector_iterator(node) is None:
        raise ScheduleError("not a stage")
    (loop,) = sch.get_loops(block, 1)
    if len(sch.state.blocks_below(sch.get(loop).var)) > 1:
        raise ScheduleError("the loop is also another block's")
    _, columns = sch.split(loop, [None, 2 * target.lanes(node.writes[0].buffer.dtype)])
    sch.vectorize(columns)


def set_tile_kinds(sch: Schedule, block: BlockRV, target: Target) -> None:
    """The first level in parallel, the last loop in vectors."""
    node: Block = sch.get(block)
    loops = sch.get_loops(block)
    first = loops[: sum(it.kind == "spatial" for it in node.iters)]
    sch.vectorize(loops[-1])
    sch.parallel(fuse(sch, first))


def parallelize_outer_loop(sch: Schedule, block: BlockRV, target: Target) -> None:
    """The outermost loop that can be, in parallel."""
    for loop in sch.get_loops(block):
        extent = sch.state.fixed_extent(sch.get(loop).var)
        if extent == 1:
            continue
        sch.parallel(loop)
        return
