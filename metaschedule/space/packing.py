"""Packing: an operand copied into panels as wide as the register tile, in the order in which it is read.

A copy that changes which dimension is contiguous is transposed in registers, a square of vectors at a time.
"""

from __future__ import annotations

from ..ir import Block
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Target
from .stage import schedule_stage


def pack_panel(sch: Schedule, packed: BlockRV, position: int, loop: LoopRV, target: Target) -> None:
    """Copy where a tile of columns begins: the panel stays in the cache for all tiles of rows."""
    if position != last_dimension(sch, packed):
        sch.transform_layout(packed, 0, "write", columns_last(sch, packed, position))
    sch.compute_at(packed, loop)
    schedule_stage(sch, packed, target)


def pack_whole(sch: Schedule, packed: BlockRV, position: int, width: ExprRV, target: Target) -> None:
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
    sch.transform_layout(packed, 0, "write", texts, parameters=[width])


def last_dimension(sch: Schedule, packed: BlockRV) -> int:
    copy: Block = sch.get(packed)
    return len(copy.writes[0].buffer.shape) - 1


def columns_last(sch: Schedule, packed: BlockRV, position: int) -> tuple[str, ...]:
    """The dimensions of the copy, with the columns as the last."""
    rest = [f"i{n}" for n in range(last_dimension(sch, packed) + 1) if n != position]
    return (*rest, f"i{position}")
