"""RegisterTiling: the kernel of a reduction with reuse, as one writes it by hand for a CPU.

    for chunk in parallel(...):                     the outer tiles of all spatial loops
        [pack the panel of the streamed operand]
        for tiles of columns, of rows:
            accumulators = 0
            for reduction loops:
                for rows (unrolled), columns (vectorized): accumulators += a * b
            epilogue: results = f(accumulators)

The register tile is drawn for the machine (`register_tile.py`) and need not divide the extents. Forks: what
is packed where, and whether tiles of rows or of columns change faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codegen.lower.flatten import SKIP_ZEROS
from ..ir import Block, Var
from ..schedule import BlockRV, LoopRV, Schedule
from ..target import Target
from .facts import (
    CLAIMED,
    attempt,
    epilogue,
    has_reuse,
    is_reduction,
    loads,
    only_store,
    plain_loops,
    reused,
    stride,
    vector_iterator,
)  # fmt: skip
from .packing import pack_panel, pack_whole
from .register_tile import RegisterTile

MOST_ROWS = 2  # loops, next to the one along the vectors, whose iterations share a tile
MOST_UNROLLED_STEPS = 8  # of the innermost reduction loop


@dataclass(frozen=True)
class RegisterTiling:
    """`packs`: "no" (operands are read where they are), "panel" (copied where a tile of columns begins),
    "whole" (copied once, before everything: for constants, at build time)."""

    packs: tuple[str, ...] = ("no", "panel", "whole")

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        along = vector_iterator(node)
        if along is None or not gains(node, along) or not plain_loops(sch, block):
            return [sch]
        streamed = streamed_operand(node, along)
        made: list[Schedule] = []
        for pack in self.packs:
            for columns_first in (False, True):
                if pack != "no" and (streamed is None or not columns_first or not has_reuse(node)):
                    continue
                made += attempt(sch, tile, block, along, pack, columns_first, target)
        # Tests for zeros are worth it in tiles of registers only.
        return made if made and SKIP_ZEROS in node.annotations else [*made, sch]


def gains(block: Block, along: Var) -> bool:
    """Whether a reduction reads operands again, or at least reads them in whole vectors."""
    if not is_reduction(block) or only_store(block) is None:
        return False
    return has_reuse(block) or all(stride(load, along) in (0, 1) for load in loads(block))


def streamed_operand(block: Block, along: Var) -> tuple[int, int] | None:
    """The operand that is read along the vectors, one element per column: its place among the reads, and the
    dimension."""
    for n, region in enumerate(block.reads):
        for load in loads(block):
            if load.buffer is region.buffer:
                for dimension, index in enumerate(load.indices):
                    if index is along:
                        return n, dimension
    return None


def tile(sch: Schedule, block: BlockRV, along: Var, pack: str, columns_first: bool, target: Target) -> None:
    node: Block = sch.get(block)
    store = only_store(node)
    assert store is not None
    lanes = target.lanes(store.buffer.dtype)
    after = epilogue(sch, block)
    result = sch.get_block(after) if after else sch.cache_write(block, 0, "local")
    if after:
        sch.set_scope(block, 0, "local")
    packed, position = None, 0
    if pack != "no" and (streamed := streamed_operand(node, along)) is not None:
        read, position = streamed
        packed = sch.cache_read(block, read, "global")

    loops = dict(zip([it.var for it in node.iters], sch.get_loops(block)))
    spatial = [it.var for it in node.iters if it.kind == "spatial"]
    reducing = [loops[it.var] for it in node.iters if it.kind == "reduce"]
    shared = reused(node) if has_reuse(node) else [it for it in node.iters if it.kind == "spatial"]
    rows = [it.var for it in shared if it.var is not along][-MOST_ROWS:]
    sizes = sch.sample(RegisterTile(tuple(loops[v] for v in (*rows, along)), lanes, target.vector_registers))
    inside: dict[Var, LoopRV] = {}
    outside = dict(loops)
    for v, size in zip((*rows, along), sizes):
        outside[v], inside[v] = sch.split(loops[v], [None, size])
    if packed is not None and pack == "whole":
        pack_whole(sch, packed, position, sizes[-1], target)
    chunks: list[LoopRV] = []
    tiles: dict[Var, LoopRV] = {}
    for v in spatial:
        if sch.state.fixed_extent(sch.get(outside[v]).var) == 1 and v not in inside:
            chunks.append(outside[v])
            continue
        chunk, tiles[v] = sch.split(outside[v], sch.sample_tile(outside[v], 2, max_waste=0.125))
        chunks.append(chunk)
    *reducing, last = reducing
    steps, unrolled = sch.split(last, sch.sample_perfect_tile(last, 2, MOST_UNROLLED_STEPS))
    order = [v for v in tiles if v is not along]
    order = [along, *order] if columns_first else [*order, along]
    middle = [tiles[v] for v in order]
    reductions = [*reducing, steps, unrolled]
    sch.reorder(*chunks, *middle, *reductions, *[inside[v] for v in rows], inside[along])
    sch.reverse_compute_at(result, middle[-1])
    if packed is not None and pack == "panel":
        pack_panel(sch, packed, position, tiles[along], target)
    sch.parallel(sch.fuse(*chunks) if len(chunks) > 1 else chunks[0])
    sch.unroll(unrolled)
    sch.vectorize(inside[along])
    for v in rows:
        sch.unroll(inside[v])
    *unroll, columns = sch.get_loops(result)[1 + len(middle) :]
    sch.vectorize(columns)
    for loop in unroll:
        sch.unroll(loop)
    start = sch.decompose_reduction(block, reductions[0])
    faster = "rows" if columns_first else "columns"
    for done in (block, result, start, *([packed] if packed else [])):
        sch.annotate(done, CLAIMED, f"RegisterTiling, packing {pack}, {faster} inside")
