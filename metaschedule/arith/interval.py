"""Constant bounds of a polynomial without search: intervals, and digits.

`interval` sums the ranges of the monomials. `quick` also sees that `f - 8 * (f // 8)` is a digit of f:
it writes what a sum has of one loop as digits, whose ranges are independent. Its third result says
whether the bounds are as tight as they can be without facts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ..ir import Var
from .polynomial import Composite, Poly

if TYPE_CHECKING:
    from .domain import Domain

Interval = tuple[int | None, int | None]

UNKNOWN: Interval = (None, None)
LEAVES = ("load", "expr")  # composites of which nothing but the range is known


def interval(p: Poly, domain: Domain) -> Interval:
    """Constant bounds of the monomials, summed."""
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        if len(m) == 1:
            a, b = domain.interval(m[0])
        elif not m:
            a = b = 1
        else:
            a, b = domain.interval(m[0])
            for atom in m[1:]:
                a, b = times((a, b), domain.interval(atom))
        if c < 0:
            a, b = b, a
        low = None if low is None or a is None else low + c * a
        high = None if high is None or b is None else high + c * b
    return low, high


def times(x: Interval, y: Interval) -> Interval:
    a, b = x
    c, d = y
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    return UNKNOWN


def quick(p: Poly, domain: Domain) -> tuple[int | None, int | None, bool]:
    """Lower bound, upper bound, and whether elimination cannot improve on them.

    i - 4 * (i // 4) with i < 10: term by term -8 to 9, by digits of i (it is i % 4) 0 to 3.
    """
    symbolic = domain.symbolic
    final = True
    composites = False
    for m in p:
        if len(m) > 1:
            final = False
        elif m:
            atom = m[0]
            if isinstance(atom, Composite):
                composites = composites or atom.kind not in LEAVES
            elif atom in symbolic:
                final = False
    least, most = interval(p, domain)
    if not composites or not final:
        return least, most, final
    # What the sum has of each variable: coefficients by divisor. Everything else goes by intervals.
    parts: dict[Var, dict[int, int]] = {}
    rest: Poly = {}
    elsewhere: set[Var] = set()
    for m, c in p.items():
        atom = m[0] if m else None
        if isinstance(atom, Var):
            parts.setdefault(atom, {})[1] = c
        elif isinstance(atom, Composite) and (var := find_divided_variable(atom, domain)) is not None:
            parts.setdefault(var, {})[atom.args[1]] = c
        else:
            rest[m] = c
            for var in atom.vars if isinstance(atom, Composite) else ():
                final = final and var not in elsewhere and var not in symbolic
                elsewhere.add(var)
    low, high = interval(rest, domain)
    for var, used in parts.items():
        a, b, exact = digit_interval(var, used, domain)
        low = None if low is None or a is None else low + a
        high = None if high is None or b is None else high + b
        final = final and exact and var not in elsewhere
    # A fact may bound a quotient more than its digits do.
    low = least if low is None or (least is not None and least > low) else low
    high = most if high is None or (most is not None and most < high) else high
    return low, high, final


def find_divided_variable(atom: Composite, domain: Domain) -> Var | None:
    """The variable v of an atom v // d, if it counts from 0."""
    if atom.kind != "//" or len(x := atom.args[0]) != 1:
        return None
    (m,) = x
    if len(m) != 1 or x[m] != 1 or not isinstance(m[0], Var) or m[0] in domain.symbolic:
        return None
    return m[0] if domain.interval(m[0])[0] == 0 else None


def digit_interval(var: Var, used: dict[int, int], domain: Domain) -> tuple[int | None, int | None, bool]:
    """Bounds of the sum of c * (var // d), given c by d, and whether they are attained."""
    first, last = domain.interval(var)
    steps = sorted({1, *used})
    if len(used) == 1 or first != 0 or last is None or any(b % a for a, b in pairwise(steps)):
        low: int | None = 0
        high: int | None = 0
        for d, c in used.items():
            a = None if first is None else c * (first // d)
            b = None if last is None else c * (last // d)
            a, b = (a, b) if c > 0 else (b, a)
            low = None if low is None or a is None else low + a
            high = None if high is None or b is None else high + b
        return low, high, len(used) == 1
    counts = [b // a for a, b in pairwise(steps)] + [last // steps[-1] + 1]
    low, high = 0, 0
    scales: list[int] = []
    for step, count in zip(steps, counts):
        total = sum([c * (step // d) for d, c in used.items() if d <= step])
        scales.append(total)
        low += min(total * (count - 1), 0)
        high += max(total * (count - 1), 0)
    # Digits occur in every combination, except with the last value of the top one.
    exact = (last + 1) % steps[-1] == 0 or not scales[-1] or not any(scales[:-1])
    return low, high, exact
