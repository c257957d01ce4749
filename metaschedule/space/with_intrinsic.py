"""MultiLevelTilingWithIntrinsic: a hardware module. The innermost tile is an intrinsic, the rest is tiled."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import Block, as_int, free_vars
from ..ir.annotations import CLAIMED, TENSORIZE
from ..schedule import BlockRV, LoopRV, Schedule
from ..schedule.intrinsics import get_intrinsic
from ..target import Target
from .block_predicates import find_only_store, has_plain_loops, is_reduction
from .multi_level_tiling import MultiLevelTiling
from .stage import fuse


@dataclass(frozen=True)
class MultiLevelTilingWithIntrinsic(MultiLevelTiling):
    """Cut a tile of the shape of `intrinsic` out of the innermost loops, and tile around it.

    The loops of the description stand for the last spatial and the last reduction loops, in order. Schedules
    without the intrinsic stay in the space.
    """

    intrinsic: str = ""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        if not is_reduction(node) or find_only_store(node) is None or not has_plain_loops(sch, block):
            return [sch]
        trial = sch.fork()
        self.tile(trial, block, None, None)  # refuses now, with its reason, what is refused in all forks
        RewriteTensorize()(trial, target)
        return [*self.forks(sch, block), sch]

    def cut(self, sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
        node: Block = sch.get(block)
        intrinsic = get_intrinsic(self.intrinsic)
        loops = sch.get_loops(block)
        stored = {v for s in intrinsic.stores for index in s.indices for v in free_vars(index)}
        free = {"spatial": [], "reduce": []}
        for n, it in enumerate(node.iters):
            free[it.kind].append(n)
        inner: list[LoopRV] = []
        for described in reversed(intrinsic.loops):
            kind, size = "spatial" if described.var in stored else "reduce", as_int(described.extent) or 1
            if not free[kind]:
                raise ScheduleError(f"{intrinsic.name} has more {kind} loops than the block")
            at = free[kind].pop()
            extent = sch.state.fixed_extent(sch.get(loops[at]).var) or 0
            if extent % size:
                raise ScheduleError(
                    f"{intrinsic.name} takes {size} iterations at a time, and the loop has {extent}",
                    help="pad_einsum makes the extents multiples",
                )
            loops[at], part = sch.split(loops[at], [None, size])
            inner.insert(0, part)
        return loops, inner

    def finish(
        self, sch: Schedule, block: BlockRV, levels: list[list[LoopRV]], innermost: list[LoopRV]
    ) -> None:
        tile = sch.blockize(innermost[0])
        sch.annotate(tile, TENSORIZE.key, self.intrinsic)
        sch.annotate(block, CLAIMED.key, self.intrinsic)
        sch.parallel(fuse(sch, levels[0]))
        reducing = next(n for n, kind in enumerate(self.structure) if kind == "R")
        sch.annotate(sch.decompose_reduction(tile, levels[reducing][0]), CLAIMED.key, self.intrinsic)


@dataclass(frozen=True)
class RewriteTensorize:
    """Put in the intrinsics that blocks are annotated with."""

    def __call__(self, sch: Schedule, target: Target) -> None:
        nodes = [n for n in sch.state.nodes.values() if isinstance(n, Block) and TENSORIZE.is_on(n)]
        for node in nodes:
            block = sch.get_block(node.name)
            sch.unannotate(block, TENSORIZE.key)
            sch.tensorize(block, node.annotations[TENSORIZE.key])
