"""UnrollTransforms: small linear transforms of tiles (Winograd's), in registers.

A transform comes as two stages, rows and then columns, whose elements are chosen by their position in the
tile: `select(v == 0, a + b, select(v == 1, a - b, ...))`. With the positions unrolled the choices are made
when code is generated, both stages and the padding before them share their loads, and nothing but tiles
in registers lies between input and output.

    for tiles (in parallel), for channels:
        [window = 0; where it is inside: window = padded input]    vectors
        for j, i (unrolled): rows[j, i] = chosen by i
        for i, j (unrolled): columns[i, j] = chosen by j

On a GPU each thread transforms a tile of one channel, in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..ir.annotations import CLAIMED, ONE_TAIL, SKIP_ZEROS
from ..schedule import BlockRV, LoopRV, Schedule
from ..target import Target
from .auto_bind import draw_threads
from .block_predicates import (
    attempt,
    consumers,
    extent,
    find_only_store,
    find_vector_iterator,
    has_plain_loops,
    is_claimed,
    is_spatial,
    loads,
    producers,
)
from .inline import transposes
from .stage import fuse, parallel_outside
from .zeros import is_padding

Position = tuple[ir.Var, int]  # an iterator, or its remainder by a size (0: the iterator itself)


@dataclass(frozen=True)
class UnrollTransforms:
    """Schedules the second stage of a transform, the first within it, and padding that the first reads."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        first = first_half(sch, node)
        if first is None or find_vector_iterator(node) is None or not has_plain_loops(sch, block):
            return [sch]
        return attempt(sch, unroll, block, first, target) or [sch]


def first_half(sch: Schedule, node: ir.Block) -> ir.Block | None:
    """The stage whose chosen elements a stage chooses from, and nothing else reads."""
    if not chooses(node):
        return None
    for other in producers(sch, node):
        if chooses(other) and not is_claimed(other) and consumers(sch, sch.get_block(other.name)) == [node]:
            return other
    return None


def chooses(node: ir.Block) -> bool:
    return is_stage(node) and bool(choices(node))


def is_stage(node: ir.Block) -> bool:
    return is_spatial(node) and find_only_store(node) is not None


def choices(node: ir.Block) -> dict[ir.Var, int]:
    """The iterators by which elements are chosen: in conditions `v == 2` (0) or `v % 4 == 2` (4)."""
    conditions = [e.cond for e in ir.expressions(node.body) if isinstance(e, ir.Select)]
    tests = [
        c.a for c in conditions if isinstance(c, ir.Binary) and c.op == "==" and ir.as_int(c.b) is not None
    ]
    return dict(filter(None, map(position, tests)))


def position(e: ir.Expr) -> Position | None:
    if isinstance(e, ir.Var):
        return e, 0
    if isinstance(e, ir.Binary) and e.op == "%" and isinstance(e.a, ir.Var) and (size := ir.as_int(e.b)):
        return e.a, size
    return None


def unroll(sch: Schedule, block: BlockRV, first: ir.Block, target: Target) -> None:
    node: ir.Block = sch.get(block)
    along = find_vector_iterator(node)
    assert along is not None
    tile = choices(node) | positions_read(node, first)
    if target.gpu is None:
        tile |= {along: target.lanes(node.writes[0].buffer.dtype)}
    outside: dict[LoopRV, int] = {}  # with extents
    inside: dict[ir.Var, LoopRV] = {}
    for it, loop in zip(node.iters, sch.get_loops(block)):
        size = extent(it) or 1
        if it.var not in tile:
            outside[loop] = size
        elif tile[it.var] == 0:
            inside[it.var] = loop
        else:
            whole, inside[it.var] = sch.split(loop, [None, tile[it.var]])
            outside[whole] = -(-size // tile[it.var])
    own = sorted(inside, key=lambda v: v is along)
    sch.reorder(*outside, *[inside[v] for v in own])
    if target.gpu is None:
        parallel_outside(sch, list(outside), list(outside.values()), target)
    else:
        blocks, threads = sch.split(fuse(sch, list(outside)), [None, draw_threads(sch, target.gpu)])
        sch.bind(blocks, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")
    around = sch.get_loops(block)[: -len(inside)]
    if target.gpu is None:
        sch.annotate(around[0], ONE_TAIL.key, 1)
    finish(sch, block, [inside[v] for v in own], target)
    windows = [b.name for b in producers(sch, first) if is_stage(b) and not transposes(b)]
    for stage in map(sch.get_block, (first.name, *windows)):
        sch.compute_at(stage, around[-1])
        sch.set_scope(stage, 0, "local")
        if is_padding(sch.get(stage)) and target.gpu is None:
            sch.annotate(stage, SKIP_ZEROS.key, 1)
        finish(sch, stage, sch.get_loops(stage)[len(around) :], target)


def positions_read(node: ir.Block, first: ir.Block) -> dict[ir.Var, int]:
    """The iterators by which a block reads the positions that its producer has chosen, with their sizes: of a
    producer that chooses by `h % 4`, tiles of 4 are read."""
    store, chosen = find_only_store(first), choices(first)
    assert store is not None
    sizes = {n: chosen[i] for n, i in enumerate(store.indices) if isinstance(i, ir.Var) and i in chosen}
    reads = [load for load in loads(node) if load.buffer is store.buffer]
    found = [(position(load.indices[n]), size) for load in reads for n, size in sizes.items()]
    return {at[0]: at[1] or size for at, size in found if at}


def finish(sch: Schedule, block: BlockRV, loops: list[LoopRV], target: Target) -> None:
    """Write positions out; on a CPU, around vectors."""
    for loop in loops if target.gpu is not None else loops[:-1]:
        sch.unroll(loop)
    if target.gpu is None:
        sch.vectorize(loops[-1])
    sch.annotate(block, CLAIMED.key, "UnrollTransforms")
