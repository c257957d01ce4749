"""Expressions to polynomials (`canonical`) and to simpler expressions (`rewrite`).

The two call each other: a load's index is a polynomial, a polynomial's atom may be a select on
floats. Only index arithmetic (int64) is treated as unbounded integers. Narrower integers wrap,
so an operation on them is opaque, with the range of its dtype, unless bounds show that it cannot
wrap. Loads are atoms: two loads at equal indices are taken to be equal, which holds for
expressions evaluated at one place.

Refuses: floats are left to round as written, only what is inside them is simplified.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from .. import ir
from . import polynomial as poly
from .bounds import is_reached, lower, upper
from .comparison import MIRRORED, NEGATED, always, never_zero, reduce
from .division import atom, divide_any, floordiv, remainder
from .express import TooLarge, express, express_term, terms, total
from .polynomial import Composite, Poly

if TYPE_CHECKING:
    from .domain import Domain


def canonical(e: ir.Expr, domain: Domain) -> Poly:
    """The value of an integer expression as a polynomial."""
    if isinstance(e, ir.Var):
        value = domain.singletons.get(e) if domain.singletons else None
        return {(e,): 1} if value is None else poly.constant(value)
    if isinstance(e, ir.Const):
        return poly.constant(int(e.value))
    if isinstance(e, ir.Binary):
        return unwrap(arithmetic(e, domain), e, domain)
    if isinstance(e, ir.Load):
        indices = tuple([canonical(index, domain) for index in e.indices])
        key = (e.buffer, tuple([poly.freeze(index) for index in indices]))
        return atom(Composite("load", (e.buffer, indices), key), domain)
    if isinstance(e, ir.Select):
        return choice(e, domain)
    if isinstance(e, ir.Cast):
        if ir.is_integer(e.a.dtype):
            return unwrap(canonical(e.a, domain), e, domain)
        if e.a.dtype == "bool":
            condition = rewrite(e.a, domain)
            if isinstance(condition, ir.Const):
                return poly.constant(int(condition.value))
            return opaque(ir.Cast(condition, ir.INDEX), domain)
        return opaque(e, domain)
    if isinstance(e, ir.Unary):
        p = canonical(e.a, domain)
        p = poly.scale(p, -1) if e.op == "-" else poly.add(poly.constant(-1), p, -1)
        return unwrap(p, e, domain)
    if isinstance(e, ir.Call) and e.name == "abs":
        p = canonical(e.args[0], domain)
        if is_reached(lower(p, domain, 0), 0):
            return p
        if is_reached(lower(poly.scale(p, -1), domain, 0), 0):
            return unwrap(poly.scale(p, -1), e, domain)
    return opaque(e, domain)


def arithmetic(e: ir.Binary, domain: Domain) -> Poly:
    """A binary operation on unbounded integers."""
    a, b, op = canonical(e.a, domain), canonical(e.b, domain), e.op
    if op == "+":
        return poly.add(a, b)
    if op == "-":
        return poly.add(a, b, -1)
    if op == "*":
        return poly.multiply(a, b)
    if op == "//":
        q = divide_any(a, b, domain)
        return opaque(e, domain) if q is None else q
    if op == "%":
        q = divide_any(a, b, domain)
        return opaque(e, domain) if q is None else poly.add(a, poly.multiply(q, b), -1)
    if op in ("min", "max"):
        return extremum(op, a, b, domain)
    value = poly.as_constant(b)
    if value is not None and e.dtype == ir.INDEX and 0 <= value < 63:
        if op == "<<":
            return poly.scale(a, 1 << value)
        if op == ">>":
            return floordiv(a, 1 << value, domain)
    if op == "&" and value is not None and value > 0 and value & (value + 1) == 0:
        return remainder(a, value + 1, domain)
    return opaque(e, domain)


def unwrap(p: Poly, e: ir.Expr, domain: Domain) -> Poly:
    """p, the unbounded value of e, if that is certainly what e's dtype holds."""
    if e.dtype == ir.INDEX:
        return p
    least, most = ir.integer_limits(e.dtype)
    if is_reached(lower(p, domain, least), least):
        high = upper(p, domain, most)
        if high is not None and high <= most:
            return p
    return opaque(e, domain)


def extremum(op: str, a: Poly, b: Poly, domain: Domain) -> Poly:
    difference = poly.add(a, b, -1)
    if always("<=", difference, domain):
        return a if op == "min" else b
    if always(">=", difference, domain):
        return b if op == "min" else a
    key = frozenset((poly.freeze(a), poly.freeze(b)))
    return atom(Composite(op, (a, b), key), domain)


def choice(e: ir.Select, domain: Domain) -> Poly:
    condition = rewrite(e.cond, domain)
    if isinstance(condition, ir.Const):
        return canonical(e.a if condition.value else e.b, domain)
    a = canonical(e.a, domain.with_fact(condition))
    b = canonical(e.b, domain.with_fact(~condition))
    if a == b:
        return a
    key = (structure(condition, domain), poly.freeze(a), poly.freeze(b))
    return atom(Composite("select", (condition, a, b), key), domain)


def opaque(e: ir.Expr, domain: Domain) -> Poly:
    e = ir.map_operands(e, lambda child: rewrite(child, domain))
    return atom(Composite("expr", (e,), structure(e, domain)), domain)


def structure(e: ir.Expr, domain: Domain) -> Hashable:
    """A key that expressions of equal form share; sums and products in it count by value."""
    if isinstance(e, ir.Var):
        return e
    if isinstance(e, ir.Const):
        return (repr(e.value), e.dtype)
    head: Hashable = None
    if isinstance(e, ir.Binary):
        if e.dtype == ir.INDEX and e.op in ("+", "-", "*"):
            return poly.freeze(canonical(e, domain))
        head = e.op
    elif isinstance(e, ir.Load):
        head = e.buffer
    elif isinstance(e, ir.Unary):
        head = e.op
    elif isinstance(e, ir.Call):
        head = e.name
    return (type(e), head, e.dtype, tuple([structure(child, domain) for child in ir.operands(e)]))


# --- expressions to expressions -------------------------------------------------------------------


def rewrite(e: ir.Expr, domain: Domain) -> ir.Expr:
    """An expression of equal value at every point of the domain, of the same dtype."""
    if isinstance(e, ir.Const) or (isinstance(e, ir.Var) and e not in domain.singletons):
        return e
    dtype = e.dtype
    try:
        if dtype == ir.INDEX:
            return express(canonical(e, domain), domain)
        if dtype == "bool":
            return condition(e, domain)
        if ir.is_integer(dtype):
            value = poly.as_constant(canonical(e, domain))
            if value is not None:
                return ir.Const(value, dtype)
    except TooLarge:
        pass
    if isinstance(e, ir.Select):
        return select(e, domain)  # pyright: ignore[reportArgumentType]
    return ir.map_operands(e, lambda child: rewrite(child, domain))


def select(e: ir.Select, domain: Domain) -> ir.Expr:
    cond = rewrite(e.cond, domain)
    if isinstance(cond, ir.Const):
        return rewrite(e.a if cond.value else e.b, domain)
    a, b = branch(e.a, cond, domain), branch(e.b, ~cond, domain)
    if ir.same_expr(a, b):
        return a
    return ir.Select(cond, a, b, e.dtype)


def branch(e: ir.Expr, cond: ir.Expr, domain: Domain) -> ir.Expr:
    """What is evaluated only where a condition holds."""
    if isinstance(e, ir.Const):
        return e
    return rewrite(e, domain.with_fact(cond))


def condition(e: ir.Expr, domain: Domain) -> ir.Expr:
    if isinstance(e, ir.Binary):
        if e.op in ("and", "or"):
            return logical(e, domain)
        if e.op in NEGATED and ir.is_integer(e.a.dtype):
            return compare(e, domain)
    elif isinstance(e, ir.Unary) and e.op == "not":
        inner = e.a
        if isinstance(inner, ir.Binary) and inner.op in NEGATED and not ir.is_float(inner.a.dtype):
            return rewrite(ir.Binary(NEGATED[inner.op], inner.a, inner.b, "bool"), domain)
        if isinstance(inner, ir.Unary) and inner.op == "not":
            return rewrite(inner.a, domain)
        inner = rewrite(inner, domain)
        return ir.Const(not inner.value, "bool") if isinstance(inner, ir.Const) else decide(~inner, domain)
    elif isinstance(e, ir.Select):
        return select(e, domain)
    elif isinstance(e, ir.Cast) and ir.is_integer(e.a.dtype):
        p = canonical(e.a, domain)
        if always("!=", p, domain):
            return ir.Const(True, "bool")
        if always("==", p, domain):
            return ir.Const(False, "bool")
    return decide(ir.map_operands(e, lambda child: rewrite(child, domain)), domain)


def decide(e: ir.Expr, domain: Domain) -> ir.Expr:
    """A condition that stays as it is, unless it or its negation is a fact."""
    if domain.known and not isinstance(e, ir.Const):
        truth = domain.known.get(structure(e, domain))
        if truth is not None:
            return ir.Const(truth, "bool")
    return e


def logical(e: ir.Binary, domain: Domain) -> ir.Expr:
    a = rewrite(e.a, domain)
    stop = e.op == "or"  # the value of `a` that decides
    if isinstance(a, ir.Const):
        return a if a.value is stop else rewrite(e.b, domain)
    # The second operand is evaluated only where the first has not decided.
    b = rewrite(e.b, domain.with_fact(~a if stop else a))
    if isinstance(b, ir.Const):
        return b if b.value is stop else a
    return ir.Binary(e.op, a, b, "bool")


def compare(e: ir.Binary, domain: Domain) -> ir.Expr:
    """A comparison of integers: decided, or with common parts and factors removed."""
    p = poly.add(canonical(e.a, domain), canonical(e.b, domain), -1)
    if always(e.op, p, domain):
        return ir.Const(True, "bool")
    if always(NEGATED[e.op], p, domain):
        return ir.Const(False, "bool")
    if e.a.dtype != ir.INDEX:
        return ir.map_operands(e, lambda child: rewrite(child, domain))
    op, p = reduce(e.op, p)
    if op in ("==", "!=") and never_zero(p):
        return ir.Const(op == "!=", "bool")
    found, offset = terms(p, domain)
    if all(c < 0 for c, _ in found):
        op, offset, found = MIRRORED[op], -offset, [(-c, t) for c, t in found]
    left = [(c, express_term(t, domain)) for c, t in found if c > 0]
    right = [(-c, express_term(t, domain)) for c, t in found if c < 0]
    # left + offset op right, for integers: i + 1 <= j is i < j.
    if right and (op, offset) in STEPS:
        op, offset = STEPS[op, offset], 0
    if right and offset > 0:
        return ir.Binary(op, total(left, offset), total(right, 0), "bool")
    return ir.Binary(op, total(left, 0), total(right, -offset), "bool")


STEPS = {("<=", 1): "<", ("<", -1): "<=", (">=", -1): ">", (">", 1): ">="}
