"""Winograd: convolutions out of fewer products, along two dimensions (`winograd_tiles.py`) or along one:

    for rows of the data (in parallel): their values at the points               vectors
    for weights: their values at the points                                      vectors
    for chunks of rows and columns of the result (in parallel):
        for points, tiles of registers: products = sums over the other terms     as RegisterTiling has it
        for tiles: results = combinations of the products                        vectors

The products of a chunk stay in a near cache. Of 7 taps with stride 2, tiles of 5 results take 16 products
instead of 35.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..affine.stride import stride
from ..errors import ScheduleError
from ..ir import Block, Var
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, LoopRV, Schedule
from ..schedule.analysis.minimal_filter import MOST_POINTS
from ..schedule.primitive.winograd import POINTS
from ..target import Target
from .block_predicates import (
    attempt,
    extent,
    find_only_store,
    find_vector_iterator,
    has_plain_loops,
    has_reuse,
    loads,
    mentions,
    producers,
    volume,
)
from .register_tiling import MOST_WASTE, tile
from .stage import fuse, parallel_outside, vectorize_stage
from .winograd_tiles import (
    LEAST_COLUMNS,
    LEAST_GAIN,
    LEAST_TERMS,
    TapWindow,
    filter_tiles,
    find_result_block,
    tiles_of,
    windows,
)
from .zeros import is_padding, zero_strides

OVERHEAD = 1  # products that the other work of a tile takes as long as


@dataclass(frozen=True)
class Filter:
    along: Var
    tile: int
    gain: float  # how many times fewer multiplications


@dataclass(frozen=True)
class Winograd:
    """Forks: the last dimension in which a convolution can be filtered so, in tiles of the best size; and the
    last two. The former schedules its stages, for CPUs alone."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        columns = find_vector_iterator(node)
        if columns is None or not has_reuse(node) or not has_plain_loops(sch, block) or is_sparse(sch, node):
            return [sch]
        made: list[Schedule] = []
        for chosen in filters(node, columns, target)[:1] if target.gpu is None else ():
            for columns_first in (False, True):
                made += attempt(sch, schedule_filter, block, chosen, columns_first, target)
        for tiles in tiles_of(node, target):
            made += attempt(sch, filter_tiles, block, tiles)
        return [*made, sch]


def is_sparse(sch: Schedule, node: Block) -> bool:
    """Whether there are zeros between the data, of which SkipZeros gains more."""
    read = {load.buffer: load for load in loads(node)}
    padding = [b for b in producers(sch, node) if is_padding(b)]
    return any(zero_strides(node, b, read[b.writes[0].buffer]) for b in padding)


def filters(node: Block, columns: Var, target: Target) -> list[Filter]:
    """The spatial iterators that a reduction iterator moves with, the last first."""
    width = {it.var: extent(it) or 1 for it in node.iters}
    if width[columns] < LEAST_COLUMNS * target.lanes(node.writes[0].buffer.dtype):
        return []
    found: list[Filter] = []
    for window in [w for load in loads(node) if not mentions(load, columns) for w in windows(node, load)]:
        terms = (volume(node, "reduce") or 1) // window.taps
        if terms >= LEAST_TERMS and window.phases:
            found += [f for f in [best(window)] if f]
    return [f for f in found[::-1] if f.gain >= LEAST_GAIN]


def best(window: TapWindow) -> Filter | None:
    """Tiles of the size with the fewest products."""
    each = -(-window.taps // max(1, window.phases))

    def work(size: int) -> int:
        return (size + each - 1 + OVERHEAD) * window.phases * -(-window.results // size)

    sizes = range(2, MOST_POINTS + 2 - each)
    if not sizes or each < 2:
        return None
    size = min(sizes, key=work)
    return Filter(window.along, size, window.results * window.taps / (work(size) or 1))


def schedule_filter(
    sch: Schedule, block: BlockRV, chosen: Filter, columns_first: bool, target: Target
) -> None:
    node: Block = sch.get(block)
    loop = sch.get_loops(block)[[it.var is chosen.along for it in node.iters].index(True)]
    data, weights, products = sch.winograd(block, loop, chosen.tile)
    for stage in (data, weights):
        transform(sch, stage, target)
    result, along = find_result_block(sch, block, chosen.along)
    chunks = cut(sch, result, along, chosen.tile, target)
    sch.compute_at(products, chunks[-1])
    sch.parallel(fuse(sch, chunks))
    made: Block = sch.get(products)
    points = next(it.var for it in made.iters if it.var.name == POINTS)
    tile(sch, products, contiguous(made), "no", columns_first, target, points)


def contiguous(node: Block) -> Var:
    """The iterator that results are contiguous along."""
    found = find_vector_iterator(node)
    if found is None:
        raise ScheduleError(f"results of block {node.name!r} are not contiguous along any iterator")
    return found


def transform(sch: Schedule, block: BlockRV, target: Target) -> None:
    """Points unrolled around vectors. What is padded for a line is padded just before."""
    node: Block = sch.get(block)
    columns = contiguous(node)
    lanes = target.lanes(node.writes[0].buffer.dtype)
    sizes = {it.var: extent(it) or 1 for it in node.iters}
    loops = dict(zip(sizes, sch.get_loops(block)))
    points = next(v for v in loops if v.name == POINTS)
    outer = [v for v in loops if v is not columns and v is not points]
    inner, width = loops[columns], sizes[columns]
    sch.reorder(*[loops[v] for v in outer], inner)
    while width < lanes and outer and is_contiguous_step(node, outer[-1], sizes[outer[-1]], width):
        width *= sizes[outer[-1]]
        inner = sch.fuse(loops[outer.pop()], inner)
    vectors, inner = sch.split(inner, [None, min(lanes, width)])
    sch.reorder(*[loops[v] for v in outer], vectors, loops[points], inner)
    sch.unroll(loops[points])
    sch.vectorize(inner)
    sch.annotate(block, CLAIMED.key, "Winograd")
    lines = outer[:-1] or outer
    parallel_outside(sch, [loops[v] for v in lines], [sizes[v] for v in lines], target)
    around = sch.get_loops(block)[:-3]
    for stage in [b for b in producers(sch, node) if is_padding(b) and around]:
        padding = sch.get_block(stage.name)
        sch.compute_at(padding, around[-2:][0])
        vectorize_stage(sch, padding, target)
        sch.annotate(padding, CLAIMED.key, "Winograd")


def is_contiguous_step(node: Block, var: Var, size: int, width: int) -> bool:
    """Whether what a block reads and writes for the next value of an iterator is `width` elements further."""
    store = find_only_store(node)
    assert store is not None
    return size == 1 or all(stride(x, var) == width for x in (store, *loads(node)))


def cut(sch: Schedule, block: BlockRV, along: Var, size: int, target: Target) -> list[LoopRV]:
    """Cut the results into chunks, of which each has whole lines along the filter; in one, a tile of results
    is unrolled around a vector of columns. Gives the loops over chunks."""
    node: Block = sch.get(block)
    columns = find_vector_iterator(node)
    lanes = target.lanes(node.writes[0].buffer.dtype)
    chunks: list[LoopRV] = []
    lines: list[LoopRV] = []
    tiles: list[LoopRV] = []
    vectors: list[LoopRV] = []
    for it, loop in zip(node.iters, sch.get_loops(block)):
        if it.var is along:
            tiles = sch.split(loop, [None, size])
        elif it.var is columns:
            chunk, rest = sch.split(loop, sch.sample_tile(loop, 2, innermost_multiple=2 * lanes))
            chunks.append(chunk)
            vectors += sch.split(rest, [None, lanes])
        elif extent(it) == 1:
            chunks.append(loop)
        else:
            chunk, line = sch.split(loop, sch.sample_tile(loop, 2, max_waste=MOST_WASTE))
            chunks.append(chunk)
            lines.append(line)
    if not vectors:
        raise ScheduleError(f"results of block {node.name!r} are not contiguous across the filter")
    sch.reorder(*chunks, *lines, tiles[0], vectors[0], tiles[1], vectors[1])
    sch.unroll(tiles[1])
    sch.vectorize(vectors[1])
    sch.annotate(block, CLAIMED.key, "Winograd")
    return chunks
