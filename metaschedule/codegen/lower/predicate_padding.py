"""Zeros by construction, left out: padding as conditions on statements, which unrolling and versions decide.

`C = C + select(c, x, 0) * w` becomes `if c: C = C + x * w`. With the loops of `c` split and unrolled the
condition folds away, and a transposed convolution no longer multiplies the zeros between its pixels. Not
exact where `w` is infinite or NaN and meets a padding zero, so it is done only where a schedule asks.

`P = select(c, x, 0)` becomes `P = 0; if c: P = x`. In a tile of registers the dead zeros vanish.
"""

from __future__ import annotations

from functools import lru_cache

from ...ir import Binary, Body, Const, Expr, If, Load, Select, Store, same_expr


def predicate_padding(body: Body) -> Body:
    """Statements with each store under the condition that it adds or copies no padding zero, where it is of
    that form."""
    return tuple([new for s in body for new in (predicate_store(s) if isinstance(s, Store) else (s,))])


@lru_cache(maxsize=1024)
def predicate_store(s: Store) -> Body:
    """The same for the same store: cost models remember what they have worked out of it."""
    value = s.value
    if isinstance(value, Select) and isinstance(value.b, Const):
        return Store(s.buffer, s.indices, value.b), If(value.cond, (Store(s.buffer, s.indices, value.a),))
    if not isinstance(value, Binary) or value.op != "+":
        return (s,)
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, Load) and own.buffer is s.buffer and _same(own.indices, s.indices):
            found = split_padding(term)
            if found is not None:
                cond, factor = found
                return (If(cond, (Store(s.buffer, s.indices, Binary("+", own, factor, value.dtype)),)),)
    return (s,)


def split_padding(term: Expr) -> tuple[Expr, Expr] | None:
    """(condition, term) of a product with a factor `select(condition, x, 0)`."""
    if isinstance(term, Select) and isinstance(term.b, Const) and term.b.value == 0:
        return term.cond, term.a
    if isinstance(term, Binary) and term.op == "*":
        for inner, other, swap in ((term.a, term.b, False), (term.b, term.a, True)):
            found = split_padding(inner)
            if found is not None:
                cond, factor = found
                a, b = (other, factor) if swap else (factor, other)
                return cond, Binary("*", a, b, term.dtype)
    return None


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(map(same_expr, a, b))
