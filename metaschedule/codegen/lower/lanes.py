"""Whether a vectorised loop may run all its iterations at once, and how it is cut into vectors.

Every kind of loop means what the serial loop means. Lanes run a statement together where the serial
loop would run the whole body iteration by iteration, so a loop that carries a value from one iteration
to another must stay serial, except for a reduction into one element, which becomes a horizontal one.

An element that several lanes may touch is fine only where one statement stores to it, nothing reads it
and no inner loop comes in between: a scatter keeps the order of the lanes. Otherwise the lanes must be
seen to have elements of their own: by the one place of all accesses (`lanes_apart`), or by one axis of every
access (`find_separated`).

for v in T.vectorized(8): for k in range(3): B[v, k] = ...; for k in range(2): B[v, k + 3] = B[v, k] + ...
axis 0 is v for all accesses, so that lane 2 has row 2 and no other lane has
"""

from __future__ import annotations

import math

from ... import ir
from ...affine.form import form_of
from ...affine.injective import is_one_to_one
from ...arith import Domain

REDUCTIONS = ("+", "*", "min", "max")


def mentions(e: ir.Expr, var: ir.Var) -> bool:
    return any(x is var for x in ir.subexpressions(e))


def has_independent_lanes(loop: ir.For, domain: Domain) -> bool:
    """Whether running the iterations together, statement by statement, means the serial loop. `domain`
    has the loops around."""
    lane = loop.var
    stores: dict[object, list[ir.Store]] = {}
    tuples: set[ir.Stmt] = set()
    read: set[object] = set()
    inner: list[ir.For] = []
    for s in ir.walk(loop.body):
        if isinstance(s, (ir.While, ir.Block)) or (isinstance(s, ir.For) and "." in s.kind):
            return False
        if isinstance(s, ir.For):
            inner.append(s)
        elif isinstance(s, ir.Store):
            stores.setdefault(s.buffer, []).append(s)
        elif isinstance(s, ir.TupleStore):
            tuples.update(s.stores)
        read |= {x.buffer for e in ir.own_expressions(s) for x in ir.subexpressions(e) if type(x) is ir.Load}
    repeated = {t for f in inner for t in ir.walk(f.body)}
    guarded = {t for s in ir.walk(loop.body) if isinstance(s, ir.If) for t in ir.walk((*s.then, *s.orelse))}
    separated = find_separated(loop, inner, set(stores))
    for buffer, group in stores.items():
        if buffer in separated:
            continue
        first = group[0]
        if any(not ir.same_exprs(s.indices, first.indices) for s in group):
            return False
        if any(mentions(i, lane) for i in first.indices):
            alone = len(group) == 1 and buffer not in read and first not in repeated
            if not alone and not lanes_apart(first.indices, loop, inner, set(stores), domain):
                return False
        elif ir.reduction_term(first, REDUCTIONS) is None or first in tuples:
            # All lanes store the same value; if only some do, it must not matter when.
            when = first in guarded and any(mentions(first.value, f.var) for f in inner)
            if when or is_varying(first.value, lane, stores):
                return False
    return all(_is_independent(s, lane, stores, separated) for s in ir.walk(loop.body))


def find_separated(loop: ir.For, inner: list[ir.For], stored: set[object]) -> set[object]:
    """The buffers of which every lane has a slice of its own: on some axis all accesses have one index, which
    different lanes have different values of."""
    found: dict[object, list[tuple[ir.Expr, ...]]] = {}
    for s in ir.walk(loop.body):
        if isinstance(s, ir.Store):
            found.setdefault(s.buffer, []).append(s.indices)
        for e in ir.own_expressions(s):
            for x in ir.subexpressions(e):
                if isinstance(x, ir.Load) and x.buffer in stored:
                    found.setdefault(x.buffer, []).append(x.indices)
    moving = {f.var: f.fixed_extent for f in (loop, *inner)}
    return {
        buffer
        for buffer, accesses in found.items()
        if any(
            all(ir.same_expr(indices[axis], accesses[0][axis]) for indices in accesses)
            and is_distinct(accesses[0][axis], loop, moving, stored)
            for axis in range(len(accesses[0]))
        )
    }


def is_distinct(index: ir.Expr, loop: ir.For, moving: dict[ir.Var, int | None], stored: set[object]) -> bool:
    """Whether different lanes have different values of an index, whatever the loops inside are at."""
    lanes = moving[loop.var]
    assert lanes is not None
    found = coefficients(index, moving, stored)
    if found is None or not (step := abs(found.pop(loop.var, 0))):
        return False
    others = math.gcd(*found.values())
    return not others or step * (lanes - 1) < others


def lanes_apart(
    indices: tuple[ir.Expr, ...], loop: ir.For, inner: list[ir.For], stored: set[object], domain: Domain
) -> bool:
    """Whether different lanes certainly have different elements, whatever the loops inside are at."""
    extents = {f.var: f.fixed_extent for f in (loop, *inner)}
    if any(is_distinct(index, loop, extents, stored) for index in indices):
        return True
    own = [i for i in indices if all(v in extents for v in ir.free_vars(i))]  # the loops around stand still
    moved = {v: extents[v] for i in own for v in ir.free_vars(i)}
    known = {v: n for v, n in moved.items() if n is not None}
    if loop.var in known and len(known) == len(moved) and is_one_to_one(own, known):
        return True
    used = {x for i in indices for x in ir.subexpressions(i) if isinstance(x, ir.Var)}
    for var, extent in domain.extents.items():
        extents.setdefault(var, extent if isinstance(extent, int) else ir.as_int(extent))
    known = {v: n for v, n in extents.items() if v in used and n is not None}
    return len(known) == len(used) and is_one_to_one(indices, known)


def coefficients(
    e: ir.Expr, moving: dict[ir.Var, int | None], stored: set[object]
) -> dict[ir.Var, int] | None:
    """The factors of the moving variables in `e`, the rest of which stands still; None if not linear."""
    found: dict[ir.Var, int] = {}
    for x, factor in form_of(e).terms:
        if type(x) is ir.Var:
            found |= {x: factor} if x in moving else {}
        elif any(y in moving or (type(y) is ir.Load and y.buffer in stored) for y in ir.subexpressions(x)):
            return None
    return found


def _is_independent(
    s: ir.Stmt, lane: ir.Var, stores: dict[object, list[ir.Store]], separated: set[object]
) -> bool:
    reduced: ir.Expr | None = None
    if (
        isinstance(s, ir.Store)
        and s.buffer not in separated
        and not any(mentions(i, lane) for i in s.indices)
    ):
        if any(isinstance(x, ir.Load) for i in s.indices for x in ir.subexpressions(i)):
            return False
        term = ir.reduction_term(s, REDUCTIONS)
        if len(stores[s.buffer]) > 1:
            return False
        if term is None:
            if is_varying(s.value, lane, stores):
                return False
        else:
            reduced = term[1]
    for e in ir.own_expressions(s) if reduced is None else (*s.indices, reduced):  # pyright: ignore
        if isinstance(s, ir.For) and is_varying(e, lane, stores):
            return False
        for x in ir.subexpressions(e):
            if isinstance(x, ir.Load) and x.buffer in stores and x.buffer not in separated:
                target = stores[x.buffer][0]
                if not ir.same_exprs(x.indices, target.indices):
                    return False
                if not any(mentions(i, lane) for i in target.indices):
                    return False  # an element shared by all lanes, seen in the middle of a reduction
    return True


def is_varying(e: ir.Expr, lane: ir.Var, stores: dict[object, list[ir.Store]]) -> bool:
    """Whether an expression may differ between lanes."""
    return any(x is lane or (isinstance(x, ir.Load) and x.buffer in stores) for x in ir.subexpressions(e))


def vector_widths(extent: int, most: int) -> list[tuple[int, int]]:
    """(first index, lanes) pieces of `extent` iterations: powers of two, at most `most`."""
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < extent:
        lanes = min(1 << ((extent - at).bit_length() - 1), most)
        pieces.append((at, lanes))
        at += lanes
    return pieces
