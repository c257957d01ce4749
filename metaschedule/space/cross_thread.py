"""CrossThreadReduction: the threads of a block reduce together, a row or a result at a time.

    for row in blockIdx.x:
        max of the row:     for t in threadIdx.x: the terms t, t + 128, ...; then a tree over t
        exp of the row:     for t in threadIdx.x: the elements t, t + 128, ...
        sum of the row, quotients of the row

What one stage of a chain (softmax, layer norm) leaves for the next stays in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, ExprRV, Schedule
from ..target import Gpu, Target
from .auto_bind import draw_threads
from .block_predicates import attempt, has_plain_loops, has_reuse, is_reduction, volume
from .rfactor import rows_and_terms
from .row_fusion import chain_of, gather_moved_rows
from .stage import fuse


@dataclass(frozen=True)
class CrossThreadReduction:
    """Forks: a chain of stages that share rows, a block of threads for each row; else a reduction, a block of
    threads for each result; and as it was. Reductions that read elements again are left to be tiled, unless
    they have fewer results than the device has threads to run."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        if target.gpu is None:
            return [sch]
        node: ir.Block = sch.get(block)
        chain, rows = chain_of(sch, node)
        if len(chain) > 1 and any(map(is_reduction, chain)):
            if chain[-1] is not node:
                return [sch]
            made = attempt(sch, reduce_rows, chain, rows, target.gpu)
            return [*made, sch]
        if is_reduction(node) and has_plain_loops(sch, block) and is_starved(node, target.gpu):
            return [*attempt(sch, reduce_result, block, target.gpu), sch]
        return [sch]


def is_starved(block: ir.Block, gpu: Gpu) -> bool:
    """Whether a reduction gains by dividing its terms: nothing is read again, or there are few results."""
    results, terms = volume(block, "spatial"), volume(block, "reduce")
    if results is None or terms is None or terms < 2:
        return False
    return not has_reuse(block) or (terms >= gpu.warp and results < gpu.multiprocessors * gpu.warp)


def reduce_rows(sch: Schedule, chain: list[ir.Block], rows: int, gpu: Gpu) -> None:
    """A chain of stages in one loop over rows."""
    row, moved = gather_moved_rows(sch, chain, rows)
    sch.bind(row, "blockIdx.x")
    threads = draw_threads(sch, gpu)
    for block in moved:
        divide(sch, block, len(sch.get(block).iters) - rows, threads)


def reduce_result(sch: Schedule, block: BlockRV, gpu: Gpu) -> None:
    """A reduction on its own."""
    rows, terms = rows_and_terms(sch, block)
    count = len(terms)
    sch.bind(fuse(sch, rows) if rows else sch.add_unit_loop(terms[0]), "blockIdx.x")
    divide(sch, block, count, draw_threads(sch, gpu))


def divide(sch: Schedule, block: BlockRV, count: int, threads: ExprRV) -> None:
    """The innermost `count` loops of a block over threads; one thread if there are none."""
    if count:
        _, own = sch.split(fuse(sch, sch.get_loops(block, count)), [None, threads])
        sch.bind(own, "threadIdx.x")
    sch.annotate(block, CLAIMED.key, "CrossThreadReduction")
