"""MultiLevelTilingWithIntrinsic: a hardware module. The innermost tile is an intrinsic, the rest is tiled."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import Block, as_int, free_vars
from ..schedule import BlockRV, LoopRV, Schedule
from ..schedule.intrinsics import Intrinsic, get_intrinsic
from ..target import Target
from .facts import CLAIMED, is_reduction, only_store, plain_loops
from .multi_level_tiling import MultiLevelTiling

TENSORIZE = "tensorize"  # annotation: the intrinsic that the block's body is to become


@dataclass(frozen=True)
class MultiLevelTilingWithIntrinsic(MultiLevelTiling):
    """Cut a tile of the shape of `intrinsic` out of the innermost loops, and tile around it.

    The loops of the description stand for the last spatial and the last reduction loops, in order. Schedules
    without the intrinsic stay in the space.
    """

    intrinsic: str = ""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        if not is_reduction(node) or only_store(node) is None or not plain_loops(sch, block):
            return [sch]
        trial = sch.fork()
        outer = cut_tile(trial, block, get_intrinsic(self.intrinsic))
        probe = trial.fork()
        rewritten(probe, outer, self.intrinsic)  # refuses now what the intrinsic does not describe
        trial.annotate(outer, TENSORIZE, self.intrinsic)
        trial.annotate(block, CLAIMED, self.intrinsic)
        made = self.forks(trial, outer)
        return [*made, sch]


def cut_tile(sch: Schedule, block: BlockRV, intrinsic: Intrinsic) -> BlockRV:
    """Make a block of the innermost iterations that an intrinsic covers; gives the block around it."""
    node: Block = sch.get(block)
    loops = sch.get_loops(block)
    stored = {v for s in intrinsic.stores for index in s.indices for v in free_vars(index)}
    available = {
        kind: [loop for it, loop in zip(node.iters, loops) if it.kind == kind]
        for kind in ("spatial", "reduce")
    }
    taken: list[tuple[LoopRV, int]] = []
    for described in reversed(intrinsic.loops):
        kind = "spatial" if described.var in stored else "reduce"
        if not available[kind]:
            raise ScheduleError(f"{intrinsic.name} has more {kind} loops than the block")
        taken.insert(0, (available[kind].pop(), as_int(described.extent) or 1))
    inner: list[LoopRV] = []
    outside = dict(zip(loops, loops))
    for loop, size in taken:
        extent = sch.state.fixed_extent(sch.get(loop).var) or 0
        if extent % size:
            raise ScheduleError(
                f"{intrinsic.name} takes {size} iterations at a time, and the loop has {extent}",
                help="pad_einsum makes the extents multiples",
            )
        outside[loop], part = sch.split(loop, [None, size])
        inner.append(part)
    sch.reorder(*outside.values(), *inner)
    return sch.blockize(inner[0])


def rewritten(sch: Schedule, block: BlockRV, intrinsic: str) -> None:
    """The initialisation apart, the rest as the intrinsic."""
    node: Block = sch.get(block)
    if node.init:
        first = next(
            loop for it, loop in zip(node.iters, sch.get_loops(block, len(node.iters))) if it.kind == "reduce"
        )
        sch.decompose_reduction(block, first)
    sch.tensorize(block, intrinsic)


@dataclass(frozen=True)
class RewriteTensorize:
    """Put in the intrinsics that blocks are annotated with."""

    def __call__(self, sch: Schedule, target: Target) -> None:
        for name in [
            k for k, n in sch.state.nodes.items() if isinstance(n, Block) and TENSORIZE in n.annotations
        ]:
            block = sch.get_block(str(name))
            intrinsic = sch.get(block).annotations[TENSORIZE]
            sch.unannotate(block, TENSORIZE)
            sch.tensorize(block, intrinsic)
