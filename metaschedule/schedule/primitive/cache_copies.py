"""cache_read, cache_write: a block reads from a copy, or writes to one.

Read `cache_stage.py` for where a copy goes and `affine/footprint.py` for what it may copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...affine.footprint import Box, whole_box
from ...affine.view import Interval, View
from ...arith import Domain
from ...errors import ScheduleError
from ...ir import Block, Buffer, as_int, has_load
from ..analysis.must_write import find_written_box
from ..state import ROOT, Key, State
from .base import BlockRV, Primitive, primitive
from .cache_stage import (
    accessed_buffer,
    add_copy,
    check_scope,
    copy_buffer,
    identity_copy,
    is_never_written,
    loads_from,
    path,
    place_after,
    place_before,
    redirect,
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
    requires:  1. the block has a read of that index and does not write the buffer; the same of all
                  `consumers`, which are in the same scope
               2. nothing writes the buffer between the copy and a reader
               3. what is copied has been written for sure
               4. the copy need not run inside of a vectorized or bound loop
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
                    f"block {user!r} does not read {buffer.name}",
                    marks={user: f"does not read {buffer.name}"},
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
        box = box or find_filled_box(s, buffer, stores, parent, child)
        if box is None:
            raise not_filled_error(buffer, block.name)
        return CachePlan(buffer, users, parent, child, box)

    def apply(self, s: State, plan: CachePlan) -> tuple[Any, ...]:
        old = plan.buffer
        s.counter += 1
        new = copy_buffer(old, self.scope, s.counter)
        key, name = add_copy(s, identity_copy(new.name, plan.box, old, new))
        s.put_at(plan.child, [key, plan.child])
        for user in plan.users:
            redirect(s, user, old, new)
        allocate(s, s.scope(name), new)
        return (name,)


def first_child(s: State, scope: str, users: list[str]) -> Key:
    children = [path(s, scope, user)[0] for user in users]
    return min(children, key=lambda child: s.number_among_siblings(child, scope))


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
    domain = Domain({it.var: it.extent for it in outer.iters if not has_load(it.extent)})
    ranges: list[tuple[Interval, int | None]] = []
    for (start, extent), size in zip(regions[0].ranges, buffer.shape, strict=True):
        count = as_int(extent)
        low, high = domain.bounds(start)
        if count is None or low is None or low < 0:
            raise ScheduleError(
                f"how much block {outer.name!r} reads of {buffer.name} is not a constant", marks=marks
            )
        limit = None if high is not None and high + count <= size else size
        ranges.append((Interval({}, 0, count, other=start), limit))
    return Box(ranges, [])


def find_filled_box(s: State, buffer: Buffer, stores: list[Key], parent: Key, child: Key) -> Box | None:
    """What has been written for sure, and all that has been written, just before a child of `parent`."""
    before = s.children[parent][: s.number_among_siblings(child, parent)]
    for writer in stores:
        node = s.nodes[writer]
        if not isinstance(node, Block) or not any(
            above is k for k in before for above in (writer, *s.ancestors(writer))
        ):
            continue
        box = find_written_box(View(s, parent), node, buffer)
        if box is not None and box.is_whole(buffer.shape):
            return whole_box(buffer.shape)
        if box is not None and len(stores) == 1:
            return box
        if len(stores) == 1 and parent is ROOT and any(b is buffer for b in s.original.outputs):
            return whole_box(buffer.shape)  # a program writes all of its outputs
    return None


def not_filled_error(buffer: Buffer, name: str) -> ScheduleError:
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


def check_own_write(s: State, block: Block, buffer: Buffer) -> None:
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
    requires:  1. the block has a write of that index, is in no other block, and alone writes the buffer
               2. the block reads of the buffer only what its own `init` has started (a reduction)
               3. what is copied has been written for sure
               4. the copy need not run inside of a vectorized or bound loop
    The copy stands after the outermost loop around the block that holds no reader of the buffer.
    """

    block: BlockRV
    write_index: int
    scope: str = "local"

    def check(self, s: State) -> CachePlan:
        block = s.block(self.block)
        check_scope(self.scope)
        buffer = accessed_buffer(block, "write", self.write_index)
        check_own_write(s, block, buffer)
        parent, child = place_after(s, block.name, buffer)
        box = find_written_box(View(s, parent), block, buffer)
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
        s.counter += 1
        new = copy_buffer(old, self.scope, s.counter)
        redirect(s, plan.users[0], old, new)
        key, name = add_copy(s, identity_copy(new.name, plan.box, new, old))
        s.put_at(plan.child, [plan.child, key])
        s.allocs = (*s.allocs, new)
        return (name,)
