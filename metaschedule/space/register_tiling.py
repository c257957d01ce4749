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

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..affine.stride import stride
from ..errors import ScheduleError
from ..ir.annotations import CLAIMED, SKIP_ZEROS
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import (
    attempt,
    extent,
    find_epilogue,
    find_only_store,
    find_vector_iterator,
    has_plain_loops,
    has_reuse,
    is_reduction,
    loads,
    reused_iterators,
)
from .packing import pack_panel, pack_whole
from .register_tile import InstructionTile, RegisterTile
from .stage import fuse, schedule_stage

MOST_ROWS = 2  # loops, next to the one along the vectors, whose iterations share a tile
MOST_UNROLLED_STEPS = 8  # of the innermost reduction loop
MOST_WASTE = 0.125  # of a chunk that its tiles do not fill: cores that wait


@dataclass(frozen=True)
class RegisterTiling:
    """`packs`: "no" (operands are read where they are), "panel" (copied where a tile of columns begins),
    "whole" (copied once, before everything: for constants, at build time)."""

    packs: tuple[str, ...] = ("no", "panel", "whole")

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        along = find_vector_iterator(node)
        if along is None or not is_worth_tiling(node, along) or not has_plain_loops(sch, block):
            return [sch]
        streamed = find_streamed_operand(node, along)
        made: list[Schedule] = []
        for pack in self.packs:
            for columns_first in (False, True):
                if pack != "no" and (streamed is None or not columns_first or not has_reuse(node)):
                    continue
                if pack == "panel" and SKIP_ZEROS.is_on(node) and has_windows(node, streamed):
                    continue  # at borders a panel is cut, and chunks in parallel would share what is left
                made += attempt(sch, tile, block, along, pack, columns_first, target)
        # Tests for zeros are worth it in tiles of registers only.
        return made if made and SKIP_ZEROS.is_on(node) else [*made, sch]


def is_worth_tiling(block: ir.Block, along: ir.Var) -> bool:
    """Whether a reduction reads operands again, or at least reads them in whole vectors."""
    if not is_reduction(block) or find_only_store(block) is None:
        return False
    return has_reuse(block) or all(stride(load, along) in (0, 1) for load in loads(block))


def find_streamed_operand(block: ir.Block, along: ir.Var) -> tuple[int, int] | None:
    """The operand that is read along the vectors, one element per column: its place among the reads, and the
    dimension."""
    for n, region in enumerate(block.reads):
        for load in loads(block):
            if load.buffer is region.buffer:
                for dimension, index in enumerate(load.indices):
                    if index is along:
                        return n, dimension
    return None


def group_size(block: ir.Block, along: ir.Var) -> int:
    """How many columns read the same, if an operand is read in groups of them; else 0."""
    indices = [index for load in loads(block) for index in load.indices]
    parts = [
        e for index in indices for e in ir.subexpressions(index) if isinstance(e, ir.Binary) and e.op == "//"
    ]
    return math.gcd(*[ir.as_int(e.b) or 1 for e in parts if e.a is along])


def has_windows(block: ir.Block, streamed: tuple[int, int] | None) -> bool:
    """Whether the streamed operand is read in windows that overlap, as that of a depthwise convolution."""
    buffer = block.reads[streamed[0]].buffer if streamed else None
    indices = [index for load in loads(block) if load.buffer is buffer for index in load.indices]
    return any(len(ir.free_vars(index)) > 1 for index in indices)


@dataclass(frozen=True)
class Grouping:
    """An instruction that a lane is to be: it takes `size` values of the iterator `step` at once, of which
    `run` lie side by side in the register of the columns. Lanes are columns, and for a matrix instruction
    `rows` values of another iterator too. There are so many `registers` for them."""

    intrinsic: str
    step: ir.Var
    size: int
    lanes: int
    run: int
    registers: int
    row: ir.Var | None = None
    rows: int = 1
    tiles: bool = False  # registers are tiles: their rows may be any distance apart in memory


@dataclass
class TiledLoops:
    """The loops of a tiled block, from the outside in."""

    chunks: list[LoopRV]  # in parallel
    tiles: dict[ir.Var, LoopRV]  # of registers, in a chunk
    reductions: list[LoopRV]  # the last is unrolled
    rows: list[LoopRV]  # of a tile, unrolled
    columns: list[LoopRV]  # of a tile, vectorized; of a matrix instruction the rows and columns
    width: ExprRV | int  # of a panel of columns
    steps: list[LoopRV]  # of a lane, if it is an instruction


def tile(
    sch: Schedule, block: BlockRV, along: ir.Var, pack: str, columns_first: bool, target: Target,
    first: ir.Var | None = None, grouping: Grouping | None = None,
) -> None:  # fmt: skip
    """A block that has been moved into loops is tiled there, without chunks. `first`: the outermost tiles.
    With a `grouping` an instruction computes the lanes."""
    node: ir.Block = sch.get(block)
    after = find_epilogue(sch, block)
    result = sch.get_block(after) if after else sch.cache_write(block, 0, "local")
    if after:
        sch.set_scope(block, 0, "local")
    streamed = find_streamed_operand(node, along) if pack != "no" else None
    packed = sch.cache_read(block, streamed[0], "global") if streamed else None
    if grouping and pack == "panel" and grouping.run < grouping.size:
        raise ScheduleError(f"a register of {grouping.intrinsic} does not lie in a panel")
    groups = pack_groups(sch, block, node, streamed, grouping, target) if grouping else []

    loops = sch.get_loops(block)
    outer = loops[: -len(node.iters)]
    nest = split_loops(sch, node, loops[len(outer) :], along, target, not outer, grouping)
    grouped = find_grouped_dimension(node, streamed, grouping)
    if packed and streamed and pack == "whole":
        pack_whole(sch, packed, streamed[1], nest.width, target, grouped)
    others = [loop for v, loop in nest.tiles.items() if v is not along and v is not first]
    tiles = [nest.tiles[along], *others] if columns_first else [*others, nest.tiles[along]]
    if first is not None:
        tiles.insert(0, nest.tiles[first])
    sch.reorder(*nest.chunks, *tiles, *nest.reductions, *nest.rows, *nest.columns, *nest.steps)
    sch.reverse_compute_at(result, tiles[-1])
    if packed and streamed and pack == "panel":
        pack_panel(sch, packed, streamed[1], nest.tiles[along], target, grouped)
    if nest.chunks:
        outer = [fuse(sch, nest.chunks)]
        sch.parallel(outer[0])
    *rows, columns = sch.get_loops(result)[len(outer) + len(tiles) :]
    if grouping and grouping.row is not None:
        lanes = sch.fuse(*nest.columns)
        block_accumulators(sch, block, node, along, grouping)
    else:
        (lanes,) = nest.columns
    for loop in (lanes, columns):
        sch.vectorize(loop)
    stored = () if grouping and grouping.tiles else rows  # results of tiles are in memory, and many
    for loop in (nest.reductions[-1], *nest.rows, *stored):
        sch.unroll(loop)
    start = sch.decompose_reduction(block, nest.reductions[0])
    by = "RegisterTiling"
    if grouping:
        block, by = sch.blockize(nest.steps[0]), f"UseInstruction {grouping.intrinsic}"
        sch.tensorize(block, grouping.intrinsic)
    faster = "rows" if columns_first else "columns"
    for done in (block, result, start, *groups, *([packed] if packed else [])):
        sch.annotate(done, CLAIMED.key, f"{by}, packing {pack}, {faster} inside")


def pack_groups(
    sch: Schedule, block: BlockRV, node: ir.Block, streamed: tuple[int, int] | None, grouping: Grouping,
    target: Target,
) -> list[BlockRV]:  # fmt: skip
    """Copies of the operands that are not streamed and whose groups do not lie side by side."""
    copies: list[BlockRV] = []
    for n, region in enumerate(node.reads):
        for load in loads(node):
            if load.buffer is not region.buffer or (streamed and n == streamed[0]):
                continue
            if stride(load, grouping.step) == 1 and (not grouping.tiles or is_regular(load, grouping.row)):
                continue
            blocks = {grouping.step: grouping.size}
            if grouping.tiles and grouping.row is not None:
                blocks = {grouping.row: grouping.rows, **blocks}
            copy = sch.cache_read(block, n, "global")
            sch.transform_layout(copy, 0, "write", in_blocks(load.indices, blocks))
            schedule_stage(sch, copy, target)
            copies.append(copy)
    return copies


def is_regular(load: ir.Load, row: ir.Var | None) -> bool:
    """Whether rows are a constant distance apart."""
    return row is not None and stride(load, row) is not None


def in_blocks(indices: Sequence[ir.Expr], blocks: dict[ir.Var, int]) -> tuple[str, ...]:
    """A layout in which so many values of iterators are a block by themselves, at the end."""
    found = {v: d for d, index in enumerate(indices) for v in blocks if index is v}
    if len(found) < len(blocks):
        raise ScheduleError("blocks are of iterators that are indices by themselves")
    sizes = {found[v]: size for v, size in blocks.items()}
    whole = [f"i{d} // {sizes[d]}" if d in sizes else f"i{d}" for d in range(len(indices))]
    return (*whole, *[f"i{d} % {size}" for d, size in sizes.items()])


def block_accumulators(
    sch: Schedule, block: BlockRV, node: ir.Block, along: ir.Var, grouping: Grouping
) -> None:
    """The results of a matrix instruction side by side, as its register has them."""
    store = find_only_store(node)
    assert store is not None
    assert grouping.row is not None
    blocks = {grouping.row: grouping.rows, along: grouping.lanes}
    sch.transform_layout(block, 0, "write", in_blocks(store.indices, blocks))


def find_grouped_dimension(
    node: ir.Block, streamed: tuple[int, int] | None, grouping: Grouping | None
) -> tuple[int, int] | None:
    """The dimension of the streamed operand that groups are of, and their size."""
    if streamed is None or grouping is None:
        return None
    buffer = node.reads[streamed[0]].buffer
    load = next(load for load in loads(node) if load.buffer is buffer)
    return next(d for d, index in enumerate(load.indices) if index is grouping.step), grouping.run


def split_loops(
    sch: Schedule, node: ir.Block, loops: list[LoopRV], along: ir.Var, target: Target, chunked: bool,
    grouping: Grouping | None = None,
) -> TiledLoops:  # fmt: skip
    """Cut the register tile out of the loops, then, if wanted, cut what is around it into chunks of tiles."""
    outside = dict(zip([it.var for it in node.iters], loops))
    steps: list[LoopRV] = []
    if grouping:
        outside[grouping.step], part = sch.split(outside[grouping.step], [None, grouping.size])
        steps.append(part)
    *reductions, last = [outside[it.var] for it in node.iters if it.kind == "reduce"]
    spatial = [it for it in node.iters if it.kind == "spatial"]
    shared = reused_iterators(node) if has_reuse(node) else spatial
    tiled = [*[it.var for it in shared if it.var is not along][-MOST_ROWS:], along]
    lanes = grouping.lanes if grouping else target.lanes(node.writes[0].buffer.dtype)
    groups: list[LoopRV] = []
    matrix: list[LoopRV] = []
    if grouping and grouping.row is not None:
        for v, size in ((grouping.row, grouping.rows), (along, lanes)):
            outside[v], part = sch.split(outside[v], [None, size])
            matrix.append(part)
        tiled = [*[v for v in tiled if v is not grouping.row and v is not along][-1:], grouping.row, along]
        lanes = 1  # the tile is of whole instructions
    elif 1 < (size := group_size(node, along)) < lanes:  # vectors of several groups would be gathered
        group, outside[along] = sch.split(outside[along], [None, size])
        groups.append(group)
    distribution = InstructionTile if grouping else RegisterTile
    registers = grouping.registers if grouping else target.vector_registers
    sizes = sch.sample(distribution(tuple(outside[v] for v in tiled), lanes, registers))
    inside: list[LoopRV] = []
    for v, size in zip(tiled, sizes):
        outside[v], part = sch.split(outside[v], [None, size])
        inside.append(part)
    chunks: list[LoopRV] = []
    tiles: dict[ir.Var, LoopRV] = {}
    for it in spatial:
        loop = outside[it.var]
        if not chunked:
            tiles[it.var] = loop
            continue
        if extent(it) != 1:
            loop, tiles[it.var] = sch.split(loop, sch.sample_tile(loop, 2, max_waste=MOST_WASTE))
        chunks.append(loop)
    if chunked:
        chunks += groups  # of the same rows, one after the other
    reductions += sch.split(last, sch.sample_perfect_tile(last, 2, MOST_UNROLLED_STEPS))
    if grouping and matrix:
        return TiledLoops(chunks, tiles, reductions, inside, matrix, grouping.lanes, steps)
    return TiledLoops(chunks, tiles, reductions, inside[:-1], inside[-1:], sizes[-1], steps)
