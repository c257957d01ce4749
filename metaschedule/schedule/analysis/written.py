"""Which elements of a buffer a block stores for sure, while the loops below some node run.

A copy may only read what has been written (the interpreter holds a program to that), so a cache stage
copies the box that `written_box` proves, no more. Variables that were split or fused still stand in bindings
and range over their whole extents, whatever loops they consist of; a guard that says no more than
`var < extent` of such a variable excludes nothing. That makes the usual case cheap: bindings that are
variables are a box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...arith import Domain, iteration_map, relax, simplify
from ...ir import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Load,
    Store,
    TupleStore,
    Var,
    as_int,
    expressions,
    free_vars,
    same_expr,
    substitute,
    walk,
)
from ..state import ROOT, Key, Part, Split, State

ZERO = Const(0, INDEX)


@dataclass(slots=True)
class Box:
    """Per dimension the first index, how many from there on, and the index to stop before (None: none); all
    of it where `guards` hold. The expressions are over loops outside of the box."""

    ranges: list[tuple[Expr, int, int | None]]
    guards: list[Expr]

    def is_whole(self, shape: Sequence[int]) -> bool:
        if self.guards:
            return False
        for (start, count, limit), size in zip(self.ranges, shape, strict=True):
            if as_int(start) != 0 or (count if limit is None else min(count, limit)) < size:
                return False
        return True


def whole_box(shape: Sequence[int]) -> Box:
    return Box([(ZERO, size, None) for size in shape], [])


def stored_indices(block: Block, buffer: Buffer) -> tuple[Expr, ...] | None:
    """Where every instance of a block stores to a buffer: one element, unconditionally; None if not so."""
    certain = [
        x
        for s in block.body
        for x in (s.stores if isinstance(s, TupleStore) else (s,))
        if isinstance(x, Store) and x.buffer is buffer
    ]
    if not certain:
        return None
    indices = certain[0].indices
    for s in walk((*block.init, *block.body)):
        if isinstance(s, Store) and s.buffer is buffer and not all(map(same_expr, s.indices, indices)):
            return None
    return indices


def own_accesses(block: Block, buffer: Buffer) -> list[tuple[Expr, ...]]:
    """The indices of every load and store of a buffer in the body of a block, in no special order."""
    body = (*block.init, *block.body)
    found = [s.indices for s in walk(body) if isinstance(s, Store) and s.buffer is buffer]
    return found + [e.indices for e in expressions(body) if isinstance(e, Load) and e.buffer is buffer]


def definition_closure(s: State, roots: Iterable[Var]) -> set[Var]:
    """The variables that `roots` consist of, themselves and the loops included."""
    found: set[Var] = set()
    waiting = list(roots)
    while waiting:
        var = waiting.pop()
        if var not in found:
            found.add(var)
            known = s.definitions.get(var)
            if known is not None:
                waiting += known.digits if isinstance(known, Split) else (known.whole,)
    return found


def are_independent(s: State, roots: Sequence[Var]) -> bool:
    """Whether all combinations of values of the variables occur while their loops run: they share no loop,
    but that they may be different digits of one fused loop."""
    if not s.definitions:
        return len({*roots}) == len(roots)
    owners: dict[Var, Var] = {}
    seen: set[Var] = set()
    waiting = list(roots)
    while waiting:
        var = waiting.pop()
        if var in seen:
            return False
        seen.add(var)
        known = s.definitions.get(var)
        if isinstance(known, Split):
            waiting += known.digits
            continue
        owner = var if known is None else known.whole
        if any(owners.setdefault(leaf, owner) is not owner for leaf in s.leaves(var)):
            return False
    return True


def is_range_guard(s: State, cond: Expr, known: set[Var]) -> bool:
    """Whether a condition only keeps one of the `known` variables within its range."""
    if not (isinstance(cond, Binary) and cond.op == "<" and type(cond.a) is Var and cond.a in known):
        return False
    if cond.a not in s.definitions:
        return False
    extent = s.extents[cond.a]
    return cond.b is extent or ((n := as_int(extent)) is not None and as_int(cond.b) == n)


def written_box(s: State, block: Block, indices: Sequence[Expr], under: Key) -> Box | None:
    """The box that `indices` (over the iterators of a block) take while the part of the tree below `under`
    runs once, each point of it for sure; None if that is not known."""
    inner: set[Var] = set()
    for above in s.ancestors(block.name):
        if above is under:
            break
        if not isinstance(above, Var) or not as_int(s.extents[above]):
            return None  # a condition, or a loop that may be empty
        inner.add(above)
    else:
        if under is not ROOT:
            return None
    bindings = dict(zip([it.var for it in block.iters], block.bindings, strict=True))
    inside: dict[Var, bool | None] = {}  # None: of loops on both sides

    def place(var: Var) -> bool | None:
        if var not in inside:
            among = [leaf in inner for leaf in s.leaves(var)]
            inside[var] = True if all(among) else None if any(among) else False
        return inside[var]

    limits: dict[Var, int] = {}  # by iterator
    guards: list[Expr] = []
    if block.predicate:
        known = definition_closure(s, [v for b in block.bindings for v in free_vars(b)])
        for cond in block.predicate:
            places = {place(v) for v in free_vars(cond)}
            if places <= {False}:
                guards.append(s.resolve(cond))
            elif is_range_guard(s, cond, known) and places == {True}:
                continue
            else:  # it must clip an iterator
                limit = as_int(cond.b) if isinstance(cond, Binary) and cond.op == "<" else None
                clipped = [v for v, b in bindings.items() if limit is not None and same_expr(b, cond.a)]  # pyright: ignore
                if limit is None or not clipped:
                    return None
                limits[clipped[0]] = min(limit, limits.get(clipped[0], limit))
                if not any(index is clipped[0] for index in indices):
                    return None
    values: list[Expr] = []
    loops: dict[Var, int] = {}
    for index in indices:
        value = substitute(index, bindings)
        while mixed := [v for v in free_vars(value) if place(v) is None]:
            known_values = {v: e for v in mixed if (e := s.definition(v)) is not None}
            value = substitute(value, known_values)
        for var in free_vars(value):
            if place(var):
                extent = as_int(s.extents[var])
                if not extent:
                    return None
                loops[var] = extent
        values.append(value)
    found = ranges_of(values, loops) if are_independent(s, list(loops)) else None
    if found is None:
        return None
    return Box(
        [
            (s.resolve(start), count, limits.get(index) if type(index) is Var else None)
            for index, (start, count) in zip(indices, found, strict=True)
        ],
        guards,
    )


def ranges_of(values: list[Expr], loops: dict[Var, int]) -> list[tuple[Expr, int]] | None:
    """First value and number of values of each expression while `loops` run, if all combinations occur."""
    parts = [offset_and_loop(v, loops) for v in values]
    moving = [part[1] for part in parts if part is not None and part[1] is not None]
    if None not in parts and len(moving) == len({*moving}):
        return [(start, 1 if var is None else loops[var]) for start, var in parts]  # pyright: ignore
    ranges: list[tuple[Expr, int]] = []
    offsets: list[Expr] = []
    for value in values:
        found = relax(value, loops, Domain())
        count = None if found is None else as_int(found[1])
        if found is None or count is None:
            return None
        ranges.append((found[0], count))
        offsets.append(simplify(value - found[0], Domain(loops)))
    mapped = iteration_map(offsets, loops)
    if mapped is None or not mapped.surjective:
        return None
    if any(span != (0, count - 1) for span, (_, count) in zip(mapped.ranges, ranges, strict=True)):
        return None
    return ranges


def offset_and_loop(value: Expr, loops: dict[Var, int]) -> tuple[Expr, Var | None] | None:
    """`value` as something that stands still plus at most one loop; None if it is more than that."""
    still: Expr = ZERO
    moving: Var | None = None
    addends = [value]
    while addends:
        e = addends.pop()
        if isinstance(e, Var) and e in loops:
            if moving is not None:
                return None
            moving = e
        elif isinstance(e, Binary) and e.op == "+":
            addends += (e.b, e.a)
        elif any(v in loops for v in free_vars(e)):
            return None
        else:
            still = still + e
    return still, moving


def runs_once_per_point(s: State, block: Block, loops: Sequence[Var]) -> bool:
    """Whether `loops` run every point of a block's iterators exactly once, and every extent is a constant."""
    extents = [as_int(it.extent) for it in block.iters]
    if None in extents:
        return False
    roots = [b for b in block.bindings if type(b) is Var]
    if len(roots) == len(block.bindings) and are_independent(s, roots):
        known = definition_closure(s, roots)
        parts = [d for v in known if isinstance(d := s.definitions.get(v), Part)]
        if (
            all(s.fixed_extent(v) == n for v, n in zip(roots, extents, strict=True))
            and all(v in known or s.fixed_extent(v) == 1 for v in loops)
            and {leaf for v in roots for leaf in s.leaves(v)} <= {*loops}
            and all(digit in known for part in parts for digit in part.digits)
            and all(is_range_guard(s, c, known) for c in block.predicate)
        ):
            return True
    sizes = {v: n for v in loops if (n := as_int(s.extents[v])) is not None}
    if len(sizes) != len(loops) or block.predicate:
        return False
    found = iteration_map([s.resolve(b) for b in block.bindings], sizes)
    if found is None or not found.bijective:
        return False
    return all(span == (0, (n or 0) - 1) for span, n in zip(found.ranges, extents, strict=True))
