"""AddRFactor: reductions computed in parts, for cores (chunks of terms) and for vectors (lanes).

    for chunk in parallel(...):
        for step, lane (vectorized): part[chunk, lane] += x[chunk, step, lane]
    for chunk, lane (vectorized): lanes[lane] += part[chunk, lane]
    for lane (vectorized): result += lanes[lane]

The vector of accumulators stays in registers across the steps; its hardware vectors are chains of operations
that do not wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..affine.stride import stride
from ..ir import Block
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import (
    attempt,
    extent,
    find_vector_iterator,
    has_plain_loops,
    has_reuse,
    is_reduction,
    loads,
    mentions,
    volume,
)
from .stage import fuse, parallel_outside, vector_length


@dataclass(frozen=True)
class AddRFactor:
    """Forks of a reduction: as it is, in chunks, in lanes, in chunks of lanes.

    For reductions that read an operand once, and for those whose results are fewer than their terms and than
    `max_jobs_per_core` for each core; chunks of lanes only for the latter. Where operands are contiguous
    along the results, these are the lanes; only chunks are parts then, and what has reuse is left to tile.
    """

    max_jobs_per_core: int = 16
    max_innermost_factor: int = 64

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        if not is_reduction(node) or not has_plain_loops(sch, block):
            return [sch]
        results, terms = volume(node, "spatial") or 1, volume(node, "reduce") or 1
        starved = results < terms and results <= target.cores * self.max_jobs_per_core
        made = [sch]
        if should_vectorize_terms(node, target):
            if starved or reads_once(node):
                most = self.max_innermost_factor
                made += attempt(sch, lambda s: sum_in_chunks(s, block, target))
                made += attempt(sch, lambda s: sum_in_lanes(s, block, most, target))
                if starved:
                    made += attempt(sch, lambda s: sum_in_chunks_of_lanes(s, block, most, target))
            return made
        if not has_reuse(node):
            made += attempt(sch, lambda s: vectorize_results(s, block, target))
        if starved:
            made += attempt(sch, lambda s: sum_in_chunks(s, block, target))
        return made


# --- what a reduction reads ---


def should_vectorize_terms(block: Block, target: Target) -> bool:
    """Whether vectors should be of terms: there are enough, and operands are not contiguous along results."""
    lanes = target.lanes(block.writes[0].buffer.dtype)
    return not is_contiguous_along_results(block) and adjacent_terms(block)[1] >= lanes


def is_contiguous_along_results(block: Block) -> bool:
    """Whether an operand of the terms is contiguous where the results are."""
    along = find_vector_iterator(block)
    terms = [it.var for it in block.iters if it.kind == "reduce"]
    operands = [load for load in loads(block) if any(mentions(load, var) for var in terms)]
    return along is not None and any(stride(load, along) == 1 for load in operands)


def adjacent_terms(block: Block) -> tuple[int, int]:
    """How many of the last reduction iterators run through memory like one, and how many terms they have."""
    *others, last = [it for it in block.iters if it.kind == "reduce"]
    count, size = 1, extent(last) or 1
    for it in reversed(others):
        if any(stride(load, it.var) != size * (stride(load, last.var) or 0) for load in loads(block)):
            break
        count, size = count + 1, size * (extent(it) or 1)
    return count, size


def reads_once(block: Block) -> bool:
    """Whether an operand depends on all iterators: tiling does not keep its elements for another use."""
    iters = [it for it in block.iters if extent(it) != 1]
    return any(all(mentions(load, it.var) for it in iters) for load in loads(block))


# --- the forks ---


def sum_in_chunks(sch: Schedule, block: BlockRV, target: Target) -> None:
    """Partial results of chunks of terms, in parallel unless they are left to be tiled."""
    node: Block = sch.get(block)
    rows, terms = rows_and_terms(sch, block)
    fused = fuse(sch, terms)
    chunk, steps = sch.split(fused, sch.sample_tile(fused, 2))
    part = sch.rfactor(chunk)
    vectorize_results(sch, block, target)
    if has_reuse(node):
        return
    if should_vectorize_terms(node, target):
        sch.decompose_reduction(part, steps)
        outside = [*rows, chunk]
    else:
        outside, _ = accumulate(sch, part, target)
        outside = outside[:-1] if rows else outside  # a scalar's vectors are of chunks
    sch.parallel(fuse(sch, outside))
    sch.annotate(part, CLAIMED.key, "AddRFactor")


def sum_in_lanes(sch: Schedule, block: BlockRV, most: int, target: Target) -> None:
    """A vector of accumulators for each result, results in parallel."""
    rows, terms = rows_and_terms(sch, block)
    row = fuse(sch, rows) if rows else None
    part = lanes_of_terms(sch, block, len(terms), row, most, target)
    if row:
        sch.parallel(row)
    for done in (part, block):
        sch.annotate(done, CLAIMED.key, "AddRFactor")


def sum_in_chunks_of_lanes(sch: Schedule, block: BlockRV, most: int, target: Target) -> None:
    """A vector of accumulators for each chunk of terms, chunks in parallel."""
    lanes = target.lanes(sch.get(block).writes[0].buffer.dtype)
    rows, terms = rows_and_terms(sch, block)
    adjacent, _ = adjacent_terms(sch.get(block))
    inner = fuse(sch, terms[-adjacent:])
    if outer := terms[:-adjacent]:
        whole = fuse(sch, outer)
        chunk, first = sch.split(whole, sch.sample_tile(whole, 2))
        _, lane = sch.split(inner, sch.sample_tile(inner, 2, most, lanes))
    else:
        chunk, first, lane = sch.split(inner, sch.sample_tile(inner, 3, most, lanes))
    chunks = sch.rfactor(lane, -1)
    part = sch.rfactor(chunk)
    sch.vectorize(lane)
    sch.decompose_reduction(part, first)
    sch.parallel(fuse(sch, [*rows, chunk]))
    chunk, lane = sch.get_loops(chunks, 2)
    sch.vectorize(lane)
    sch.decompose_reduction(chunks, chunk)
    sum_lanes(sch, block)
    for done in (part, chunks, block):
        sch.annotate(done, CLAIMED.key, "AddRFactor")


def vectorize_results(sch: Schedule, block: BlockRV, target: Target) -> None:
    """A vector of results at a time, in parallel where they are many."""
    parallel_outside(sch, *accumulate(sch, block, target), target)
    sch.annotate(block, CLAIMED.key, "AddRFactor")


# --- their steps ---


def rows_and_terms(sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops of the spatial iterators, put outside those of the reduction, and the latter."""
    pairs = list(zip(sch.get(block).iters, sch.get_loops(block), strict=True))
    rows = [loop for it, loop in pairs if it.kind == "spatial"]
    terms = [loop for it, loop in pairs if it.kind == "reduce"]
    sch.reorder(*rows, *terms)
    return rows, terms


def lanes_of_terms(
    sch: Schedule, block: BlockRV, count: int, row: LoopRV | None, most: int, target: Target
) -> BlockRV:
    """Reduce into a vector of accumulators over the innermost `count` loops, then reduce the vector, both in
    the loop `row`; gives the block of the accumulators."""
    node: Block = sch.get(block)
    terms = sch.get_loops(block, count)
    adjacent, _ = adjacent_terms(node)
    inner = fuse(sch, terms[-adjacent:])
    lanes = target.lanes(node.writes[0].buffer.dtype)
    steps, lane = sch.split(inner, sch.sample_tile(inner, 2, most, lanes))
    part = sch.rfactor(lane, -1)
    if row is not None:
        sch.reverse_compute_at(block, row)
    sch.vectorize(lane)
    sch.decompose_reduction(part, [*terms[:-adjacent], steps][0])
    sum_lanes(sch, block)
    return part


def sum_lanes(sch: Schedule, block: BlockRV) -> None:
    """Reduce a vector of accumulators at once."""
    (lane,) = sch.get_loops(block, 1)
    sch.vectorize(lane)
    sch.decompose_reduction(block, lane)


def accumulate(sch: Schedule, block: BlockRV, target: Target) -> tuple[list[LoopRV], list[int]]:
    """Reduce into a vector of results; gives the loops outside, and their sizes."""
    node: Block = sch.get(block)
    along = find_vector_iterator(node)
    lanes = target.lanes(node.writes[0].buffer.dtype)
    rows, terms = rows_and_terms(sch, block)
    spatial = [it for it in node.iters if it.kind == "spatial"]
    sizes = [extent(it) or 1 for it in spatial]
    column = next((n for n, it in enumerate(spatial) if it.var is along), None)
    if column is not None:
        size, loop = sizes.pop(column), rows.pop(column)
        panels, columns = sch.split(loop, [None, vector_length(sch, lanes, size)])
        rows, sizes = [*rows, panels], [*sizes, -(-size // lanes)]
        sch.reorder(*rows, *terms, columns)
        sch.vectorize(columns)
    sch.decompose_reduction(block, terms[0])
    return rows, sizes
