"""Loop kinds for a stage that reads nothing twice: copies, pads, element-wise operators."""

from __future__ import annotations

import math

from ..affine.stride import stride
from ..ir import Block
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import extent, find_only_store, find_vector_iterator, is_spatial, loads

VECTORS = (1, 2, 4)  # hardware vectors in a vectorized loop
CHUNKS = 8  # per core: what a parallel loop should have at least


def schedule_stage(sch: Schedule, block: BlockRV, target: Target) -> None:
    """Parallel loops outside, vectors inside. The block's own loops are one per iterator, whether it was
    moved to another place or not."""
    stage: Block = sch.get(block)
    if is_spatial(stage) and find_only_store(stage) is not None:
        parallel_outside(sch, *vectorize_stage(sch, block, target), target)


def vectorize_stage(
    sch: Schedule, block: BlockRV, target: Target, leading: int = 0
) -> tuple[list[LoopRV], list[int]]:
    """Vectors inside, for the loops of all iterators but some `leading` ones; gives the loops outside of the
    vectors, and their sizes.

    Iterators whose results lie side by side become one loop if the last is short. A load that is contiguous
    along another iterator than the store is transposed in registers: that loop is split by the width of a
    vector too, and unrolled.
    """
    stage: Block = sch.get(block)
    store, along = find_only_store(stage), find_vector_iterator(stage)
    assert store is not None
    iters = stage.iters[leading:]
    loops = sch.get_loops(block, len(iters))
    sizes = [extent(it) or 1 for it in iters]
    lanes = target.lanes(store.buffer.dtype)
    column = next((n for n, it in enumerate(iters) if it.var is along), None)
    if along is None or column is None:
        return loops, sizes
    across = [
        n
        for n, it in enumerate(iters)
        if n != column and sizes[n] > 1
        and any(stride(load, it.var) == 1 and stride(load, along) not in (0, 1) for load in loads(stage))
    ]  # fmt: skip
    outer = [n for n in range(len(loops)) if n != column]
    inner = loops[column]
    if across:
        row = across[-1]
        outer.remove(row)
        whole, rows = sch.split(loops[row], [None, lanes])
        panels, columns = sch.split(inner, [None, lanes])
        sch.reorder(*[loops[n] for n in outer], whole, panels, rows, columns)
        sch.unroll(rows)
        last, size = whole, sizes[row]
    else:
        if outer:
            sch.reorder(*[loops[n] for n in outer], inner)
        size = sizes[column]
        while outer and size < lanes and stride(store, iters[outer[-1]].var) == size:
            size *= sizes[outer[-1]]
            inner = sch.fuse(loops[outer.pop()], inner)
        last, columns = sch.split(inner, [None, vector_length(sch, lanes, size)])
    sch.vectorize(columns)
    return [*[loops[n] for n in outer], last], [*[sizes[n] for n in outer], -(-size // lanes)]


def parallel_outside(sch: Schedule, loops: list[LoopRV], sizes: list[int], target: Target) -> None:
    """Fuse as many outer loops as give every core enough to do, and let them run in parallel."""
    for count in range(1, len(loops) + 1):
        if math.prod(sizes[:count]) >= CHUNKS * target.cores or count == len(loops):
            if math.prod(sizes[:count]) > 1:
                sch.parallel(sch.fuse(*loops[:count]) if count > 1 else loops[0])
            return


def vector_length(sch: Schedule, lanes: int, size: int) -> int | ExprRV:
    """How many elements to compute at once: some hardware vectors, no more than there are elements."""
    options = [lanes * n for n in VECTORS if lanes * n <= size]
    if len(options) < 2:
        return min(size, lanes)
    return sch.sample_categorical(options, [1 / len(options)] * len(options))
