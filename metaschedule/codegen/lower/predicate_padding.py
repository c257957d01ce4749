"""Zeros by construction, left out: padding as conditions on statements, which unrolling and versions decide.

`C = C + select(c, x, 0) * w` becomes `if c: C = C + x * w`. With the loops of `c` split and unrolled the
condition folds away, and a transposed convolution no longer multiplies the zeros between its pixels. Not
exact where `w` is infinite or NaN and meets a padding zero, so it is done only where a schedule asks.

`P = select(c, x, 0)` becomes `P = 0; if c: P = x`. In a tile of registers the dead zeros vanish.
"""

from __future__ import annotations

from functools import lru_cache

from ... import ir


def predicate_padding(body: ir.Body) -> ir.Body:
    """Statements with each store under the condition that it adds or copies no padding zero, where it is of
    that form."""
    return tuple([new for s in body for new in (predicate_store(s) if isinstance(s, ir.Store) else (s,))])


@lru_cache(maxsize=1024)
def predicate_store(s: ir.Store) -> ir.Body:
    """The same for the same store: cost models remember what they have worked out of it."""
    value = s.value
    if isinstance(value, ir.Select) and isinstance(value.b, ir.Const):
        return ir.Store(s.buffer, s.indices, value.b), ir.If(
            value.cond, (ir.Store(s.buffer, s.indices, value.a),)
        )
    if not isinstance(value, ir.Binary) or value.op != "+":
        return (s,)
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, ir.Load) and own.buffer is s.buffer and ir.same_exprs(own.indices, s.indices):
            found = split_padding(term)
            if found is not None:
                cond, factor = found
                return (
                    ir.If(cond, (ir.Store(s.buffer, s.indices, ir.Binary("+", own, factor, value.dtype)),)),
                )
    return (s,)


def split_padding(term: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    """(condition, term) of a product with a factor `select(condition, x, 0)`."""
    if isinstance(term, ir.Select) and isinstance(term.b, ir.Const) and term.b.value == 0:
        return term.cond, term.a
    if isinstance(term, ir.Binary) and term.op == "*":
        for inner, other, swap in ((term.a, term.b, False), (term.b, term.a, True)):
            found = split_padding(inner)
            if found is not None:
                cond, factor = found
                a, b = (other, factor) if swap else (factor, other)
                return cond, ir.Binary("*", a, b, term.dtype)
    return None
