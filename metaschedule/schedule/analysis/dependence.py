"""Which iterations and which statements depend on each other.

`carried` says why the iterations of a loop may depend on each other, `crossing` why sibling loops may not
become one. Each gives None only if there is
certainly no dependence, and otherwise a reason to print. All is decided from the signatures of blocks.

For `carried`, a buffer written below the loop is fine if accesses meet within an iteration only
(`meeting.py`), or if it is an intermediate that every iteration fills before it reads it: then each may have
one of its own.
"""

from __future__ import annotations

from ...affine.definitions import leaf_loops_by_kind
from ...affine.view import View
from ...ir import Block, Buffer, Var, same_expr
from ..state import State
from .forms import are_apart, never_ahead, same_iteration
from .loop_frame import LoopFrame
from .meeting import RegionAccess, by_name, meet_within, never_alias, rows, touched_below
from .reducers import commutes
from .touching import users
from .written import Box, stored_indices, written_box

# --- iterations of one loop -----------------------------------------------------------------------


def carried(s: State, loop: Var, reductions: bool = False) -> str | None:
    """Why iterations of a loop may depend on each other; None if they certainly do not. With `reductions`,
    those of a reduction that commutes are not held against it."""
    extent = s.fixed_extent(loop)
    if extent is not None and extent <= 1:
        return None
    below = touched_below(s, loop)
    if below.problem:
        return below.problem
    view: LoopFrame | None = None
    for buffer in dict.fromkeys(below.written):
        group = below.accesses[buffer]
        if buffer in below.loaded:
            return f"{buffer.name} is written, and an extent or a condition depends on it"
        if by_name(s, loop, group):
            continue
        view = view or LoopFrame(s, loop)
        if meet_within(view, loop, group):
            continue
        block = group[0].block
        if reductions and all(a.block is block for a in group) and reduces_over(s, block, loop):
            if commutes(block):
                continue
            return f"block {block.name!r} reduces over it by an operation that is not known to commute"
        if is_private(s, loop, buffer, group) or never_alias(s, loop, group):
            continue
        for a in group:
            if reduces_over(s, a.block, loop):
                return f"block {a.block.name!r} reduces over it"
        what = "write" if all(a.is_write for a in group) else "read or write"
        return f"several iterations may {what} the same element of {buffer.name}"
    return None


def reduces_over(s: State, block: Block, loop: Var) -> bool:
    return loop in leaf_loops_by_kind(s, block)[1]


# --- intermediates of one iteration ---------------------------------------------------------------


def is_private(s: State, loop: Var, buffer: Buffer, group: list[RegionAccess]) -> bool:
    """Whether each iteration may have its own copy of a buffer: nothing outside of the loop touches it, and
    what is read has been written in the same iteration."""
    scope = s.scope(loop)
    if not any(b is buffer for b in (s.nodes[scope].allocs if scope else s.allocs)):
        return False  # no intermediate
    if not all(s.is_below(key, loop) for key in users(s, s.nodes, buffer)):
        return False
    for n, read in enumerate(group):
        if read.is_write:
            # A reduction reads its own result, unless it begins within the iteration.
            block = read.block
            if not any(it.kind == "reduce" for it in block.iters):
                continue
            if block.init and leaf_loops_by_kind(s, block)[1].isdisjoint([*s.loops_around(loop), loop]):
                continue
        if not any(w.is_write and is_filled(s, w, read) for w in group[:n]):
            return False
    return True


def is_filled(s: State, write: RegionAccess, read: RegionAccess) -> bool:
    """Whether what an instance reads has been written by an earlier block in the same iterations of the loops
    around both."""
    if write.block is read.block or s.children[write.block.name]:
        return False
    view = View(s, s.lowest_common_ancestor(write.block.name, read.block.name))
    indices = stored_indices(write.block, write.region.buffer)
    box = None if indices is None else written_box(view, write.block, indices)
    return box is not None and holds_guards(s, box, read.block) and is_inside(view, read, box)


def holds_guards(s: State, box: Box, block: Block) -> bool:
    known = [s.resolve(c) for c in block.predicate] if box.guards else []
    return all(any(same_expr(c, guard) for c in known) for guard in box.guards)


def is_inside(view: View, read: RegionAccess, box: Box) -> bool:
    """Whether a box has all that an instance reads as the loops inside of a view range."""
    for (start, extent), (have, limit), size in zip(
        read.region.ranges, box.ranges, read.region.buffer.shape, strict=True
    ):
        need = view.interval(start, extent, read.block, read.iters, size)
        fixed = need.other is None and not (need.terms and view.loops_of(need))
        low, end = (max(need.offset, 0), min(need.end, size)) if fixed else (need.offset, need.end)
        if low < have.offset or end > have.end or not view.same_start(need, have):
            return False
        # What lies behind the limit is not written; it must be behind the end of the buffer, too.
        if limit is not None and limit < size and (not fixed or end > limit):
            return False
    return True


# --- neighbours -----------------------------------------------------------------------------------


def crossing(s: State, loops: list[Var]) -> str | None:
    """Why loops that follow one another may not become one: an iteration of a later loop needs or disturbs
    iterations of an earlier one that would come after it. None if that is certainly not so."""
    parts = [touched_below(s, v) for v in loops]
    frames = [LoopFrame(s, v) for v in loops]
    for part in parts:
        if part.problem:
            return part.problem
    for n, later in enumerate(parts):
        for m, earlier in enumerate(parts[:n]):
            extent = s.fixed_extent(loops[m])
            for buffer in dict.fromkeys([*earlier.written, *later.written]):
                if buffer in earlier.loaded or buffer in later.loaded:
                    return f"{buffer.name} is written, and an extent or a condition depends on it"
                before, after = earlier.accesses.get(buffer, []), later.accesses.get(buffer, [])
                for a, first in zip(before, rows(frames[m], before), strict=True):
                    for b, second in zip(after, rows(frames[n], after), strict=True):
                        if not (a.is_write or b.is_write):
                            continue
                        if (
                            same_iteration([first, second], extent)
                            or never_ahead(first, second, extent)
                            or are_apart(first, second)
                        ):
                            continue
                        return (
                            f"block {b.block.name!r} may touch elements of {buffer.name} that block "
                            f"{a.block.name!r} touches in a later iteration"
                        )
    return None
