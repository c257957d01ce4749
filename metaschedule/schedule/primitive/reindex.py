"""reindex: a copy of a buffer in the order of a block's iterators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...affine.footprint import Box, find_written, whole_box
from ...affine.injective import is_one_to_one
from ...affine.view import View
from ...arith import Domain
from ...errors import ScheduleError
from ..analysis.limits import check_elements
from ..analysis.must_write import find_stored_indices, own_accesses
from ..state import ROOT, Key, State
from .base import BlockRV, Primitive, primitive
from .cache_copies import CacheRead, check_own_write
from .cache_stage import Copy, accessed_buffer, add_copy, place_after


@dataclass(slots=True)
class ReindexPlan:
    block: ir.Block
    buffer: ir.Buffer
    indices: tuple[ir.Expr, ...]
    used: list[ir.Iter]
    extents: tuple[int, ...]
    parent: Key
    child: Key
    box: Box
    guards: list[ir.Expr]


@primitive("reindex")
class Reindex(Primitive):
    """Copy a buffer into one laid out in the order of a block's iterators, which the block then uses.

    rewrite:   for i, k: C[i] += A[k, i * 2]                  (kind="read")
          -->  for i, k: A_reindex[i, k] = A[k, i * 2]
               for i, k: C[i] += A_reindex[i, k]
    requires:  1. the block uses the buffer at one place, given by its iterators, whose extents are constants
               2. what cache_read (cache_write) requires; nothing else in the loops around writes (reads) it
               3. for a write, no two values of the iterators give the same element
    Only iterators that the indices mention become dimensions.
    """

    block: BlockRV
    buffer_index: int
    kind: str

    def check(self, s: State) -> ReindexPlan:
        block = s.block(self.block)
        buffer = accessed_buffer(block, self.kind, self.buffer_index)
        indices = self.place_of_access(s, block, buffer)
        mentioned = {v for index in indices for v in ir.free_vars(index)}
        used = [it for it in block.iters if it.var in mentioned]
        extents = [ir.as_int(it.extent) for it in used]
        if len(used) != len(mentioned) or any(ir.has_load(i) for i in indices) or None in extents:
            raise ScheduleError(
                f"block {block.name!r} does not use {buffer.name} by iterators of constant extent alone",
                marks={block.name: f"{buffer.name}[{', '.join(map(str, indices))}]"},
            )
        sizes = tuple([n for n in extents if n is not None])
        check_elements(sizes, f"{buffer.name}_reindex", {block.name: f"uses {buffer.name}"})
        if self.kind == "read":
            return self.check_read(s, block, buffer, indices, used, sizes)
        check_own_write(s, block, buffer)
        if not is_one_to_one(indices, {it.var: n for it, n in zip(used, sizes, strict=True)}):
            raise ScheduleError(
                f"several values of the iterators may give the same element of {buffer.name}",
                marks={block.name: f"{buffer.name}[{', '.join(map(str, indices))}]"},
            )
        parent, child = place_after(s, block.name, buffer)
        box = (
            find_written(View(s, parent), block, [it.var for it in used])
            if find_stored_indices(block, buffer)
            else None
        )
        if box is None:
            raise ScheduleError(
                f"not all values of the iterators are known to write {buffer.name}",
                marks={block.name: f"writes {buffer.name}"},
            )
        return ReindexPlan(block, buffer, indices, used, sizes, parent, child, box, [])

    def place_of_access(self, s: State, block: ir.Block, buffer: ir.Buffer) -> tuple[ir.Expr, ...]:
        if s.children[block.name]:
            raise ScheduleError(
                f"block {block.name!r} has blocks inside", marks={block.name: "not a plain block"}
            )
        found = own_accesses(block, buffer)
        if not found or not all(ir.same_exprs(found[0], other) for other in found[1:]):
            raise ScheduleError(
                f"block {block.name!r} uses {buffer.name} at several places",
                marks={block.name: f"uses {buffer.name}"},
                help="use cache_read or cache_write",
            )
        return found[0]

    def check_read(
        self,
        s: State,
        block: ir.Block,
        buffer: ir.Buffer,
        indices: tuple[ir.Expr, ...],
        used: list[ir.Iter],
        sizes: tuple[int, ...],
    ) -> ReindexPlan:
        cache = CacheRead(self.block, self.buffer_index, buffer.scope).check(s)
        if cache.parent is not ROOT:
            raise ScheduleError(
                f"{buffer.name} is written in a loop around the block, or the block is in another",
                marks={block.name: f"reads {buffer.name}"},
                help="reindex before compute_at and blockize",
            )
        guards: list[ir.Expr] = []
        domain = Domain({it.var: n for it, n in zip(used, sizes, strict=True)})
        for index, (span, limit) in zip(indices, cache.box.ranges, strict=True):
            # Beyond the box nothing is written, so nothing is read either: leave that out.
            first = span.offset
            end = span.end if limit is None else min(span.end, limit)
            low, high = domain.bounds(index)
            if low is None or low < first:
                guards.append(ir.binary(">=", index, first))
            if high is None or high >= end:
                guards.append(ir.binary("<", index, end))
        return ReindexPlan(
            block, buffer, indices, used, sizes, cache.parent, cache.child, whole_box(sizes), guards
        )

    def apply(self, s: State, plan: ReindexPlan) -> tuple[Any, ...]:
        old = plan.buffer
        new = ir.Buffer(f"{old.name}_reindex", plan.extents, old.dtype, old.scope)
        own = tuple([it.var for it in plan.used])
        over = tuple([ir.Var(v.name) for v in own])
        iters = tuple([ir.Iter(v, ir.const(n)) for v, n in zip(over, plan.extents, strict=True)])
        moved = dict(zip(own, over, strict=True))
        there = tuple([ir.substitute(e, moved) for e in plan.indices])
        if self.kind == "read":
            guards = [ir.substitute(g, moved) for g in plan.guards]
            copy = Copy(new.name, iters, plan.box, old, there, new, over, guards)
        else:
            copy = Copy(new.name, iters, plan.box, new, over, old, there)
        swap = Redirect(old, new, own)
        s.update(
            plan.block.name,
            reads=move_regions(plan.block.reads, swap),
            writes=move_regions(plan.block.writes, swap),
            init=swap.body(plan.block.init),
            body=swap.body(plan.block.body),
        )
        key, name = add_copy(s, copy)
        s.put_at(plan.child, [plan.child, key] if self.kind == "write" else [key, plan.child])
        s.allocs = (*s.allocs, new)
        return (name,)


def move_regions(regions: Sequence[ir.Region], swap: Redirect) -> tuple[ir.Region, ...]:
    """A signature in which the regions of the old buffer, all of one place, are one of the new."""
    new: list[ir.Region] = []
    for region in map(swap.region, regions):
        if region.buffer is not swap.new or all(r.buffer is not swap.new for r in new):
            new.append(region)
    return tuple(new)


class Redirect(ir.Rewriter):
    """Uses of a buffer, wherever, become uses of another one at the given indices."""

    def __init__(self, old: ir.Buffer, new: ir.Buffer, indices: tuple[ir.Expr, ...]) -> None:
        self.old, self.new, self.indices = old, new, indices

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Load and e.buffer is self.old:
            return ir.Load(self.new, self.indices)
        return super().expr(e)

    def stmt(self, s: ir.Stmt) -> Any:
        if isinstance(s, ir.Store) and s.buffer is self.old:
            return ir.Store(self.new, self.indices, self.expr(s.value))
        return super().stmt(s)

    def region(self, r: ir.Region) -> ir.Region:
        return self.new.region(*self.indices) if r.buffer is self.old else r
