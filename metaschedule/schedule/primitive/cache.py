"""Primitives for copies: cache_read, cache_write, reindex, set_scope, storage_align.

Read `copies.py` for where a copy goes and `analysis/written.py` for what it may copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Domain, iteration_map
from ...errors import ScheduleError
from ...ir import (
    Block,
    Buffer,
    Expr,
    Iter,
    Load,
    Region,
    Rewriter,
    Stmt,
    Store,
    Var,
    as_int,
    binary,
    changed,
    const,
    free_vars,
    same_expr,
    subexpressions,
)
from ..analysis.written import Box, own_accesses, stored_indices, whole_box, written_box
from ..state import ROOT, Key, State
from .base import BlockRV, Primitive, Steps, primitive
from .cache_stage import (
    Copy,
    accessed_buffer,
    add_copy,
    check_scope,
    identity_copy,
    insert,
    is_never_written,
    loads_from,
    owner_of,
    place_after,
    place_before,
    point,
    position,
    redirect,
    replace_buffer,
    path,
    writers,
)


@dataclass(slots=True)
class CachePlan:
    buffer: Buffer
    users: list[str]
    parent: Key
    child: Key
    box: Box


@primitive("cache_read")
class CacheRead(Primitive):
    """Copy a buffer into a new one, from which a block then reads.

    rewrite:   for i: C[i] = f(A[i])
          -->  for ax0: A_local[ax0] = A[ax0]
               for i: C[i] = f(A_local[i])
    requires:  1. the block has a read of that index and does not write the buffer; the same of all `consumers`,
                  which are in the same scope
               2. nothing writes the buffer between the copy and a reader
               3. what is copied has been written for sure
    The copy stands before the outermost loop that holds readers but no writer. The consumers are the block
    and those given; others read the buffer as before. If a block inside of a block reads, the
    copy is inside too, of the region that the outer block reads.
    """

    block: BlockRV
    read_index: int
    scope: str = "local"
    consumers: tuple[BlockRV, ...] = ()

    def check(self, s: State) -> CachePlan:
        block = s.block(self.block)
        check_scope(self.scope)
        buffer = accessed_buffer(block, "read", self.read_index)
        scope = s.scope(block.name)
        users = list(dict.fromkeys([block.name, *[s.block(c).name for c in self.consumers]]))
        for user in users:
            node: Block = s.nodes[user]
            if s.scope(user) is not scope:
                raise ScheduleError(
                    "the consumers are not in the same scope",
                    marks={block.name: "one scope", user: "another"},
                )
            if not any(r.buffer is buffer for r in node.reads):
                raise ScheduleError(
                    f"block {user!r} does not read {buffer.name}", marks={user: f"does not read {buffer.name}"}
                )
            if any(w.buffer is buffer for w in node.writes):
                raise ScheduleError(
                    f"block {user!r} reads and writes {buffer.name}",
                    marks={user: "would read what it has not written yet"},
                )
        if scope is not ROOT:
            return CachePlan(buffer, users, scope, first_child(s, scope, users), region_box(s, scope, buffer))
        stores = [] if is_never_written(s, buffer) else writers(s, buffer)
        parent, child = place_before(s, scope, users, stores, buffer)
        box = whole_box(buffer.shape) if is_never_written(s, buffer) else None
        box = box or filled_box(s, buffer, stores, parent, child)
        if box is None:
            raise not_filled(buffer, block.name)
        return CachePlan(buffer, users, parent, child, box)

    def apply(self, s: State, plan: CachePlan) -> tuple[Any, ...]:
        old = plan.buffer
        new = Buffer(f"{old.name}_{self.scope}", old.shape, old.dtype, self.scope)
        key, name = add_copy(s, identity_copy(new.name, plan.box, old, new))
        insert(s, plan.parent, plan.child, key, after=False)
        for user in plan.users:
            redirect(s, user, old, new)
        allocate(s, s.scope(name), new)
        return (name,)


def first_child(s: State, scope: str, users: list[str]) -> Key:
    return min((path(s, scope, user)[0] for user in users), key=lambda child: position(s, scope, child))


def region_box(s: State, scope: str, buffer: Buffer) -> Box:
    """What a block reads of a buffer that nothing writes."""
    outer: Block = s.nodes[scope]
    regions = [r for r in outer.reads if r.buffer is buffer]
    marks = {outer.name: "the block around it"}
    if not is_never_written(s, buffer) or len(regions) != 1:
        raise ScheduleError(
            f"{buffer.name} is written by the program, and the block is inside of block {outer.name!r}",
            marks=marks,
            help=f"cache for {outer.name!r} as a whole",
        )
    domain = Domain({it.var: it.extent for it in outer.iters if not loads_any(it.extent)})
    ranges: list[tuple[Expr, int, int | None]] = []
    for (start, extent), size in zip(regions[0].ranges, buffer.shape, strict=True):
        count = as_int(extent)
        low, high = domain.bounds(start)
        if count is None or low is None or low < 0:
            raise ScheduleError(f"how much block {outer.name!r} reads of {buffer.name} is not a constant", marks=marks)
        ranges.append((start, count, None if high is not None and high + count <= size else size))
    return Box(ranges, [])


def loads_any(e: Expr) -> bool:
    return any(type(x) is Load for x in subexpressions(e))


def filled_box(s: State, buffer: Buffer, stores: list[Key], parent: Key, child: Key) -> Box | None:
    """What has been written for sure, and all that has been written, just before a child of `parent`."""
    before = s.children[parent][: position(s, parent, child)]
    for writer in stores:
        node = s.nodes[writer]
        if not isinstance(node, Block) or not any(above is k for k in before for above in (writer, *s.ancestors(writer))):
            continue
        indices = stored_indices(node, buffer)
        box = None if indices is None else written_box(s, node, indices, parent)
        if box is not None and box.is_whole(buffer.shape):
            return whole_box(buffer.shape)
        if box is not None and len(stores) == 1:
            return box
        if len(stores) == 1 and parent is ROOT and any(b is buffer for b in s.original.outputs):
            return whole_box(buffer.shape)  # a program writes all of its outputs
    return None


def not_filled(buffer: Buffer, name: str) -> ScheduleError:
    return ScheduleError(
        f"not all of {buffer.name} is known to be written where it would be copied",
        marks={name: f"the copy of {buffer.name} would stand before this"},
        help="a copy reads whole boxes: cache before moving or guarding the block that writes the buffer",
    )


def allocate(s: State, scope: str, buffer: Buffer) -> None:
    if scope is ROOT:
        s.allocs = (*s.allocs, buffer)
    else:
        s.update(scope, allocs=(*s.nodes[scope].allocs, buffer))


def check_only_writer(s: State, block: Block, buffer: Buffer) -> None:
    """Nobody else writes the buffer, and the block reads of it only what it has written."""
    if any(r.buffer is buffer for r in block.reads) or any(
        loads_from(e, buffer) for e in (*block.bindings, *block.predicate)
    ):
        raise ScheduleError(
            f"block {block.name!r} reads and writes {buffer.name}",
            marks={block.name: f"reads {buffer.name}, beyond its own reduction"},
        )
    scope = s.scope(block.name)
    if scope is not ROOT:
        raise ScheduleError(
            f"block {block.name!r} is inside of block {scope!r}",
            marks={block.name: "inside"},
            help=f"use {scope!r} as a whole",
        )
    for writer in writers(s, buffer):
        if writer is not block.name:
            label = {writer: f"writes {buffer.name} too"} if isinstance(writer, str) else {}
            raise ScheduleError(
                f"block {block.name!r} is not the only writer of {buffer.name}",
                marks={block.name: f"writes {buffer.name}", **label},
                help="cache before decompose_reduction and the like",
            )


@primitive("cache_write")
class CacheWrite(Primitive):
    """Let a block write to a new buffer, which is then copied to the one that it wrote.

    rewrite:   for i: C[i] = f(i)
          -->  for i: C_local[i] = f(i)
               for ax0: C[ax0] = C_local[ax0]
    requires:  1. the block has a write of that index, is in no other block, and is the only writer of the buffer
               2. the block reads of the buffer only what its own `init` has started (a reduction)
               3. what is copied has been written for sure
    The copy stands after the outermost loop around the block that holds no reader of the buffer.
    """

    block: BlockRV
    write_index: int
    scope: str = "local"

    def check(self, s: State) -> CachePlan:
        block = s.block(self.block)
        check_scope(self.scope)
        buffer = accessed_buffer(block, "write", self.write_index)
        check_only_writer(s, block, buffer)
        parent, child = place_after(s, block.name, buffer)
        indices = stored_indices(block, buffer)
        box = None if indices is None else written_box(s, block, indices, parent)
        if box is None and parent is ROOT and any(b is buffer for b in s.original.outputs):
            box = whole_box(buffer.shape)  # a program writes all of its outputs
        if box is None:
            raise ScheduleError(
                f"not all of {buffer.name} is known to be written by block {block.name!r}",
                marks={block.name: f"writes some of {buffer.name}"},
                help="a copy reads whole boxes: cache before moving or guarding the block",
            )
        return CachePlan(buffer, [block.name], parent, child, box)

    def apply(self, s: State, plan: CachePlan) -> tuple[Any, ...]:
        old = plan.buffer
        new = Buffer(f"{old.name}_{self.scope}", old.shape, old.dtype, self.scope)
        redirect(s, plan.users[0], old, new)
        key, name = add_copy(s, identity_copy(new.name, plan.box, new, old))
        insert(s, plan.parent, plan.child, key, after=True)
        s.allocs = (*s.allocs, new)
        return (name,)


@dataclass(slots=True)
class ReindexPlan:
    block: Block
    buffer: Buffer
    indices: tuple[Expr, ...]
    used: list[Iter]
    extents: tuple[int, ...]
    parent: Key
    child: Key
    box: Box
    guards: list[Expr]


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
        mentioned = {v for index in indices for v in free_vars(index)}
        used = [it for it in block.iters if it.var in mentioned]
        extents = [as_int(it.extent) for it in used]
        if len(used) != len(mentioned) or any(loads_any(i) for i in indices) or None in extents:
            raise ScheduleError(
                f"where block {block.name!r} uses {buffer.name} does not depend on iterators of constant extent alone",
                marks={block.name: f"{buffer.name}[{', '.join(map(str, indices))}]"},
            )
        sizes = tuple([n for n in extents if n is not None])
        if self.kind == "read":
            return self.check_read(s, block, buffer, indices, used, sizes)
        check_only_writer(s, block, buffer)
        if not is_one_to_one(indices, used, sizes):
            raise ScheduleError(
                f"several values of the iterators may give the same element of {buffer.name}",
                marks={block.name: f"{buffer.name}[{', '.join(map(str, indices))}]"},
            )
        parent, child = place_after(s, block.name, buffer)
        box = written_box(s, block, [it.var for it in used], parent) if stored_indices(block, buffer) else None
        if box is None:
            raise ScheduleError(
                f"not all values of the iterators are known to write {buffer.name}",
                marks={block.name: f"writes {buffer.name}"},
            )
        return ReindexPlan(block, buffer, indices, used, sizes, parent, child, box, [])

    def place_of_access(self, s: State, block: Block, buffer: Buffer) -> tuple[Expr, ...]:
        if s.children[block.name]:
            raise ScheduleError(f"block {block.name!r} has blocks inside", marks={block.name: "not a plain block"})
        found = own_accesses(block, buffer)
        if not found or any(not all(map(same_expr, found[0], other)) for other in found[1:]):
            raise ScheduleError(
                f"block {block.name!r} uses {buffer.name} at several places",
                marks={block.name: f"uses {buffer.name}"},
                help="use cache_read or cache_write",
            )
        return found[0]

    def check_read(
        self, s: State, block: Block, buffer: Buffer, indices: tuple[Expr, ...], used: list[Iter], sizes: tuple[int, ...]
    ) -> ReindexPlan:
        cache = CacheRead(self.block, self.buffer_index, buffer.scope).check(s)
        if cache.parent is not ROOT:
            raise ScheduleError(
                f"{buffer.name} is written in a loop around the block, or the block is in another",
                marks={block.name: f"reads {buffer.name}"},
                help="reindex before compute_at and blockize",
            )
        guards: list[Expr] = []
        domain = Domain({it.var: n for it, n in zip(used, sizes, strict=True)})
        for index, (start, count, limit) in zip(indices, cache.box.ranges, strict=True):
            # Beyond the box nothing is written, so nothing is read either: leave that out.
            first = as_int(start) or 0
            end = first + count if limit is None else min(first + count, limit)
            low, high = domain.bounds(index)
            if low is None or low < first:
                guards.append(binary(">=", index, first))
            if high is None or high >= end:
                guards.append(binary("<", index, end))
        return ReindexPlan(
            block, buffer, indices, used, sizes, cache.parent, cache.child, whole_box(sizes), guards
        )

    def apply(self, s: State, plan: ReindexPlan) -> tuple[Any, ...]:
        old = plan.buffer
        new = Buffer(f"{old.name}_reindex", plan.extents, old.dtype, old.scope)
        own = tuple([it.var for it in plan.used])
        over = [Var(v.name) for v in own]
        moved = dict(zip(own, over, strict=True))
        there = [renamed(e, moved) for e in plan.indices]
        if self.kind == "read":
            guards = [renamed(g, moved) for g in plan.guards]
            copy = Copy(new.name, plan.extents, plan.box, over, old, there, new, over, guards)
        else:
            copy = Copy(new.name, plan.extents, plan.box, over, new, over, old, there)
        swap = Redirect(old, new, own)
        s.update(
            plan.block.name,
            reads=without_repeats([swap.region(r) for r in plan.block.reads]),
            writes=without_repeats([swap.region(r) for r in plan.block.writes]),
            init=swap.body(plan.block.init),
            body=swap.body(plan.block.body),
        )
        key, name = add_copy(s, copy)
        insert(s, plan.parent, plan.child, key, after=self.kind == "write")
        s.allocs = (*s.allocs, new)
        return (name,)


def renamed(e: Expr, values: dict[Var, Var]) -> Expr:
    from ...ir import substitute

    return substitute(e, values)


def is_one_to_one(indices: Sequence[Expr], used: list[Iter], sizes: Sequence[int]) -> bool:
    if len(indices) == len(used) and all(type(i) is Var for i in indices):
        return True
    mapped = iteration_map(indices, {it.var: n for it, n in zip(used, sizes, strict=True)})
    return mapped is not None and mapped.injective


def without_repeats(regions: list[Region]) -> tuple[Region, ...]:
    return tuple({r.buffer: r for r in regions}.values())


class Redirect(Rewriter):
    """Uses of a buffer, wherever, become uses of another one at the given indices."""

    def __init__(self, old: Buffer, new: Buffer, indices: tuple[Expr, ...]) -> None:
        self.old, self.new, self.indices = old, new, indices

    def expr(self, e: Expr) -> Expr:
        if type(e) is Load and e.buffer is self.old:
            return Load(self.new, self.indices)
        return super().expr(e)

    def stmt(self, s: Stmt) -> Any:
        if isinstance(s, Store) and s.buffer is self.old:
            return Store(self.new, self.indices, self.expr(s.value))
        return super().stmt(s)

    def region(self, r: Region) -> Region:
        return point(self.new, self.indices) if r.buffer is self.old else r


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

    def check(self, s: State) -> Buffer:
        block = s.block(self.block)
        check_scope(self.scope)
        buffer = accessed_buffer(block, "write", self.write_index)
        owner_of(s, buffer, block)
        return buffer

    def apply(self, s: State, plan: Buffer) -> tuple[Any, ...]:
        if plan.scope != self.scope:
            replace_buffer(s, plan, changed(plan, scope=self.scope))
        return ()


@primitive("storage_align")
class StorageAlign(Primitive):
    """Pad a buffer so that neighbours along an axis are a multiple of `factor`, plus `offset`, elements apart.

    rewrite:   B = T.alloc((5, 7), "float32")
          -->  B = T.alloc((5, 8), "float32")                 (axis=0, factor=8, offset=0)
    requires:  1. the block has a write of that index, to an intermediate buffer
               2. the axis is not the last: neighbours along that one are 1 apart
               3. 0 <= offset < factor, and padding the next dimension gives such a distance
    Buffers are dense, so the dimension after the axis grows; the block notes it as `storage_align`.
    """

    block: BlockRV
    write_index: int
    axis: int
    factor: int
    offset: int = 0

    def check(self, s: State) -> tuple[Block, Buffer, Buffer]:
        block = s.block(self.block)
        buffer = accessed_buffer(block, "write", self.write_index)
        owner_of(s, buffer, block)
        rank = len(buffer.shape)
        mark = {block.name: f"writes {buffer.name}"}
        if type(self.axis) is not int or not 0 <= self.axis < rank - 1:
            raise ScheduleError(
                f"axis {self.axis!r} of {buffer.name}, which has {rank} dimension(s)",
                marks=mark,
                help="give an axis from 0 to the last but one",
            )
        if type(self.factor) is not int or type(self.offset) is not int or not 0 <= self.offset < self.factor:
            raise ScheduleError(
                f"factor {self.factor!r} and offset {self.offset!r}", marks=mark, help="0 <= offset < factor"
            )
        size, below = buffer.shape[self.axis + 1], math.prod(buffer.shape[self.axis + 2 :])
        # The distances repeat after `factor` steps.
        fits = [n for n in range(size, size + self.factor) if n * below % self.factor == self.offset]
        if not fits:
            raise ScheduleError(
                f"no padding of dimension {self.axis + 1} of {buffer.name}, in steps of {below}, gives "
                f"{self.offset} modulo {self.factor}",
                marks=mark,
            )
        shape = (*buffer.shape[: self.axis + 1], fits[0], *buffer.shape[self.axis + 2 :])
        return block, buffer, changed(buffer, shape=shape)

    def apply(self, s: State, plan: tuple[Block, Buffer, Buffer]) -> tuple[Any, ...]:
        block, old, new = plan
        replace_buffer(s, old, new)
        noted = (*block.annotations.get("storage_align", ()), (self.write_index, self.axis, self.factor, self.offset))
        s.update(block.name, annotations={**block.annotations, "storage_align": noted})
        return ()


class CacheSteps(Steps):
    def cache_read(
        self, block: BlockRV, read_index: int, scope: str = "local", consumers: Sequence[BlockRV] = ()
    ) -> BlockRV:
        """Copy what a block reads into a new buffer; gives the block that copies; see `CacheRead`."""
        return self.run(CacheRead(block, read_index, scope, tuple(consumers)))[0]

    def cache_write(self, block: BlockRV, write_index: int, scope: str = "local") -> BlockRV:
        """Let a block write to a new buffer; gives the block that copies from it; see `CacheWrite`."""
        return self.run(CacheWrite(block, write_index, scope))[0]

    def reindex(self, block: BlockRV, buffer_index: int, kind: str) -> BlockRV:
        """Copy a buffer into the layout of a block's iterators; gives the block that copies; see `Reindex`."""
        return self.run(Reindex(block, buffer_index, kind))[0]

    def set_scope(self, block: BlockRV, write_index: int, scope: str) -> None:
        """Say where a buffer lives; see `SetScope`."""
        self.run(SetScope(block, write_index, scope))

    def storage_align(self, block: BlockRV, write_index: int, axis: int, factor: int, offset: int = 0) -> None:
        """Pad a buffer to align its rows; see `StorageAlign`."""
        self.run(StorageAlign(block, write_index, axis, factor, offset))
