"""Special functions, element by element. They are computed in float64, where plain series are good enough for
every dtype, and rounded at the end.

Those of the gamma function are asymptotic series for large arguments; small ones are first moved up by
recurrence (`SHIFT` steps), negative ones reflected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import Promotion
from ..lowering import Kind, NotLowered, lowers
from .functions import is_negative
from .pointwise import elementwise, pointwise

aten = torch.ops.aten
TO_FLOAT = Promotion.INT_TO_FLOAT
WIDE = "float64"
FAR = 2.0  # from where the error function is better known by its difference to 1
NEAR = 20.0  # up to where the power series of Bessel functions is taken
MOST_DERIVATIVES = 8
SHIFT = 10  # from 10 on the first terms of the series are good for 16 digits
# B2, B4, ...
BERNOULLI = [
    *(Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30)),
    *(Fraction(5, 66), Fraction(-691, 2730), Fraction(7, 6), Fraction(-3617, 510)),
]


def wide(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """The function of one element, in float64."""

    def widened(x: Expr, *rest: float) -> Expr:
        return te.cast(function(te.cast(x, WIDE), *rest), x.dtype)

    widened.__name__ = function.__name__
    return widened


def number(value: float) -> Expr:
    return const(float(value), WIDE)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c[0] + c[1] x + c[2] x^2 + ..."""
    result: Expr = number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def is_pole(x: Expr) -> Expr:
    """0, -1, -2, ..."""
    return (x <= 0) & (te.floor(x) == x)


def sin_pi(x: Expr) -> Expr:
    """sin(pi x), from the remainder of |x|: the product with pi would round away what matters, and so would
    the remainder of -1e-40, which is 2."""
    rest = half_turns(x)
    near = te.select(rest > 1.5, rest - 2, te.select(rest > 0.5, 1 - rest, rest))
    return te.sin(math.pi * te.select(x < 0, -near, near))


def cos_pi(x: Expr) -> Expr:
    return te.cos(math.pi * half_turns(x))


def half_turns(x: Expr) -> Expr:
    """The remainder of |x| by 2."""
    size = te.abs(x)
    return size - 2 * te.floor(size / 2)


@wide
def lgamma(x: Expr) -> Expr:
    own = te.select(x < 0.5, 1 - x, x)
    high = own + SHIFT
    terms = [float(b / (2 * n * (2 * n - 1))) for n, b in enumerate(BERNOULLI, 1)]
    series = polynomial(1 / (high * high), terms) / high
    stirling = (high - 0.5) * te.log(high) - high + 0.5 * math.log(2 * math.pi) + series
    product: Expr = number(1)
    for k in range(SHIFT):
        product = product * (own + k)
    # The product of large ones would overflow; they need no shift.
    far = (own - 0.5) * te.log(own) - own + 0.5 * math.log(2 * math.pi)
    above = te.select(own > 1e6, far, stirling - te.log(product))
    below = math.log(math.pi) - te.log(te.abs(sin_pi(x))) - above
    result = te.select(x < 0.5, below, te.select((x == 1) | (x == 2), number(0), above))
    return te.select(is_pole(x) | te.isinf(x), number(math.inf), result)


elementwise(aten.lgamma.default, promotion=TO_FLOAT)(lgamma)


@wide
def digamma(x: Expr) -> Expr:
    own = te.select(x < 0, 1 - x, x)
    high = own + SHIFT
    inverse = 1 / (high * high)
    terms = [float(b / (2 * n)) for n, b in enumerate(BERNOULLI, 1)]
    result = te.log(high) - 0.5 / high - inverse * polynomial(inverse, terms)
    for k in range(SHIFT):
        result = result - 1 / (own + k)
    cotangent = cos_pi(x) / sin_pi(x)
    result = te.select(x < 0, result - math.pi * cotangent, result)
    at_zero = te.select(is_negative(x), number(math.inf), number(-math.inf))
    return te.select(x == 0, at_zero, te.select(is_pole(x) | (x == -math.inf), number(math.nan), result))


elementwise(aten.digamma.default, promotion=TO_FLOAT)(digamma)


@lowers(aten.polygamma.default, kind=Kind.ELEMENTWISE)
def polygamma(order: int, x: te.Tensor) -> te.Tensor:
    if not 0 <= order <= MOST_DERIVATIVES:
        raise NotLowered(f"derivative {order} of digamma")
    function = wide(lambda x: derivative_of_digamma(order, x)) if order else digamma
    return pointwise("polygamma", function, x, promotion=TO_FLOAT)


def derivative_of_digamma(n: int, x: Expr) -> Expr:
    """By Hurwitz's zeta function: the first terms of its sum, the rest by the Euler-Maclaurin formula."""
    own = te.select(x < 0, 1 - x, x)
    s, high = n + 1, own + SHIFT
    total: Expr = number(0)
    for k in range(SHIFT):
        total = total + power(1 / (own + k), s)
    factors, factor = [0.5], Fraction(s)
    for j, b in enumerate(BERNOULLI, 1):
        factors.append(float(b * factor / math.factorial(2 * j)))
        factor *= (s + 2 * j - 1) * (s + 2 * j)
    inverse = 1 / high
    rest = (
        factors[0] * inverse + 1 / number(n) + inverse * inverse * polynomial(inverse * inverse, factors[1:])
    )
    above = (-1) ** (n + 1) * math.factorial(n) * (total + power(inverse, n) * rest)
    cotangent = cos_pi(x) / sin_pi(x)
    below = (-1) ** (n + 1) * (
        (-1) ** n * math.pi ** (n + 1) * polynomial(cotangent, derivative_of_cotangent(n)) - above
    )
    at_pole = number(math.inf if n % 2 else -math.inf)
    result = te.select(is_pole(x), at_pole, te.select(x < 0, below, above))
    return te.select(x == math.inf, number(math.nan), result) if n > 1 else result


def power(x: Expr, n: int) -> Expr:
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


def derivative_of_cotangent(n: int) -> list[float]:
    """Coefficients of the derivative number n, a polynomial in the cotangent itself: each is -(1 + c^2) times
    the derivative of the one before.

    >>> derivative_of_cotangent(1)
    [-1.0, 0.0, -1.0]
    """
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [0.0 - a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    return found


@wide
def erfc(x: Expr) -> Expr:
    return te.select(x > FAR, te.exp(-x * x) * scaled_tail(x), 1 - te.erf(x))


@wide
def erfcx(x: Expr) -> Expr:
    return te.select(x > FAR, scaled_tail(x), te.exp(x * x) * (1 - te.erf(x)))


def scaled_tail(x: Expr) -> Expr:
    """exp(x^2) erfc(x) above `FAR`, as a continued fraction."""
    x = te.maximum(x, FAR)
    below = x
    for k in reversed(range(1, 32)):
        below = x + (k / 2) / below
    return (1 / math.sqrt(math.pi)) / below


elementwise(aten.erfc.default, promotion=TO_FLOAT)(erfc)
elementwise(aten.special_erfcx.default, promotion=TO_FLOAT)(erfcx)


def bessel(order: int, scaled: bool) -> Callable[[Expr], Expr]:
    """The modified Bessel function of the first kind of order 0 or 1, times exp(-|x|) if scaled: its power
    series, and the asymptotic one from `NEAR` on."""
    powers = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(60)]
    inverses = [1.0]
    for k in range(1, 22):
        inverses.append(inverses[-1] * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k))

    @wide
    def value(x: Expr) -> Expr:
        size = te.abs(x)
        near, far = te.minimum(size, NEAR), te.maximum(size, NEAR)
        small = polynomial(near * near / 4, powers)
        small = (small * near / 2 if order else small) * te.exp(-near)
        large = polynomial(1 / far, inverses) / (math.sqrt(2 * math.pi) * te.sqrt(far))
        result = te.select(size > NEAR, large, small)
        if not scaled:
            result = result * te.exp(size)
        return te.select(x < 0, -result, result) if order else result

    return value


for order in (0, 1):
    plain = aten.i0.default if order == 0 else aten.special_i1.default
    elementwise(plain, promotion=TO_FLOAT)(bessel(order, scaled=False))
    elementwise(getattr(aten, f"special_i{order}e").default, promotion=TO_FLOAT)(bessel(order, scaled=True))
