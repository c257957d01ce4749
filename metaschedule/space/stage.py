"""Loop kinds for a stage that reads nothing twice: copies, pads, element-wise operators."""

from __future__ import annotations

import math

from .. import ir
from ..affine.stride import stride
from ..codegen.lower.model import INTERLEAVED
from ..ir import Block
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import EXPENSIVE, extent, find_only_store, find_vector_iterator, is_spatial, loads

VECTORS = (1, 2, 4)  # hardware vectors in a vectorized loop
CHUNKS = 8  # per core: what a parallel loop should have at least
FORK = 4000  # cycles: a loop that takes less is not worth starting other threads, which takes 1 to 1.5 us
COSTLY_CYCLES = 25  # of a vector of exponentials
VECTOR_CYCLES = 2  # of a vector that is loaded and combined, in the second cache


def schedule_stage(sch: Schedule, block: BlockRV, target: Target) -> None:
    """Parallel loops outside, vectors inside. The block's own loops are one per iterator, whether it was
    moved to another place or not."""
    stage: Block = sch.get(block)
    if is_spatial(stage) and find_only_store(stage) is not None:
        outside = vectorize_stage(sch, block, target)
        if count_cycles(stage, target) >= FORK:
            parallel_outside(sch, *outside, target)


def count_cycles(stage: Block, target: Target) -> float:
    """About how long one thread takes for all vectors of a stage."""
    store = find_only_store(stage)
    assert store is not None
    calls = [e for e in ir.subexpressions(store.value) if isinstance(e, ir.Call) and e.name in EXPENSIVE]
    vectors = math.prod([extent(it) or 1 for it in stage.iters]) / target.lanes(store.buffer.dtype)
    return vectors * (VECTOR_CYCLES * (1 + len(loads(stage))) + COSTLY_CYCLES * len(calls))


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
    if across and sizes[column] in INTERLEAVED and stride(store, iters[across[-1]].var) == sizes[column]:
        row = across[-1]  # vectors of neighbours, whose lanes are stored side by side
        outer.remove(row)
        last, columns = sch.split(loops[row], [None, min(sizes[row], lanes)])
        sch.reorder(*[loops[n] for n in outer], last, inner, columns)
        sch.unroll(inner)
        size = sizes[row]
    elif across:
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


def fuse(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    """One loop of several; of one, that loop, without a step."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def parallel_outside(sch: Schedule, loops: list[LoopRV], sizes: list[int], target: Target) -> None:
    """Fuse as many outer loops as give every core enough to do, and let them run in parallel."""
    for count in range(1, len(loops) + 1):
        if math.prod(sizes[:count]) >= CHUNKS * target.cores or count == len(loops):
            if math.prod(sizes[:count]) > 1:
                sch.parallel(fuse(sch, loops[:count]))
            return


def vector_length(sch: Schedule, lanes: int, size: int) -> int | ExprRV:
    """How many elements to compute at once: some hardware vectors, no more than there are elements."""
    options = [lanes * n for n in VECTORS if lanes * n <= size]
    if len(options) < 2:
        return min(size, lanes)
    return sch.sample_categorical(options, [1 / len(options)] * len(options))
