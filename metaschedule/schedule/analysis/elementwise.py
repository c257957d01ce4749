"""Element-wise stages: what inlining needs to know of a block, and how a stage is taken out."""

from __future__ import annotations

from typing import Any

from ... import ir
from ...arith import Domain
from ...errors import ScheduleError
from ..state import Key, State
from .effects import Effect, writers


def single_store(s: State, block: ir.Block, allows_scalar: bool = False) -> ir.Store:
    """The store that is all a block does; raises if the block is not an element-wise stage, or a scalar where
    that is allowed."""
    marks = {block.name: "this block"}
    if not block.iters and not (allows_scalar and computes_scalar(s, block)):
        raise ScheduleError(f"block {block.name!r} has no iterators: it is opaque", marks)
    if block.init or any(it.kind == "reduce" for it in block.iters):
        raise ScheduleError(
            f"block {block.name!r} is a reduction",
            marks,
            "only element-wise stages are inlined; fuse_reduction_epilogue puts a stage into a reduction",
        )
    if s.children[block.name] or len(block.body) != 1 or not isinstance(block.body[0], ir.Store):
        raise ScheduleError(f"block {block.name!r} does more than one store", marks)
    store = block.body[0]
    if block.allocs or any(load.buffer is store.buffer for load in stored_loads(store)):
        raise ScheduleError(f"block {block.name!r} reads what it writes", marks)
    return store


def computes_scalar(s: State, block: ir.Block) -> bool:
    """Whether a block outside of all loops stores to buffers without dimensions: its one instance is all that
    these hold."""
    scalar = all(not r.buffer.shape for r in block.writes)
    return scalar and not block.iters and not block.predicate and not s.loops_around(block.name)


def stored_loads(store: ir.Store) -> list[ir.Load]:
    return ir.loads(*store.indices, store.value)


def check_private(s: State, buffer: ir.Buffer, block: ir.Block) -> None:
    if any(buffer is b for b in s.original.outputs):
        raise ScheduleError(
            f"{buffer.name} is an output of the program", marks={block.name: f"writes {buffer.name}"}
        )


def check_only_writer(s: State, buffer: ir.Buffer, block: ir.Block) -> None:
    for event in writers(s, {buffer}):
        if event.key is not block.name:
            raise ScheduleError(
                f"{buffer.name} is also written elsewhere",
                marks={block.name: "writes", event.key: "writes too"},
            )


def check_one_scope(s: State, event: Effect, block: ir.Block, buffer: ir.Buffer) -> None:
    marks: dict[Any, str] = {block.name: f"writes {buffer.name}", event.key: f"reads {buffer.name}"}
    if event.outside:
        raise ScheduleError(f"{buffer.name} is read outside of block bodies", marks)
    if s.scope(event.key) is not s.scope(block.name):
        raise ScheduleError("the two blocks are not in the same scope", marks)


def remove_stage(s: State, key: Key, buffer: ir.Buffer) -> None:
    """Take out a block, the loops that have nothing else in them, and the buffer between the blocks."""
    s.allocs = tuple([b for b in s.allocs if b is not buffer])
    for above in s.ancestors(key):
        if isinstance(above, str) and any(b is buffer for b in s.nodes[above].allocs):
            s.update(above, allocs=tuple([b for b in s.nodes[above].allocs if b is not buffer]))
    s.remove(key)


def domain_of(block: ir.Block) -> Domain:
    return Domain({it.var: it.extent for it in block.iters if not ir.loads(it.extent)})
