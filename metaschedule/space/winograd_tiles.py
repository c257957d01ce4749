"""Winograd's filtering along two dimensions: tiles of m x m results out of matrix products.

    for tiles (in parallel): their values at the points           UnrollTransforms, with padding before it
    for weights: their values at the points                       the same; constants: when a kernel is built
    for points: products = matrix product over the channels       RegisterTiling, MultiLevelTiling
    for tiles (in parallel): results = combinations of products   UnrollTransforms, with what follows

A tile of 4 x 4 results of a 3 x 3 convolution takes 36 products instead of 144. Transforms are along
channels, so these are brought into the last place if they are not there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..affine.form import form_of
from ..errors import ScheduleError
from ..ir import Block, Load, Var
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import extent, find_epilogue, find_only_store, is_output, is_spatial, loads, mentions

LEAST_COLUMNS = 2  # vectors of results that share a transformed element, for the transform to pay
LEAST_TERMS = 16  # of a sum besides the taps
LEAST_GAIN = 1.5  # times fewer multiplications
POINTS = (4, 6)  # of a dimension: 0, infinity and pairs +-p, whose sums are shared; more round too much
READING = 8  # multiplications that take as long as reading a weight; measured


@dataclass(frozen=True)
class TapWindow:
    """A spatial iterator that a reduction iterator moves with: stride * along + dilation * tap."""

    along: Var
    results: int
    tap: Var
    taps: int
    phases: int  # the stride in dilations; 0 if that is no whole number


@dataclass(frozen=True)
class Tiles:
    """Of a convolution: its data, the iterators over channels that go in and come out, and how to filter."""

    data: Load
    terms: list[Var]
    columns: list[Var]
    windows: list[TapWindow]
    sizes: list[int]


def windows(node: Block, load: Load) -> list[TapWindow]:
    """The windows in which a factor is read, one for each dimension that has one."""
    sizes = {it.var: extent(it) or 1 for it in node.iters}
    found: list[TapWindow] = []
    for index in load.indices:
        moved = {v: factor for v, factor in form_of(index).terms if isinstance(v, Var)}
        spatial = [it.var for it in node.iters if it.kind == "spatial" and it.var in moved]
        taps = [it.var for it in node.iters if it.kind == "reduce" and it.var in moved]
        if len(spatial) == len(taps) == 1 and min(moved.values()) >= 1:
            phases, rest = divmod(moved[spatial[0]], moved[taps[0]])
            one = TapWindow(spatial[0], sizes[spatial[0]], taps[0], sizes[taps[0]], 0 if rest else phases)
            found.append(one)
    return found


def tiles_of(node: Block, target: Target) -> list[Tiles]:
    """How to filter the last two dimensions of a convolution, if that can pay."""
    sizes = {it.var: extent(it) or 1 for it in node.iters}
    lanes = target.lanes(node.writes[0].buffer.dtype)
    for data in loads(node):
        found = [w for w in windows(node, data) if w.phases == 1][-2:]
        inside = {v for w in found for v in (w.along, w.tap)}
        terms = [it.var for it in node.iters if it.kind == "reduce" and it.var not in inside]
        columns = [it.var for it in node.iters if it.kind == "spatial" and not mentions(data, it.var)]
        if (
            len(found) == 2
            and math.prod(sizes[v] for v in terms) >= LEAST_TERMS
            and math.prod(sizes[v] for v in columns) >= LEAST_COLUMNS * lanes
        ):
            rows = [it.var for it in node.iters if it.kind == "spatial" and mentions(data, it.var)]
            others = math.prod(sizes[v] for v in rows if v not in inside)
            size = best_sizes(found, others)
            return [Tiles(data, terms, columns, found, size)] if size else []
    return []


def best_sizes(found: list[TapWindow], others: int) -> list[int]:
    """Sizes of tiles with the least to do for a transformed weight: it is multiplied once for each tile, and
    read. `others`: images of tiles. Empty if too few multiplications would be saved.

    >>> x = TapWindow(Var("h"), 14, Var("r"), 3, 1)
    >>> best_sizes([x, x], 1)  # 36 * (16 tiles + 8) against 16 * (49 + 8)
    [4, 4]
    """

    def tiles(size: tuple[int, ...]) -> int:
        return others * math.prod(-(-w.results // m) for w, m in zip(found, size, strict=True))

    def points(size: tuple[int, ...]) -> int:
        return math.prod(m + w.taps - 1 for w, m in zip(found, size, strict=True))

    options = [tuple([p + 1 - w.taps for w in found]) for p in POINTS if all(p > w.taps > 1 for w in found)]
    size = min(options, key=lambda size: points(size) * (tiles(size) + READING), default=())
    direct = others * math.prod(w.results * w.taps for w in found)
    return list(size) if size and direct >= LEAST_GAIN * points(size) * tiles(size) else []


def filter_tiles(sch: Schedule, block: BlockRV, chosen: Tiles) -> None:
    """The stages of the rewriting, in the layouts that they are computed best in; other modules do that."""
    moved = channels_last(sch, block, chosen)
    node: Block = sch.get(block)
    loops = sch.get_loops(block)
    place = {it.var: n for n, it in enumerate(node.iters)}
    along = moved or [place[w.along] for w in chosen.windows]
    products = sch.winograd(block, [loops[n] for n in along], chosen.sizes)[2]
    sch.matrix_product(products)
    if not moved:
        find_result_block(sch, block, chosen.windows[-1].along)


def channels_last(sch: Schedule, block: BlockRV, chosen: Tiles) -> list[int]:
    """Store data and results with their channels last, if they are not; gives the places of the filtered
    iterators then, nothing if everything is as it was."""
    node: Block = sch.get(block)
    store = find_only_store(node)
    assert store is not None
    into = channels_behind(chosen.data.indices, chosen.terms)
    out = channels_behind(store.indices, chosen.columns)
    if into == sorted(into) and out == sorted(out):
        return []
    at = [region.buffer is chosen.data.buffer for region in node.reads].index(True)
    if into != sorted(into):
        stage = producer(sch, chosen.data) or sch.cache_read(block, at, "global")
        sch.transform_layout(stage, 0, "write", texts(into))
        sch.transform_block_layout(stage, texts(into))
    if is_output(sch, block):
        sch.cache_write(block, 0, "global")
    sch.transform_layout(block, 0, "write", texts(out))
    place = {it.var: n for n, it in enumerate(node.iters)}
    behind = [place[v] for v in chosen.columns]
    spatial = [n for n, it in enumerate(node.iters) if it.kind == "spatial" and n not in behind]
    order = [*spatial, *behind, *[n for n, it in enumerate(node.iters) if it.kind == "reduce"]]
    sch.transform_block_layout(block, texts(order))
    return [order.index(place[w.along]) for w in chosen.windows]


def channels_behind(indices: tuple[object, ...], channels: list[Var]) -> list[int]:
    """The order of dimensions in which those of channels are the last."""
    return sorted(range(len(indices)), key=lambda n: any(indices[n] is v for v in channels))


def texts(order: list[int]) -> tuple[str, ...]:
    return tuple([f"i{n}" for n in order])


def producer(sch: Schedule, load: Load) -> BlockRV | None:
    """The stage that computes what is loaded element by element, in the order of its own iterators."""
    blocks = [b for b in sch.state.nodes.values() if isinstance(b, Block)]
    for b in blocks:
        store = find_only_store(b)
        if store is not None and store.buffer is load.buffer:
            plain = is_spatial(b) and all(it.var is i for it, i in zip(b.iters, store.indices))
            return sch.get_block(b.name) if plain else None
    return None


def find_result_block(sch: Schedule, block: BlockRV, along: Var) -> tuple[BlockRV, Var]:
    """The block that stores results, and its iterator along the filter: an epilogue takes the results in."""
    after = find_epilogue(sch, block)
    store = find_only_store(sch.get(block))
    assert store is not None
    if after is None:
        return block, along
    result = sch.get_block(after)
    dimension = [index is along for index in store.indices].index(True)
    places = {load.indices[dimension] for load in loads(sch.get(result)) if load.buffer is store.buffer}
    at = places.pop()
    if places or not isinstance(at, Var):
        raise ScheduleError(f"block {after!r} does not read its input line by line")
    sch.compute_inline(block)
    return result, at
