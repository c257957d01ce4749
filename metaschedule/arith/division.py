"""Floor division and remainder of polynomials.

`floordiv` is where index expressions become short: it takes multiples of the divisor out,
divides common factors away, merges nested divisions and drops what the domain shows to be zero.
A remainder is stored as `x - d * (x // d)`, so that it cancels against other parts; `express.py`
finds it again for printing.

Refuses: nothing. A divisor that is not a constant gives an opaque quotient unless one polynomial
divides the other; a divisor of zero stays as it is, an error of the running program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import polynomial as poly
from .bounds import both, is_reached, lower
from .interval import quick
from .polynomial import ONE, Composite, Poly

if TYPE_CHECKING:
    from .domain import Domain


# A quotient that seems to take more values than these is not searched for reasons to be constant.
WORTH_A_SEARCH = 4


def floordiv(p: Poly, k: int, domain: Domain) -> Poly:
    """p // k for a constant k other than zero."""
    if k < 0:
        p, k = poly.scale(p, -1), -k
    if k == 1:
        return p
    whole: Poly = {}
    rest: Poly = {}
    for m, c in p.items():
        if c % k == 0 or (c < -k and m):  # -11 * i is 2 * (-6 * i) + i
            whole[m] = c // k
            c %= k
        if c and m:
            rest[m] = c
    carry, offset = divmod(p.get(ONE, 0), k)
    if carry:
        whole[ONE] = carry
    if not rest:
        return whole
    g = math.gcd(k, *rest.values())
    if g > 1:
        rest = {m: c // g for m, c in rest.items()}
        k, offset = k // g, offset // g
    return poly.add(whole, remaining_quotient(rest, offset, k, domain))


def remaining_quotient(rest: Poly, offset: int, k: int, domain: Domain) -> Poly:
    """(rest + offset) // k, where k divides no coefficient of `rest` and 0 <= offset < k."""
    p = poly.shift(rest, offset)
    if (value := quotient_value(p, k, domain)) is not None:
        return poly.constant(value)
    # (5*i + j) // 4 is i where i + j is in [0, 4): more of a coefficient can be taken out.
    if any(c > k or c < 0 for c in rest.values()):
        low_part = {m: c % k for m, c in rest.items()}
        if (value := quotient_value(poly.shift(low_part, offset), k, domain)) is not None:
            return poly.shift({m: c // k for m, c in rest.items() if c // k}, value)
    # (4*i + j) // 8 is i // 2 where j is in [0, 4): look for such a step below the divisor.
    for g in sorted({math.gcd(k, c) for c in rest.values()} - {1}, reverse=True):
        small = {m: c for m, c in rest.items() if c % g}
        for part in (small, add_quotients(small, rest)):
            if len(part) == len(rest):
                continue
            value = quotient_value(poly.shift(part, offset % g), g, domain)
            if value is not None:
                large = {m: c // g for m, c in rest.items() if m not in part}
                return floordiv(poly.shift(large, value + offset // g), k // g, domain)
    # (x // a + y) // k is (x + a*y) // (a*k), whatever the integer y.
    for m, c in rest.items():
        if c == 1 and len(m) == 1 and isinstance(m[0], Composite) and m[0].kind == "//":
            x, a = m[0].args
            others = {n: d for n, d in p.items() if n is not m}
            return floordiv(poly.add(x, others, a), a * k, domain)
    return atom(Composite("//", (p, k), (poly.freeze(p), k)), domain)


def add_quotients(small: Poly, rest: Poly) -> Poly:
    """`small` with those quotients of `rest` that may make it a remainder: of j - 4 * (j // 4) one
    part may be a multiple of the step and the other not."""
    used = poly.variables(small)
    out = dict(small)
    for m, c in rest.items():
        if len(m) == 1 and isinstance(m[0], Composite) and any(v in used for v in m[0].vars):
            out[m] = c
    return out


def quotient_value(p: Poly, k: int, domain: Domain) -> int | None:
    """p // k if it is one number throughout the domain."""
    low, high, _ = quick(p, domain)
    if low is not None and high is not None and high // k - low // k > WORTH_A_SEARCH:
        return None
    low, high = both(p, domain)
    return low // k if low is not None and high is not None and low // k == high // k else None


def atom(composite: Composite, domain: Domain) -> Poly:
    value = domain.singletons.get(composite)
    return {(composite,): 1} if value is None else poly.constant(value)


def remainder(p: Poly, k: int, domain: Domain) -> Poly:
    return poly.add(p, floordiv(p, k, domain), -k)


def symbolic_floordiv(p: Poly, y: Poly, domain: Domain) -> Poly:
    """p // y for a polynomial y that is not a constant (where it is zero the program fails)."""
    s, r = divide(p, y)
    if not r:
        return s
    if is_reached(lower(r, domain, 0), 0) and is_reached(lower(poly.add(y, r, -1), domain, 1), 1):
        return s
    return poly.add(s, atom(Composite("div", (r, y), (poly.freeze(r), poly.freeze(y))), domain))


def divide(p: Poly, y: Poly) -> tuple[Poly, Poly]:
    """(s, r) with p = s * y + r: long division by the first monomial of y that is not the constant,
    one step, which is what a flattened index needs."""
    lead = next(m for m in y if m)
    coefficient = y[lead]
    s: Poly = {}
    for m, c in p.items():
        if c % coefficient == 0 and (left := divide_monomial(m, lead)) is not None:
            s[left] = c // coefficient
    return s, poly.add(p, poly.multiply(s, y), -1)


def divide_monomial(m: tuple, factors: tuple) -> tuple | None:
    """The monomial m divided by another, if that divides it."""
    left = list(m)
    for factor in factors:
        only = {factor}
        at = next((k for k, x in enumerate(left) if x in only), None)
        if at is None:
            return None
        del left[at]
    return poly.product(tuple(left), ())


def divide_any(p: Poly, y: Poly, domain: Domain) -> Poly | None:
    """p // y, or None if y is zero."""
    value = poly.as_constant(y)
    if value is None:
        return symbolic_floordiv(p, y, domain)
    return floordiv(p, value, domain) if value else None
