"""Polynomials back to expressions, as short as a person would write them.

Remainders come in as `x - d * (x // d)` and are found again here (`terms`). Terms keep the order
of first appearance, a constant comes last, and a sum starts with something positive if it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import ir
from .division import floordiv
from .polynomial import ONE, Composite, Monomial, Poly, add, freeze, multiply, product, scale

if TYPE_CHECKING:
    from .domain import Domain

LIMIT = 2**63


class TooLarge(Exception):
    """A constant that does not fit an index: the expression is left as it was."""


class Remainder(NamedTuple):
    """`of % by`"""

    of: Poly
    by: int | Poly


Term = Monomial | Remainder


def express(p: Poly, domain: Domain) -> ir.Expr:
    if len(p) <= 1:
        for m, c in p.items():
            return times(monomial(m, domain), c) if m else number(c)
        return number(0)
    found, offset = terms(p, domain)
    return total([(c, express_term(t, domain)) for c, t in found], offset)


def express_term(term: Term, domain: Domain) -> ir.Expr:
    if isinstance(term, Remainder):
        by = number(term.by) if isinstance(term.by, int) else express(term.by, domain)
        return ir.Binary("%", express(term.of, domain), by, ir.INDEX)
    return monomial(term, domain)


def number(value: int) -> ir.Const:
    if not -LIMIT <= value < LIMIT:
        raise TooLarge
    return ir.Const(value, ir.INDEX)


def times(e: ir.Expr, c: int) -> ir.Expr:
    if c == 1:
        return e
    return ir.Unary("-", e, ir.INDEX) if c == -1 else ir.Binary("*", e, number(c), ir.INDEX)


def total(parts: list[tuple[int, ir.Expr]], offset: int) -> ir.Expr:
    """The sum of terms with their coefficients and of a constant."""
    lead = next((at for at, (c, _) in enumerate(parts) if c > 0), None)
    if lead is not None:
        c, e = parts.pop(lead)
        out: ir.Expr = times(e, c)
    elif offset > 0 or not parts:
        out, offset = number(offset), 0
    else:
        c, e = parts.pop(0)
        out = times(e, c)
    for c, e in parts:
        out = ir.Binary("+" if c > 0 else "-", out, times(e, abs(c)), ir.INDEX)
    if offset:
        out = ir.Binary("+" if offset > 0 else "-", out, number(abs(offset)), ir.INDEX)
    return out


def monomial(m: Monomial, domain: Domain) -> ir.Expr:
    out: ir.Expr | None = None
    for factor in m:
        e = widen(factor) if isinstance(factor, ir.Var) else composite(factor, domain)
        out = e if out is None else ir.Binary("*", out, e, ir.INDEX)
    assert out is not None
    return out


def widen(e: ir.Expr) -> ir.Expr:
    return e if e.dtype == ir.INDEX else ir.Cast(e, ir.INDEX)


def composite(a: Composite, domain: Domain) -> ir.Expr:
    kind, args = a.kind, a.args
    if kind == "//":
        return ir.Binary("//", express(args[0], domain), number(args[1]), ir.INDEX)
    if kind == "div":
        return ir.Binary("//", express(args[0], domain), express(args[1], domain), ir.INDEX)
    if kind in ("min", "max"):
        return ir.Binary(kind, express(args[0], domain), express(args[1], domain), ir.INDEX)
    if kind == "select":
        condition, x, y = args
        return ir.Select(condition, express(x, domain), express(y, domain), ir.INDEX)
    if kind == "load":
        return widen(load(a, domain))
    return widen(args[0])


def load(a: Composite, domain: Domain) -> ir.Load:
    buffer, indices = a.args
    return ir.Load(buffer, tuple([express(index, domain) for index in indices]))


# --- remainders -----------------------------------------------------------------------------------


def terms(p: Poly, domain: Domain) -> tuple[list[tuple[int, Term]], int]:
    """Coefficients and terms in printing order, and the constant."""
    divisions = [m for m in p if any(isinstance(x, Composite) and x.kind in ("//", "div") for x in m)]
    if not divisions:
        return [(c, m) for m, c in p.items() if m], p.get(ONE, 0)
    place: dict[Any, int] = {m: at for at, m in enumerate(p)}
    found: list[tuple[int, int, Term]] = []
    for m in divisions:
        match = find_remainder(p, m, divisions, domain)
        if match is None:
            continue
        c, term, q = match
        found.append((min([place[n] for n in term.of if n], default=place[m]), c, term))
        p = add(add(p, term.of, -c), q)
    offset = p.get(ONE, 0)
    for m, c in p.items():
        if m:
            at = place[m]
            m, offset = absorb(m, c, offset)
            found.append((at, c, m))
    found.sort(key=lambda entry: entry[0])
    return [(c, term) for _, c, term in found], offset


def find_remainder(
    p: Poly, m: Monomial, divisions: list[Monomial], domain: Domain
) -> tuple[int, Remainder, Poly] | None:
    """(c, u % d, c * d * (u // d)) where the quotient is in monomial m and p has c * u as well."""
    if m not in p:
        return None
    q = quotient(m)
    if q is None:
        return find_symbolic_remainder(p, m)
    x, d = q.args
    # The quotient may be of a quotient, merged: u = x // a, and u // (d // a) is x // d.
    inner = [other.args[1] for n in divisions if (other := quotient(n)) is not None]
    for a in [1, *[a for a in inner if a < d and d % a == 0]]:
        u = x if a == 1 else floordiv(x, a, domain)
        first = next((n for n in u if n), None)
        if first is None or p.get(first, 0) % u[first]:
            continue
        c, by = p.get(first, 0) // u[first], d // a
        # Less of the quotient must be left: f + f // 4 does not become f % 4 + f // 4 * 5.
        if abs(p[m] + c * by) < abs(p[m]) and all(p.get(n) == c * k for n, k in u.items() if n):
            return c, Remainder(u, by), {m: c * by}
    return None


def quotient(m: Monomial) -> Composite | None:
    """The atom of a monomial that is nothing but a quotient by a constant."""
    atom = m[0] if len(m) == 1 else None
    return atom if isinstance(atom, Composite) and atom.kind == "//" else None


def find_symbolic_remainder(p: Poly, m: Monomial) -> tuple[int, Remainder, Poly] | None:
    for q in m:
        if not isinstance(q, Composite) or q.kind != "div":
            continue
        x, y = q.args
        whole = multiply(y, {(q,): 1})
        for n, k in y.items():
            if product(n, (q,)) not in {m} or p[m] % k:
                continue
            c = -p[m] // k
            if all(p.get(n) == -c * k for n, k in whole.items()) and all(
                p.get(n) == c * k for n, k in x.items() if n
            ):
                return c, Remainder(x, y), scale(whole, c)
    return None


def absorb(m: Monomial, c: int, offset: int) -> tuple[Monomial, int]:
    """(x + 3) // 4 - 1 is (x - 1) // 4: one constant, not two."""
    q = quotient(m)
    if q is None or not offset or offset % c or ONE not in q.args[0]:
        return m, offset
    x, d = q.args
    y = add(x, {ONE: d * (offset // c)})
    return (Composite("//", (y, d), (freeze(y), d)),), 0
