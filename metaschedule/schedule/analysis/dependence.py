"""Which iterations of loops depend on each other.

`loop_carried_dependence` says why the iterations of a loop may depend on each other, and
`fusion_preventing_dependence` why loops that follow one another may not become one. Each gives None only if
there is certainly no dependence, and otherwise a reason to print. All is decided from the signatures of
blocks.

    for i in range(8):          iterations that touch one element (`may_alias`): none for Y[i];
        X[0] = A[i]             all for X[0], but X is an intermediate, and every iteration
        Y[i] = X[0] * X[0]      fills it before it reads it: each may have one of its own
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ... import ir
from ...affine.access import Access, accessed, accesses_of
from ...affine.alias import are_told_apart, may_alias, may_meet_later
from ...affine.cover import covers
from ...affine.definitions import leaf_loops_by_kind
from ...affine.view import View
from ..state import State
from .effects import touch, users
from .must_write import stored_indices
from .reducers import commutes


@dataclass(slots=True)
class AccessesBelow:
    """What a part of the program reads and writes."""

    accesses: dict[ir.Buffer, list[Access]] = field(default_factory=dict)
    written: dict[ir.Buffer, None] = field(default_factory=dict)  # in order
    loaded: set[ir.Buffer] = field(default_factory=set)  # read by extents, conditions and bindings
    problem: str | None = None  # why this is not all that is touched


def accesses_below(s: State, loop: ir.Var) -> AccessesBelow:
    """What the body of a loop reads and writes, in program order."""
    found = AccessesBelow()
    for key in s.statements_below(loop):
        node = s.nodes[key]
        if loaded := touch(node).loaded:
            found.loaded |= loaded
        if type(node) is ir.Block:
            for a in accesses_of(node):
                found.accesses.setdefault(a.buffer, []).append(a)
                if a.is_write:
                    found.written[a.buffer] = None
        elif type(node) is not ir.For and not (type(node) is ir.If and s.children[key]):
            found.problem = "there is a statement outside of any block"
    return found


# --- iterations of one loop -----------------------------------------------------------------------


def loop_carried_dependence(s: State, loop: ir.Var, reductions: bool = False) -> str | None:
    """Why iterations of a loop may depend on each other; None if they certainly do not. With `reductions`,
    those of a reduction that commutes are not held against it."""
    extent = s.fixed_extent(loop)
    if extent is not None and extent <= 1:
        return None
    below, view = accesses_below(s, loop), View(s, s.parent[loop], moving=loop)
    if below.problem:
        return below.problem
    for buffer in below.written:
        uses = below.accesses[buffer]
        if buffer in below.loaded:
            return f"{buffer.name} is written, and an extent or a condition depends on it"
        if all(are_told_apart(view, a, b) for a, b in conflicting(uses)):
            continue
        block = uses[0].block
        if reductions and all(a.block is block for a in uses) and reduces_over(s, block, loop):
            if commutes(block):
                continue
            return f"block {block.name!r} reduces over it by an operation that is not known to commute"
        if is_private(s, loop, buffer, uses):
            continue
        if all(may_alias(view, a, b) is False for a, b in conflicting(uses)):
            continue
        for a in uses:
            if reduces_over(s, a.block, loop):
                return f"block {a.block.name!r} reduces over it"
        what = "write" if all(a.is_write for a in uses) else "read or write"
        return f"several iterations may {what} the same element of {buffer.name}"
    return None


def conflicting(uses: list[Access]) -> Iterator[tuple[Access, Access]]:
    """The pairs of accesses to a buffer, each with itself too, of which one writes."""
    for n, a in enumerate(uses):
        for b in uses[: n + 1]:
            if a.is_write or b.is_write:
                yield a, b


def reduces_over(s: State, block: ir.Block, loop: ir.Var) -> bool:
    return loop in leaf_loops_by_kind(s, block)[1]


# --- intermediates of one iteration ---------------------------------------------------------------


def is_private(s: State, loop: ir.Var, buffer: ir.Buffer, uses: list[Access]) -> bool:
    """Whether each iteration may have its own copy of a buffer: nothing outside of the loop touches it, and
    what is read has been written in the same iteration."""
    scope = s.scope(loop)
    if not any(b is buffer for b in (s.nodes[scope].allocs if scope else s.allocs)):
        return False  # no intermediate
    if not all(s.is_below(key, loop) for key in users(s, s.nodes, buffer)):
        return False
    for n, read in enumerate(uses):
        if read.is_write:
            # A reduction reads its own result, unless it begins within the iteration.
            block = read.block
            if not any(it.kind == "reduce" for it in block.iters):
                continue
            if block.init and leaf_loops_by_kind(s, block)[1].isdisjoint([*s.loops_around(loop), loop]):
                continue
        if not any(w.is_write and is_filled(s, w, read) for w in uses[:n]):
            return False
    return True


def is_filled(s: State, write: Access, read: Access) -> bool:
    """Whether what an instance reads has been written by an earlier block in the same iterations of the loops
    around both."""
    if write.block is read.block or s.children[write.block.name]:
        return False
    view = View(s, s.lowest_common_ancestor(write.block.name, read.block.name))
    indices = stored_indices(write.block, write.region.buffer)
    return indices is not None and covers(
        view, accessed(write.block, write.region.buffer.region(*indices), True), read
    )


# --- loops that follow one another ----------------------------------------------------------------


def fusion_preventing_dependence(s: State, loops: list[ir.Var]) -> str | None:
    """Why loops that follow one another may not become one: an iteration of a later loop needs or disturbs
    iterations of an earlier one that would come after it. None if that is certainly not so."""
    parts = [accesses_below(s, v) for v in loops]
    for part in parts:
        if part.problem:
            return part.problem
    for n, later in enumerate(parts):
        for m, earlier in enumerate(parts[:n]):
            for buffer in {**earlier.written, **later.written}:
                if buffer in earlier.loaded or buffer in later.loaded:
                    return f"{buffer.name} is written, and an extent or a condition depends on it"
                for a in earlier.accesses.get(buffer, ()):
                    for b in later.accesses.get(buffer, ()):
                        if not (a.is_write or b.is_write):
                            continue
                        if may_meet_later(s, (loops[n], b), (loops[m], a)) is not False:
                            return (
                                f"block {b.block.name!r} may touch elements of {buffer.name} that block "
                                f"{a.block.name!r} touches in a later iteration"
                            )
    return None
