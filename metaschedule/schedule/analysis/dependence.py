"""Which iterations and which statements depend on each other.

`carried` says why the iterations of a loop may depend on each other, `crossing` why sibling loops may not
become one. Each gives None only if there is
certainly no dependence, and otherwise a reason to print. All is decided from the signatures of blocks.

For `carried`, a buffer written below the loop is fine if accesses meet within an iteration only
(`meeting.py`), or if it is an intermediate that every iteration fills before it reads it: then each may have
one of its own.
"""

from __future__ import annotations

from ...ir import (
    Block,
    Buffer,
    For,
    If,
    Load,
    Store,
    Var,
    expressions,
    free_vars,
    same_expr,
    subexpressions,
    walk,
)
from ..state import State
from .forms import Form, Forms, are_apart, never_ahead, same_iteration
from .meeting import Access, by_map, meet_cheaply, touched_by
from .reducers import find_reducer, reduction_term
from .written import Box, stored_indices, written_box

# --- iterations of one loop -----------------------------------------------------------------------


def carried(s: State, loop: Var, reductions: bool = False) -> str | None:
    """Why iterations of a loop may depend on each other; None if they certainly do not. With `reductions`,
    those of a reduction that commutes are not held against it."""
    extent = s.fixed_extent(loop)
    if extent is not None and extent <= 1:
        return None
    below = touched_by(s, s.children[loop])
    if below.problem:
        return below.problem
    for buffer in below.written():
        group = below.of(buffer)
        if buffer in below.loaded:
            return f"{buffer.name} is written, and an extent or a condition depends on it"
        reducing = next((a.block for a in group if loop in reduced_loops(s, a.block)), None)
        if meet_cheaply(s, loop, below.loops, group):
            continue
        if reducing is not None and reductions and all(a.block is reducing for a in group):
            if commutes(reducing):
                continue
            return f"block {reducing.name!r} reduces over it by an operation that is not known to commute"
        if is_private(s, loop, buffer, group) or by_map(s, loop, below.loops, group):
            continue
        if reducing is not None:
            return f"block {reducing.name!r} reduces over it"
        what = "write" if all(a.is_write for a in group) else "read or write"
        return f"several iterations may {what} the same element of {buffer.name}"
    return None


def reduced_loops(s: State, block: Block) -> set[Var]:
    """The loops that reduction iterators depend on."""
    return {
        leaf
        for it, binding in zip(block.iters, block.bindings, strict=True)
        if it.kind == "reduce"
        for var in free_vars(binding)
        for leaf in s.leaves(var)
    }


def commutes(block: Block) -> bool:
    """Whether a block combines terms, with or without an `init`, by an operation in which order does not
    matter."""
    if find_reducer(block) is not None:
        return True
    stores = [x for x in block.body if isinstance(x, Store)]
    own = {x.buffer for x in stores}
    if block.init or not stores or len(own) != len(block.body):
        return False
    found = [reduction_term(x) for x in stores]
    return all(
        term is not None and not any(type(x) is Load and x.buffer in own for x in subexpressions(term[1]))
        for term in found
    )


# --- intermediates of one iteration ---------------------------------------------------------------


def is_private(s: State, loop: Var, buffer: Buffer, group: list[Access]) -> bool:
    """Whether each iteration may have its own copy of a buffer: nothing outside of the loop touches it, and
    what is read has been written in the same iteration."""
    if not is_intermediate(s, loop, buffer) or is_used_outside(s, loop, buffer):
        return False
    for n, read in enumerate(group):
        if read.is_write:
            # A reduction reads its own result, unless it begins within the iteration.
            block = read.block
            begins = block.init and reduced_loops(s, block).isdisjoint([*s.loops_around(loop), loop])
            if begins or not any(it.kind == "reduce" for it in block.iters):
                continue
        if not any(w.is_write and is_filled(s, w, read) for w in group[:n]):
            return False
    return True


def is_intermediate(s: State, loop: Var, buffer: Buffer) -> bool:
    scope = s.scope(loop)
    return any(b is buffer for b in (s.nodes[scope].allocs if scope else s.allocs))


def is_used_outside(s: State, loop: Var, buffer: Buffer) -> bool:
    """Whether anything that is not below a loop touches a buffer."""
    for key, node in s.nodes.items():
        if isinstance(node, Block):
            used = any(r.buffer is buffer for r in (*node.reads, *node.writes))
            exprs = () if used else (*node.bindings, *node.predicate)
        elif isinstance(node, For):
            used, exprs = False, (node.extent,)
        elif isinstance(node, If) and s.children[key]:
            used, exprs = False, (node.cond,)
        else:
            used = any(isinstance(x, Store) and x.buffer is buffer for x in walk(node))
            exprs = tuple(expressions(node))
        used = used or any(type(x) is Load and x.buffer is buffer for e in exprs for x in subexpressions(e))
        if used and not any(above is loop for above in s.ancestors(key)):
            return True
    return False


def is_filled(s: State, write: Access, read: Access) -> bool:
    """Whether what an instance reads has been written by an earlier block in the same iterations of the loops
    around both."""
    if write.block is read.block or s.children[write.block.name]:
        return False
    above = list(s.ancestors(write.block.name))
    both = next(k for k in s.ancestors(read.block.name) if any(k is other for other in above))
    indices = stored_indices(write.block, write.region.buffer)
    box = None if indices is None else written_box(s, write.block, indices, both)
    if box is None:
        return False
    shared = set(s.loops_around(both)) | {both}
    inner = [v for v in s.loops_around(read.block.name) if v not in shared]
    return holds_guards(s, box, read.block) and is_inside(Forms(s, None, inner), read, box)


def holds_guards(s: State, box: Box, block: Block) -> bool:
    if not box.guards:
        return True
    known = [s.resolve(c) for c in block.predicate]
    return all(any(same_expr(c, guard) for c in known) for guard in box.guards)


def is_inside(forms: Forms, read: Access, box: Box) -> bool:
    rows = forms.region(read.region, read.values)
    for form, (start, count, limit), size in zip(rows, box.ranges, read.region.buffer.shape, strict=True):
        first = forms.expr(start)
        if form is None or first is None or form.fixed != first.fixed:
            return False
        low, high = form.low, form.high
        if not form.fixed:
            low, high = max(low, 0), min(high, size - 1)
        if low < first.base or high >= first.base + count:
            return False
        # What lies behind the limit is not written; it must be behind the end of the buffer, too.
        if limit is not None and limit < size and (form.fixed or high >= limit):
            return False
    return True


# --- neighbours -----------------------------------------------------------------------------------


def crossing(s: State, loops: list[Var]) -> str | None:
    """Why loops that follow one another may not become one: an iteration of a later loop needs or disturbs
    iterations of an earlier one that would come after it. None if that is certainly not so."""
    parts = [touched_by(s, s.children[v]) for v in loops]
    for part in parts:
        if part.problem:
            return part.problem
    for n, later in enumerate(parts):
        for m, earlier in enumerate(parts[:n]):
            for buffer in dict.fromkeys([*earlier.written(), *later.written()]):
                if buffer in earlier.loaded or buffer in later.loaded:
                    return f"{buffer.name} is written, and an extent or a condition depends on it"
                before = forms_by_access(s, loops[m], earlier.loops, earlier.of(buffer))
                after = forms_by_access(s, loops[n], later.loops, later.of(buffer))
                extent = s.fixed_extent(loops[m])
                for a, first in before:
                    for b, second in after:
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


def forms_by_access(
    s: State, loop: Var, inner: list[Var], group: list[Access]
) -> list[tuple[Access, list[Form | None]]]:
    forms = Forms(s, loop, inner)
    return [(a, forms.region(a.region, a.values)) for a in group]
