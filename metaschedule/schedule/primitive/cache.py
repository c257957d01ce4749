"""Primitives for copies and where they live: cache_read, cache_write, reindex, set_scope, storage_align.

The copies are in `cache_copies.py` and `reindex.py`; here are the last two and the methods of the family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import ir
from ...errors import ScheduleError
from ...ir.annotations import STORAGE_ALIGN
from ..analysis.limits import check_elements
from ..state import State
from .base import BlockRV, ExprRV, Primitive, Steps, primitive
from .cache_copies import CacheRead, CacheWrite
from .cache_stage import accessed_buffer, check_scope, owner_of, replace_buffer
from .reindex import Reindex


@primitive("set_scope")
class SetScope(Primitive):
    """Say where a buffer that a block writes lives.

    rewrite:   B = T.alloc((8,), "float32")  -->  B = T.alloc((8,), "float32", scope="local")
    requires:  1. the block has a write of that index, to an intermediate buffer
               2. the scope is one that there is
    """

    block: BlockRV
    write_index: int
    scope: str

    def check(self, s: State) -> ir.Buffer:
        block = s.block(self.block)
        check_scope(self.scope)
        buffer = accessed_buffer(block, "write", self.write_index)
        owner_of(s, buffer, block)
        return buffer

    def apply(self, s: State, plan: ir.Buffer) -> tuple[Any, ...]:
        if plan.scope != self.scope:
            replace_buffer(s, plan, ir.replace_fields(plan, scope=self.scope))
        return ()


@primitive("storage_align")
class StorageAlign(Primitive):
    """Pad a buffer so that neighbours along an axis are a multiple of `factor`, plus `offset`, apart.

    rewrite:   B = T.alloc((5, 7), "float32")
          -->  B = T.alloc((5, 7), "float32", strides=(8, 1))         (axis=0, factor=8, offset=0)
    requires:  1. the block has a write of that index, to an intermediate buffer
               2. the axis is not the last: neighbours along that one are 1 apart
               3. 0 <= offset < factor
               4. the bytes of the buffer fit 63 bits
    The block notes it as `storage_align`, and lowering, which cuts buffers down to what is alive at once,
    pads what is left in the same way. Whatever layout the buffer had, it is row-major then.
    """

    block: BlockRV
    write_index: int
    axis: int
    factor: int
    offset: int | ExprRV = 0

    def check(self, s: State) -> tuple[ir.Block, ir.Buffer, ir.Buffer, int]:
        block, offset = s.block(self.block), s.number(self.offset)
        buffer = accessed_buffer(block, "write", self.write_index)
        owner_of(s, buffer, block)
        rank = len(buffer.shape)
        mark = {block.name: f"writes {buffer.name}"}
        if not 0 <= self.axis < rank - 1:
            raise ScheduleError(
                f"axis {self.axis!r} of {buffer.name}, which has {rank} dimension(s)",
                marks=mark,
                help="give an axis from 0 to the last but one",
            )
        if not 0 <= offset < self.factor:
            raise ScheduleError(
                f"factor {self.factor!r} and offset {offset!r}", marks=mark, help="0 <= offset < factor"
            )
        # Of all that was asked for the buffer, inner axes first: an outer distance holds inner ones.
        asked = [*alignments(s, buffer), (self.axis, self.factor, offset)]
        strides = ir.aligned_strides(buffer.shape, asked)
        check_elements((strides[0], buffer.shape[0]), buffer.name, mark)
        return block, buffer, ir.replace_fields(buffer, layout=ir.Layout(strides)), offset

    def apply(self, s: State, plan: tuple[ir.Block, ir.Buffer, ir.Buffer, int]) -> tuple[Any, ...]:
        block, old, new, offset = plan
        replace_buffer(s, old, new)
        noted = (
            *(STORAGE_ALIGN.get(block) or ()),
            (self.write_index, self.axis, self.factor, offset),
        )
        s.update(block.name, annotations={**block.annotations, STORAGE_ALIGN.key: noted})
        return ()


def alignments(s: State, buffer: ir.Buffer) -> list[tuple[int, int, int]]:
    """What the blocks of a program note as `storage_align` of a buffer: (axis, factor, offset)."""
    return [
        (axis, factor, offset)
        for block in s.nodes.values()
        if isinstance(block, ir.Block)
        for write, axis, factor, offset in STORAGE_ALIGN.get(block) or ()
        if write < len(block.writes) and block.writes[write].buffer is buffer
    ]


class CacheSteps(Steps):
    def cache_read(
        self,
        block: BlockRV,
        read_index: int,
        scope: str = "local",
        consumers: Sequence[BlockRV] | None = None,
    ) -> BlockRV:
        """Copy what a block reads into a new buffer; gives the block that copies; see `CacheRead`."""
        return self.run(CacheRead(block, read_index, scope, tuple(consumers or ())))[0]

    def cache_write(self, block: BlockRV, write_index: int, scope: str = "local") -> BlockRV:
        """Let a block write to a new buffer; gives the block that copies from it; see `CacheWrite`."""
        return self.run(CacheWrite(block, write_index, scope))[0]

    def reindex(self, block: BlockRV, buffer_index: int, kind: str) -> BlockRV:
        """Copy a buffer in the order of a block's iterators; gives the block that copies; see `Reindex`."""
        return self.run(Reindex(block, buffer_index, kind))[0]

    def set_scope(self, block: BlockRV, write_index: int, scope: str) -> None:
        """Say where a buffer lives; see `SetScope`."""
        self.run(SetScope(block, write_index, scope))

    def storage_align(
        self, block: BlockRV, write_index: int, axis: int, factor: int, offset: int | ExprRV = 0
    ) -> None:
        """Pad a buffer to align its rows; see `StorageAlign`."""
        self.run(StorageAlign(block, write_index, axis, factor, offset))
