"""Chebyshev's polynomials of all four kinds, whose degree is a number for each element too.

Within -1 to 1 they are quotients of waves of an angle a with x = cos(a); outside, of exponentials of b with
|x| = cosh(b), and the sign of x for odd degrees:

    T[n] = cos(n a)                            V[n] = cos((n + 1/2) a) / cos(a / 2)
    U[n] = sin((n + 1) a) / sin(a)             W[n] = sin((n + 1/2) a) / sin(a / 2)

Low degrees are polynomials as they are written, which is also what eager gives for them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ... import te
from ...ir import Expr
from ..dtypes import Promotion
from .pointwise import elementwise
from .special import WIDE, number, polynomial

aten = torch.ops.aten
WRITTEN_OUT = 8  # degrees
# By kind: polynomial 1 as the factor of x and the constant; what is added to the degree.
FIRST: dict[str, tuple[float, float]] = {"t": (1, 0), "u": (2, 0), "v": (2, -1), "w": (2, 1)}
OFFSET = {"t": 0.0, "u": 1.0, "v": 0.5, "w": 0.5}


def low_degree(kind: str, n: Expr, x: Expr) -> Expr:
    """P[n] for n up to `WRITTEN_OUT`, whose coefficients P[k + 1] = 2 x P[k] - P[k - 1] gives."""
    slope, constant = FIRST[kind]
    before, own = [1.0], [constant, slope]
    result: Expr = te.select(n == 0, number(1), polynomial(x, own))
    for degree in range(2, WRITTEN_OUT + 1):
        following = [0.0, *[2 * c for c in own]]
        for at, c in enumerate(before):
            following[at] -= c
        before, own = own, following
        result = te.select(n == degree, polynomial(x, own), result)
    return result


def of_angle(kind: str, n: Expr, x: Expr) -> Expr:
    """From -1 to 1."""
    a = te.acos(te.minimum(te.maximum(x, -1), 1))
    turns = (n + OFFSET[kind]) * a
    if kind == "t":
        return te.cos(turns)
    return (
        te.cos(turns) / te.cos(a / 2) if kind == "v" else te.sin(turns) / te.sin(a if kind == "u" else a / 2)
    )


def beyond(kind: str, n: Expr, x: Expr) -> Expr:
    """Outside -1 to 1: P[n](-x) is P[n](x) with a sign, but V and W change places."""
    size = te.maximum(te.abs(x), 1)
    b = te.log(size + te.sqrt(size - 1) * te.sqrt(size + 1))
    sign = sign_of_odd(n, x)
    turns = (n + OFFSET[kind]) * b
    if kind == "t":
        return sign * te.cosh(turns)
    if kind == "u":
        return sign * te.sinh(turns) / te.sinh(b)
    even, uneven = te.cosh(turns) / te.cosh(b / 2), te.sinh(turns) / te.sinh(b / 2)
    positive, negative = (even, uneven) if kind == "v" else (uneven, even)
    return sign * te.select(x < 0, negative, positive)


def at_end(kind: str, n: Expr, x: Expr) -> Expr:
    """At 1 and -1, where the quotients are of zeros."""
    one, many = number(1), 2 * n + 1
    ends = {"t": (one, one), "u": (n + 1, n + 1), "v": (one, many), "w": (many, one)}
    positive, negative = ends[kind]
    return sign_of_odd(n, x) * te.select(x < 0, negative, positive)


def sign_of_odd(n: Expr, x: Expr) -> Expr:
    """-1 for a negative x and an odd degree."""
    return te.select((x < 0) & (n - 2 * te.floor(n / 2) == 1), number(-1), number(1))


def chebyshev(kind: str, shifted: bool) -> Callable[[Expr, Expr], Expr]:
    """P[n](x), or P[n](2 x - 1) if shifted; 0 for n below 0."""

    def value(x: Expr, n: Expr) -> Expr:
        own, degree = te.cast(x, WIDE), te.trunc(te.cast(n, WIDE))
        own = 2 * own - 1 if shifted else own
        size = te.abs(own)
        high = te.select(size < 1, of_angle(kind, degree, own), beyond(kind, degree, own))
        high = te.select(size == 1, at_end(kind, degree, own), high)
        result = te.select(degree <= WRITTEN_OUT, low_degree(kind, degree, own), high)
        return te.cast(te.select(degree < 0, number(0), result), x.dtype)

    value.__name__ = f"chebyshev_{kind}"
    return value


for kind in FIRST:
    for shifted in (False, True):
        packet = getattr(aten, f"special_{'shifted_' * shifted}chebyshev_polynomial_{kind}")
        overloads = (packet.default, packet.n_scalar, packet.x_scalar)
        elementwise(*overloads, promotion=Promotion.INT_TO_FLOAT)(chebyshev(kind, shifted))
