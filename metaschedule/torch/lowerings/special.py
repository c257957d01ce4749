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
MOST_DERIVATIVES = 8
SHIFT = 10  # from 10 on the first terms of the series are good for 16 digits
# B2, B4, ...
BERNOULLI = [
    *(Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30)),
    *(Fraction(5, 66), Fraction(-691, 2730), Fraction(7, 6), Fraction(-3617, 510)),
]


def wide(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """The function of one element, in float64."""

    def evaluate(x: Expr, *rest: float) -> Expr:
        return te.cast(function(te.cast(x, WIDE), *rest), x.dtype)

    evaluate.__name__ = function.__name__
    return evaluate


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


# The share of a normal distribution as a function, inverted: quotients of polynomials (Wichura, algorithm
# AS 241), good for 16 digits. Of the distance from 0.5, near it; further out of the root of the logarithm.
MIDDLE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
OUTER = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2,
     7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
OUTERMOST = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
     2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def quotient(x: Expr, parts: Sequence[Sequence[float]]) -> Expr:
    above, below = parts
    return polynomial(x, above) / polynomial(x, below)


def normal_quantile(distance: Expr, tail: Expr) -> Expr:
    """The x below which a normal distribution has the share 0.5 + distance; `tail` is 0.5 - |distance|, given
    too because it may be known better than the distance."""
    root = te.sqrt(-te.log(te.maximum(tail, 1e-320)))
    outside = te.select(root <= 5, quotient(root - 1.6, OUTER), quotient(root - 5, OUTERMOST))
    outside = te.select(tail == 0, number(math.inf), outside)
    outside = te.select(distance < 0, -outside, outside)
    inside = distance * quotient(0.180625 - distance * distance, MIDDLE)
    return te.select(te.abs(distance) <= 0.425, inside, outside)


@wide
def erfinv(y: Expr) -> Expr:
    result = normal_quantile(y / 2, (1 - te.abs(y)) / 2) * math.sqrt(0.5)
    return te.select(te.abs(y) <= 1, result, number(math.nan))


@wide
def ndtri(p: Expr) -> Expr:
    result = normal_quantile(p - 0.5, te.select(p < 0.5, p, 1 - p))
    return te.select((p >= 0) & (p <= 1), result, number(math.nan))


elementwise(aten.erfinv.default, promotion=TO_FLOAT)(erfinv)
elementwise(aten.special_ndtri.default, promotion=TO_FLOAT)(ndtri)
