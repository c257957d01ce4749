"""Bessel functions of order 0 and 1, element by element, in float64.

Of the first kind they are integrals of a period, for which the trapezoidal rule is exact up to J[POINTS](x).
Those of the second kind are Neumann's sums of J[2k], which the same points give with other weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ... import te
from ...ir import Expr
from ..dtypes import Promotion
from ..lowering import NotLowered
from .functions import is_negative
from .pointwise import elementwise
from .special import number, polynomial, wide

aten = torch.ops.aten
TO_FLOAT = Promotion.INT_TO_FLOAT
NEAR = 20.0  # up to where the power series of I is taken
LOW = 2.0  # and that of K
FAR = 25.0  # up to where J and Y are sums over points of a period; J[64](25) is 1e-19
POINTS = 128  # twice as many as J needs: Neumann's sum has J[2k] up to 2k = 60
STEP, STEPS = 0.3, 21  # of the integral for K: exp(-(0.3 * 21)^2) is 1e-17
EULER = 0.5772156649015329


def modified_first(order: int, scaled: bool) -> Callable[[Expr], Expr]:
    """I, times exp(-|x|) if scaled: its power series, and the asymptotic one from `NEAR` on."""
    inverses = hankel_terms(order, 22, sign=-1)

    @wide
    def value(x: Expr) -> Expr:
        size = te.abs(x)
        near, far = te.minimum(size, NEAR), te.maximum(size, NEAR)
        small = first_series(near, order, 60) * te.exp(-near)
        large = polynomial(1 / far, inverses) / (math.sqrt(2 * math.pi) * te.sqrt(far))
        result = te.select(size > NEAR, large, small)
        if not scaled:
            result = result * te.exp(size)
        return te.select(x < 0, -result, result) if order else result

    return value


def first_series(x: Expr, order: int, count: int) -> Expr:
    """The power series of I."""
    powers = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(count)]
    total = polynomial(x * x / 4, powers)
    return total * x / 2 if order else total


def hankel_terms(order: int, count: int, sign: int = 1) -> list[float]:
    """Coefficients of 1 / x in the asymptotic series: (4 n^2 - 1)(4 n^2 - 9)... / (k! 8^k), with alternating
    signs if `sign` is -1."""
    terms = [1.0]
    for k in range(1, count):
        terms.append(terms[-1] * sign * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return terms


def modified_second(order: int, scaled: bool) -> Callable[[Expr], Expr]:
    """K, times exp(x) if scaled. From `LOW` on it is the integral of exp(-u^2) / sqrt(1 + u^2 / 2x), times
    1 + u^2 / x for order 1, by equal steps of u; below, the power series with logarithms."""

    @wide
    def value(x: Expr) -> Expr:
        near, far = te.minimum(x, LOW), te.maximum(x, LOW)
        total: Expr = number(0.5)
        for j in range(1, STEPS + 1):
            square = (STEP * j) ** 2
            term = math.exp(-square) / te.sqrt(1 + square / 2 / far)
            total = total + (term * (1 + square / far) if order else term)
        large = total * STEP * math.sqrt(2) / te.sqrt(far)
        small = second_series(near, order)
        small, large = (small * te.exp(near), large) if scaled else (small, large * te.exp(-far))
        result = te.select(x > LOW, large, small)
        return te.select(x == 0, number(math.inf), te.select(x < 0, number(math.nan), result))

    return value


def second_series(x: Expr, order: int) -> Expr:
    """The power series of K, with sums of inverses H[k]:
    K0 = -log(x/2) I0 + sum (H[k] - gamma) (x/2)^2k / k!^2,
    K1 = 1/x + log(x/2) I1 - x/4 sum (H[k] + H[k+1] - 2 gamma) (x/2)^2k / k!(k+1)!."""
    count = 16
    harmonic = [math.fsum(1 / j for j in range(1, k + 1)) for k in range(count + 1)]
    logarithm = te.log(x / 2) * first_series(x, order, count)
    factorials = [math.factorial(k) * math.factorial(k + order) for k in range(count)]
    if order == 0:
        terms = [(harmonic[k] - EULER) / f for k, f in enumerate(factorials)]
        return polynomial(x * x / 4, terms) - logarithm
    terms = [(harmonic[k] + harmonic[k + 1] - 2 * EULER) / f for k, f in enumerate(factorials)]
    return 1 / x + logarithm - x / 4 * polynomial(x * x / 4, terms)


def waves(x: Expr, order: int, weights: Sequence[float]) -> Expr:
    """The mean over a period of cos(order t - x sin t) times a weight that has the same symmetries: a
    quarter of the points tells."""
    total: Expr = number(0)
    for j in range(POINTS // 4 + 1):
        sine, times = math.sin(2 * math.pi * j / POINTS), 2 if j in (0, POINTS // 4) else 4
        wave = te.sin(x * sine) if order else te.cos(x * sine)
        total = total + wave * (times * weights[j] / POINTS)
    return total


def angles() -> list[float]:
    return [2 * math.pi * j / POINTS for j in range(POINTS // 4 + 1)]


def near_first(x: Expr, order: int) -> Expr:
    return waves(x, order, [math.sin(order * t) if order else 1.0 for t in angles()])


def near_second(x: Expr, order: int) -> Expr:
    """Neumann's sum Y0 = 2/pi ((log(x/2) + gamma) J0 - 2 sum (-1)^k J[2k] / k), and its derivative:
    Y1 = 2/pi ((log(x/2) + gamma) J1 - J0 / x + sum (-1)^k (J[2k-1] - J[2k+1]) / k)."""
    logarithm = (te.log(x / 2) + EULER) * near_first(x, order)
    weights: list[float] = []
    for t in angles():
        parts = [
            math.sin((2 * k - 1) * t) - math.sin((2 * k + 1) * t) if order else -2 * math.cos(2 * k * t)
            for k in range(1, 31)
        ]
        weights.append(math.fsum((-1) ** k / k * part for k, part in enumerate(parts, 1)))
    rest = logarithm + waves(x, order, weights)
    return (2 / math.pi) * (rest - near_first(x, 0) / x if order else rest)


def far_away(x: Expr, order: int, turned: bool) -> Expr:
    """Hankel's expansion: sqrt(2 / pi x) (P cos w - Q sin w), or P sin w + Q cos w for Y, where w is
    x - (2 order + 1) pi / 4."""
    terms = hankel_terms(order, 16)
    inverse = 1 / x
    even = polynomial(inverse * inverse, [c * (-1) ** k for k, c in enumerate(terms[::2])])
    odd = polynomial(inverse * inverse, [c * (-1) ** k for k, c in enumerate(terms[1::2])]) * inverse
    sine, cosine, half = te.sin(x), te.cos(x), math.sqrt(0.5)
    # cos and sin of w, without rounding w
    turn = (half * (cosine + sine), half * (sine - cosine))
    cos_w, sin_w = turn if order == 0 else (turn[1], -turn[0])
    value = even * sin_w + odd * cos_w if turned else even * cos_w - odd * sin_w
    return value * (math.sqrt(2 / math.pi) / te.sqrt(x))


def narrow(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """The function for narrower dtypes: torch's float64 has 5 digits near 5, which is not what we give."""

    def evaluate(x: Expr) -> Expr:
        if x.dtype == "float64":
            raise NotLowered("Bessel functions of float64, of which torch knows few digits")
        return function(x)

    evaluate.__name__ = function.__name__
    return evaluate


def first(order: int) -> Callable[[Expr], Expr]:
    @narrow
    @wide
    def value(x: Expr) -> Expr:
        size = te.abs(x)
        near = near_first(te.minimum(size, FAR), order)
        result = te.select(size > FAR, far_away(te.maximum(size, FAR), order, turned=False), near)
        return te.select(is_negative(x), -result, result) if order else result

    return value


def second(order: int) -> Callable[[Expr], Expr]:
    @narrow
    @wide
    def value(x: Expr) -> Expr:
        near = near_second(te.minimum(x, FAR), order)
        result = te.select(x > FAR, far_away(te.maximum(x, FAR), order, turned=True), near)
        return te.select(x == 0, number(-math.inf), te.select(x < 0, number(math.nan), result))

    return value


@wide
def spherical(x: Expr) -> Expr:
    """sin(x) / x; by its series near 0, and 0 at infinity."""
    size = te.abs(x)
    terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
    result = te.select(size < 0.5, polynomial(x * x, terms), te.sin(x) / x)
    return te.select(size == math.inf, number(0), result)


for order in (0, 1):
    plain = aten.i0.default if order == 0 else aten.special_i1.default
    modified = getattr(aten, f"special_modified_bessel_i{order}").default
    elementwise(plain, modified, promotion=TO_FLOAT)(modified_first(order, scaled=False))
    exponential = getattr(aten, f"special_i{order}e").default
    elementwise(exponential, promotion=TO_FLOAT)(modified_first(order, scaled=True))
    for scaled in (False, True):
        name = f"special_{'scaled_' * scaled}modified_bessel_k{order}"
        elementwise(getattr(aten, name).default, promotion=TO_FLOAT)(modified_second(order, scaled))
    elementwise(getattr(aten, f"special_bessel_j{order}").default, promotion=TO_FLOAT)(first(order))
    elementwise(getattr(aten, f"special_bessel_y{order}").default, promotion=TO_FLOAT)(second(order))
elementwise(aten.special_spherical_bessel_j0.default, promotion=TO_FLOAT)(spherical)
