"""Conditions: proving them over a domain, and turning them into facts.

`holds` is sound and incomplete: False means "not proved". Conditions on integers become
polynomials compared with zero; any other condition is known only if the same condition is among
the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ir
from .bounds import lower, upper
from .canonical import canonical, rewrite, structure
from .comparison import NEGATED, always
from .polynomial import Poly, add, scale, shift

if TYPE_CHECKING:
    from .domain import Domain


def negation(c: ir.Expr) -> ir.Expr:
    """`not c`, pushed inwards. Comparisons of floats stay as they are: NaN makes both false."""
    if isinstance(c, ir.Const):
        return ir.Const(not c.value, "bool")
    if isinstance(c, ir.Unary) and c.op == "not":
        return c.a
    if isinstance(c, ir.Binary):
        if c.op in NEGATED and ir.is_integer(c.a.dtype):
            return ir.Binary(NEGATED[c.op], c.a, c.b, "bool")
        if c.op in ("and", "or"):
            op = "or" if c.op == "and" else "and"
            return ir.Binary(op, negation(c.a), negation(c.b), "bool")
    return ir.Unary("not", c, "bool")


def holds(c: ir.Expr, domain: Domain) -> bool:
    if domain.empty:
        return True
    if isinstance(c, ir.Const):
        return bool(c.value)
    if isinstance(c, ir.Binary):
        if c.op == "and":
            return holds(c.a, domain) and holds(c.b, domain.with_fact(c.a))
        if c.op == "or":
            return holds(c.a, domain) or holds(c.b, domain) or holds(c.b, domain.with_fact(negation(c.a)))
        if c.op in NEGATED and ir.is_integer(c.a.dtype):
            p = add(canonical(c.a, domain), canonical(c.b, domain), -1)
            return always(c.op, p, domain)
    elif isinstance(c, ir.Unary):
        inner = negation(c.a)
        if not isinstance(inner, ir.Unary):
            return holds(inner, domain)
    elif isinstance(c, ir.Select):
        return holds(c.a, domain.with_fact(c.cond)) and holds(c.b, domain.with_fact(negation(c.cond)))
    elif isinstance(c, ir.Cast) and ir.is_integer(c.a.dtype):
        return always("!=", canonical(c.a, domain), domain)
    simpler = rewrite(c, domain)
    return isinstance(simpler, ir.Const) and bool(simpler.value)


def consequences(c: ir.Expr, domain: Domain) -> tuple[list[Poly], list[tuple[ir.Expr, bool]]]:
    """What holds if c does: polynomials that are >= 0, and other conditions with their truth."""
    if isinstance(c, ir.Const):
        return ([] if c.value else [{(): -1}]), []
    if isinstance(c, ir.Unary) and c.op == "not":
        inner = negation(c.a)
        if not isinstance(inner, ir.Unary):
            return consequences(inner, domain)
        return [], [(c.a, False)]
    if isinstance(c, ir.Binary):
        if c.op == "and":
            first, others = consequences(c.a, domain)
            second, more = consequences(c.b, domain)
            return first + second, others + more
        if c.op == "or":
            if holds(negation(c.a), domain):
                return consequences(c.b, domain)
            if holds(negation(c.b), domain):
                return consequences(c.a, domain)
        if c.op in NEGATED and ir.is_integer(c.a.dtype):
            p = add(canonical(c.a, domain), canonical(c.b, domain), -1)
            return inequalities(c.op, p, domain), [(c, True)] if c.op == "!=" else []
    if isinstance(c, ir.Cast) and ir.is_integer(c.a.dtype):
        return inequalities("!=", canonical(c.a, domain), domain), [(c, True)]
    return [], [(c, True)]


def inequalities(op: str, p: Poly, domain: Domain) -> list[Poly]:
    """Polynomials that are >= 0 where `p op 0`."""
    if op == "<":
        return [shift(scale(p, -1), -1)]
    if op == "<=":
        return [scale(p, -1)]
    if op == ">":
        return [shift(p, -1)]
    if op == ">=":
        return [p]
    if op == "==":
        return [p, scale(p, -1)]
    if lower(p, domain, 0) == 0:
        return [shift(p, -1)]
    if upper(p, domain, 0) == 0:
        return [shift(scale(p, -1), -1)]
    return []


def remember(c: ir.Expr, truth: bool, domain: Domain) -> tuple[object, bool]:
    return structure(rewrite(c, domain), domain), truth
