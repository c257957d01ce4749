"""Packing: an operand copied into panels as wide as the register tile, in the order in which it is read.

A copy that changes which dimension is contiguous is transposed in registers, a square of vectors at a time.
"""

from __future__ import annotations

from ..ir import Block
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Target
from .stage import schedule_stage

Grouped = tuple[int, int] | None  # a dimension of which so many neighbours are to lie side by side


def pack_panel(
    sch: Schedule, packed: BlockRV, position: int, loop: LoopRV, target: Target, grouped: Grouped = None
) -> None:
    """Copy where a tile of columns begins: the panel stays in the cache for all tiles of rows."""
    if position != last_dimension(sch, packed) or grouped:
        order = columns_last(sch, packed, position, grouped)
        if grouped:
            sch.transform_block_layout(packed, order)
        sch.transform_layout(packed, 0, "write", order)
    sch.compute_at(packed, loop)
    schedule_stage(sch, packed, target)


def pack_whole(
    sch: Schedule,
    packed: BlockRV,
    position: int,
    width: ExprRV | int,
    target: Target,
    grouped: Grouped = None,
) -> None:
    """Copy everything once, panel after panel."""
    loops = sch.get_loops(packed)
    panels, columns = sch.split(loops[position], [None, width])
    others = [loop for n, loop in enumerate(loops) if n != position]
    if position != last_dimension(sch, packed):
        lanes = target.lanes(sch.get(packed).writes[0].buffer.dtype)
        whole, rows = sch.split(others.pop(), [None, lanes])
        sch.reorder(panels, *others, whole, rows, columns)
        sch.unroll(rows)
    else:
        sch.reorder(panels, *others, columns)
    sch.vectorize(columns)
    sch.parallel(panels)
    *rest, _ = columns_last(sch, packed, position)
    texts = (f"i{position} // p0", *rest, f"i{position} % p0")
    if grouped:
        texts = (*group(texts, grouped), f"i{grouped[0]} % {grouped[1]}")
    sch.transform_layout(packed, 0, "write", texts, parameters=[width])


def last_dimension(sch: Schedule, packed: BlockRV) -> int:
    copy: Block = sch.get(packed)
    return len(copy.writes[0].buffer.shape) - 1


def columns_last(sch: Schedule, packed: BlockRV, position: int, grouped: Grouped = None) -> tuple[str, ...]:
    """The dimensions of the copy, with the columns as the last, or before groups."""
    rest = [f"i{n}" for n in range(last_dimension(sch, packed) + 1) if n != position]
    texts = (*rest, f"i{position}")
    return (*group(texts, grouped), f"i{grouped[0]} % {grouped[1]}") if grouped else texts


def group(texts: tuple[str, ...], grouped: tuple[int, int]) -> tuple[str, ...]:
    """Dimensions with the number of the group for the one that is grouped."""
    dimension, size = grouped
    return tuple([f"i{dimension} // {size}" if text == f"i{dimension}" else text for text in texts])
