"""Comparisons of a polynomial with zero: decided over a domain, and put in their shortest form.

`always` proves `p op 0` at every point; `reduce` divides by the common factor and rounds, which
is exact because atoms are integers: `4*i < 10` is `i < 3`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .bounds import facts_matter, is_reached, lower
from .interval import quick
from .polynomial import ONE, Poly, scale, shift

if TYPE_CHECKING:
    from .domain import Domain

NEGATED = {"<": ">=", ">=": "<", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def always(op: str, p: Poly, domain: Domain) -> bool:
    """Whether `p op 0` certainly holds at every point of the domain."""
    low, high, final = quick(p, domain)
    if HOLDS[op](low, high):
        return True
    if final and not facts_matter(p, domain):
        return op == "!=" and never_zero(p)
    if op == "<":
        return is_nonnegative(shift(scale(p, -1), -1), domain)
    if op == "<=":
        return is_nonnegative(scale(p, -1), domain)
    if op == ">":
        return is_nonnegative(shift(p, -1), domain)
    if op == ">=":
        return is_nonnegative(p, domain)
    if op == "==":
        if never_zero(p):
            return False
        return is_nonnegative(p, domain) and is_nonnegative(scale(p, -1), domain)
    return (
        never_zero(p)
        or is_nonnegative(shift(p, -1), domain)
        or is_nonnegative(shift(scale(p, -1), -1), domain)
    )


# Whether a value between two bounds (None: not known) compares so with zero.
HOLDS = {
    "<": lambda low, high: high is not None and high < 0,
    "<=": lambda low, high: high is not None and high <= 0,
    ">": lambda low, high: low is not None and low > 0,
    ">=": lambda low, high: low is not None and low >= 0,
    "==": lambda low, high: low == 0 == high,
    "!=": lambda low, high: (low is not None and low > 0) or (high is not None and high < 0),
}


def is_nonnegative(p: Poly, domain: Domain) -> bool:
    return is_reached(lower(tighten(p), domain, 0), 0)


def tighten(p: Poly) -> Poly:
    """A polynomial that is >= 0 exactly where p is: coefficients without a common factor."""
    g = math.gcd(*[c for m, c in p.items() if m])
    if g <= 1:
        return p
    out = {m: c // g for m, c in p.items() if m}
    if offset := p.get(ONE, 0) // g:
        out[ONE] = offset
    return out


def never_zero(p: Poly) -> bool:
    """Whether the common factor of the coefficients fails to divide the constant."""
    g = math.gcd(*[c for m, c in p.items() if m])
    offset = p.get(ONE, 0)
    return offset != 0 if g == 0 else offset % g != 0


def reduce(op: str, p: Poly) -> tuple[str, Poly]:
    """The same comparison with zero, with the smallest coefficients."""
    g = math.gcd(*[c for m, c in p.items() if m])
    if g <= 1 or (op in ("==", "!=") and p.get(ONE, 0) % g):
        return op, p
    out = {m: c // g for m, c in p.items() if m}
    offset = p.get(ONE, 0)
    # g*s + k < 0 is s + floor(k/g) < 0, for integers; for <= and > it is the ceiling.
    offset = -(-offset // g) if op in ("<=", ">") else offset // g
    if offset:
        out[ONE] = offset
    return op, out
