"""Whether a vectorised loop may run all its iterations at once, and how it is cut into vectors.

Every kind of loop means what the serial loop means. Lanes run a statement together where the serial
loop would run the whole body iteration by iteration, so a loop that carries a value from one iteration
to another must stay serial, except for a reduction into one element, which becomes a horizontal one.
"""

from __future__ import annotations

from ...ir import (
    Assert,
    Binary,
    Block,
    Body,
    Expr,
    For,
    Load,
    Stmt,
    Store,
    Var,
    While,
    own_expressions,
    same_expr,
    subexpressions,
    walk,
)

REDUCTIONS = ("+", "*", "min", "max")


def mentions(e: Expr, var: Var) -> bool:
    return any(x is var for x in subexpressions(e))


def reduction_term(s: Store) -> tuple[str, Expr] | None:
    """(operator, term) of `buffer[i] = buffer[i] op term`."""
    value = s.value
    if not isinstance(value, Binary) or value.op not in REDUCTIONS:
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if is_own_load(own, s) and not any(
            isinstance(x, Load) and x.buffer is s.buffer for x in subexpressions(term)
        ):
            return value.op, term
    return None


def is_own_load(e: Expr, s: Store) -> bool:
    return isinstance(e, Load) and e.buffer is s.buffer and same_indices(e.indices, s.indices)


def same_indices(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return len(a) == len(b) and all(same_expr(x, y) for x, y in zip(a, b, strict=True))


def has_independent_lanes(loop: For) -> bool:
    """Whether running the iterations together, statement by statement, means the serial loop."""
    lane = loop.var
    stores: dict[object, list[Store]] = {}
    for s in walk(loop.body):
        if isinstance(s, (While, Block)) or (isinstance(s, For) and "." in s.kind):
            return False
        if isinstance(s, Store):
            stores.setdefault(s.buffer, []).append(s)
    for group in stores.values():
        if any(not same_indices(s.indices, group[0].indices) for s in group):
            return False
    return all(_is_independent(s, lane, stores) for s in walk(loop.body))


def _is_independent(s: Stmt, lane: Var, stores: dict[object, list[Store]]) -> bool:
    reduced: Expr | None = None
    if isinstance(s, Store) and not any(mentions(i, lane) for i in s.indices):
        if any(isinstance(x, Load) for i in s.indices for x in subexpressions(i)):
            return False
        term = reduction_term(s)
        if len(stores[s.buffer]) > 1:
            return False
        if term is None:
            if is_varying(s.value, lane, stores):
                return False
        else:
            reduced = term[1]
    for e in own_expressions(s) if reduced is None else (*s.indices, reduced):  # pyright: ignore
        if isinstance(s, For) and is_varying(e, lane, stores):
            return False
        for x in subexpressions(e):
            if isinstance(x, Load) and x.buffer in stores:
                target = stores[x.buffer][0]
                if not same_indices(x.indices, target.indices):
                    return False
                if not any(mentions(i, lane) for i in target.indices):
                    return False  # an element shared by all lanes, seen in the middle of a reduction
    return True


def is_varying(e: Expr, lane: Var, stores: dict[object, list[Store]]) -> bool:
    """Whether an expression may differ between lanes."""
    return any(x is lane or (isinstance(x, Load) and x.buffer in stores) for x in subexpressions(e))


def vector_widths(extent: int, most: int) -> list[tuple[int, int]]:
    """(first index, lanes) pieces of `extent` iterations: powers of two, at most `most`."""
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < extent:
        lanes = min(1 << ((extent - at).bit_length() - 1), most)
        pieces.append((at, lanes))
        at += lanes
    return pieces


def contains_assert(body: Body) -> bool:
    return any(isinstance(s, Assert) for s in walk(body))
