"""The float32 functions: reduction to a small interval, a polynomial, reconstruction.

All are branch-free, but sin, cos and tan are good up to `FAR` only: past it the C library is called.
Every select is arranged so that NaN, infinities, both zeros and denormal numbers come out as NumPy
has them without a separate path; where an order of operands looks odd, that is why.

The coefficients are minimax fits of the expression beside them on the interval given, weighted so
that the error is relative to the function (the bound beside them). They were found by Lawson's
iteratively reweighted least squares at 300 to 600 Chebyshev points, with values from mpmath at 120
bits; each was rounded to float32 in turn, lowest power first, and the rest refitted.
Pairs and triples `(hi, lo, ...)` are a constant cut into floats whose sum is the constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ... import ir
from ...ir import Expr, select
from .steps import bits, floats, fma, is_odd, magnitude, polynomial, toggle_sign, with_sign_of

LN2 = (0.6931472, -1.9046542e-09)
LOG2_E = (1.442695, 1.925963e-08)
LOG10_E = (0.4342945, -1.010305e-08)
# These two times an infinity must not be infinities of two signs: hi is cut, not rounded.
LN2_DOWN = (0.6931471228599548, 5.769998878690785e-08)
LOG10_2 = (0.3010299801826477, 1.5481333548450493e-08)
PI = 3.1415927
HALF_PI = (1.5707964, -4.371139e-08, -1.7151245e-15)

# Adding it rounds |x| < 2^22 to an integer, half to even, and leaves that integer in the low bits.
ROUND = 1.5 * 2**23
ROUND64 = 1.5 * 2**52
SMALLEST_NORMAL = 2.0**-126
LARGEST = 2.0**128 - 2.0**104

# --- exponentials -------------------------------------------------------------------------------

# (exp(r) - 1 - r) / r^2, |r| <= ln(2)/2: 3.1e-9 of exp(r)
EXP = (0.49999994, 0.16666521, 0.041668266, 0.008368677, 0.0013820734)
# the same: 4.3e-10 of exp(r) - 1
EXPM1 = (0.5, 0.16666666, 0.041666493, 0.008333545, 0.0013932331, 0.00019762572)
# (2^r - 1) / r, |r| <= 1/2: 3.0e-9 of 2^r
EXP2 = (0.6931472, 0.24022648, 0.055503596, 0.009618503, 0.0013390997, 0.00015327828)
# (sinh(x) - x) / x^3 in x^2, |x| <= 1: 3.0e-10 of sinh(x)
SINH = (0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-06)


def _reduce(x: Expr, bias: int) -> tuple[Expr, Expr]:
    """x = n*ln(2) + r: r, and an integer whose low nine bits are n + bias."""
    shifted = fma(x, LOG2_E[0], ROUND + bias)
    n = shifted - (ROUND + bias)
    return fma(n, -LN2[1], fma(n, -LN2[0], x)), bits(shifted)


def _scale(y: Expr, n: Expr) -> Expr:
    """y * 2^k where n is k + 254: in two steps, as 2^k itself may be no float; one rounding."""
    half = n >> 1
    return y * floats(half << 23) * floats((n - half) << 23)


def _exp(x: Expr, bias: int = 254) -> Expr:
    r, n = _reduce(x, bias)
    return _scale(fma(fma(polynomial(r, EXP), r, 1.0), r, 1.0), n)


def exp(x: Expr) -> Expr:
    return _exp(ir.maximum(ir.minimum(x, 89.0), -104.0))


def exp2(x: Expr) -> Expr:
    x = ir.maximum(ir.minimum(x, 129.0), -151.0)
    shifted = x + (ROUND + 254)
    r = x - (shifted - (ROUND + 254))
    return _scale(fma(polynomial(r, EXP2), r, 1.0), bits(shifted))


def _expm1_of_reduced(r: Expr) -> Expr:
    return fma(r * r, polynomial(r, EXPM1), r)


def expm1(x: Expr) -> Expr:
    # Half of it is (exp(r) - 1)*s + (s - 1/2) with s = 2^(n-1), which is a float even for n = 128.
    r, n = _reduce(ir.maximum(ir.minimum(x, 89.0), -18.0), 126)
    s = floats(n << 23)
    result = fma(_expm1_of_reduced(r), s, s - 0.5) * 2.0
    return select(magnitude(x) < 2.0**-25, x, result)  # keeps -0 and denormals


def sinh(x: Expr) -> Expr:
    size = magnitude(x)
    e = _exp(ir.minimum(size, 90.0), bias=253)  # exp(|x|) / 2: overflows only where sinh does
    large = with_sign_of(e - 0.25 / e, x)
    square = x * x
    small = fma(x * square, polynomial(square, SINH), x)
    return select(size < 1.0, small, large)


def cosh(x: Expr) -> Expr:
    e = _exp(ir.minimum(magnitude(x), 90.0), bias=253)
    return e + 0.25 / e


def tanh(x: Expr) -> Expr:
    # E / (E + 2) with E = exp(2|x|) - 1, which is right near zero too; 1 from 9.02 on.
    size = ir.minimum(magnitude(x), 10.0)
    r, n = _reduce(size + size, 127)
    s = floats(n << 23)
    e = fma(_expm1_of_reduced(r), s, s - 1.0)
    return with_sign_of(e / (e + 2.0), x)


def sigmoid(x: Expr) -> Expr:
    # e = exp(-|x|) cannot overflow, and e / (1 + e) keeps its denormals.
    e = _exp(ir.maximum(-magnitude(x), -104.0))
    return select(x < 0.0, e, 1.0) / (e + 1.0)


# --- logarithms ---------------------------------------------------------------------------------

# (log(1 + f) - f + f^2/2) / f^3, |f| <= 1/3: 4.7e-9 of log(1 + f)
LOG = (
    0.33333215, -0.24999805, 0.20010436, -0.16680221, 0.14005543, -0.12187453, 0.13985594,
    -0.12879291,
)  # fmt: skip
TWO_THIRDS = 0x3F2AAAAB


def _mantissa(x: Expr) -> tuple[Expr, Expr, Expr]:
    """A normal x > 0 is m * 2^e with m in [2/3, 4/3): m, e and e << 23."""
    whole = bits(x)
    shifted = whole - TWO_THIRDS
    high = shifted & -(2**23)
    return floats(whole - high), (shifted >> 23).astype("float32"), high


def _limits(x: Expr, e: Expr) -> Expr:
    """`e`, but what the logarithm is at 0, infinity, NaN and below 0 (the mantissa is finite)."""
    e = select(x < math.inf, e, x)
    return select(x > 0.0, e, select((x == 0.0), ir.const(-math.inf, "float32"), math.nan))


def _any_mantissa(x: Expr) -> tuple[Expr, Expr]:
    """`_mantissa` of any x, denormal or not a positive number; e may be infinite or NaN."""
    tiny = x < SMALLEST_NORMAL
    m, e, _ = _mantissa(select(tiny, x * 2.0**23, x))
    return m, _limits(x, e - select(tiny, ir.const(23.0, "float32"), 0.0))


def _log_tail(f: Expr) -> tuple[Expr, Expr]:
    """Two factors of log(1 + f) - f."""
    return f * f, fma(polynomial(f, LOG), f, -0.5)


def log(x: Expr) -> Expr:
    m, e = _any_mantissa(x)
    f = m - 1.0
    y = f + fma(*_log_tail(f), e * LN2_DOWN[1])
    return fma(e, LN2_DOWN[0], y)


def log2(x: Expr) -> Expr:
    m, e = _any_mantissa(x)
    f = m - 1.0
    square, factor = _log_tail(f)
    tail = fma(square * LOG2_E[0], factor, f * LOG2_E[1])
    return e + fma(f, LOG2_E[0], tail)


def log10(x: Expr) -> Expr:
    m, e = _any_mantissa(x)
    f = m - 1.0
    square, factor = _log_tail(f)
    tail = fma(square * LOG10_E[0], factor, fma(f, LOG10_E[1], e * LOG10_2[1]))
    return fma(e, LOG10_2[0], fma(f, LOG10_E[0], tail))


def log1p(x: Expr) -> Expr:
    # The exponent of 1 + x, but f from x itself, as 1 + x is rounded: f = x*2^-e + (2^-e - 1).
    # `s` is four times 2^-e, which is a normal number for the largest x too.
    total = x + 1.0
    _, e, high = _mantissa(total)
    s = floats(0x40800000 - high)
    f = fma(ir.minimum(x, LARGEST) * 0.25, s, fma(s, 0.25, -1.0))
    e = _limits(total, e)
    y = f + fma(*_log_tail(f), e * LN2_DOWN[1])
    return select(magnitude(x) < 2.0**-25, x, fma(e, LN2_DOWN[0], y))


# --- powers -------------------------------------------------------------------------------------

# log2((1 + s) / (1 - s)) / s in s^2, |s| <= 1/5: 2.1e-11 of it (in double)
POW_LOG2 = (
    2.885390081836835, 0.9617966209767248, 0.5770924578714639, 0.4112011132851079,
    0.34846655148947764,
)  # fmt: skip
# (2^r - 1) / r, |r| <= 1/2: 2.0e-9 of 2^r (in double)
POW_EXP2 = (
    0.6931472029850637, 0.24022647896905347, 0.05550332162851162, 0.009618438600380488,
    0.0013399003477583013, 0.00015353257774653164,
)  # fmt: skip


def pow(x: Expr, y: Expr) -> Expr:
    """2^(y * log2|x|) in double, where nothing overflows; then C99's exceptions."""
    size = magnitude(x)
    m, e = _any_mantissa(size)

    wide = m.astype("float64")
    s = (wide - 1.0) / (wide + 1.0)
    log_x = fma(s, polynomial(s * s, POW_LOG2), e.astype("float64"))
    power = log_x * y.astype("float64")
    power = ir.maximum(ir.minimum(power, 200.0), -200.0)
    shifted = power + (ROUND64 + 1023)
    r = power - (shifted - (ROUND64 + 1023))
    scale = floats(bits(shifted) << 52)
    result = (fma(polynomial(r, POW_EXP2), r, 1.0) * scale).astype("float32")

    fractional = ir.call("trunc", y) != y
    half = y * 0.5
    odd = (ir.call("trunc", half) != half) & ~fractional
    result = toggle_sign(result, select(odd, bits(x), 0))
    negative = (x < 0.0) & (size < math.inf)
    result = select(negative & fractional, ir.const(math.nan, "float32"), result)
    one = (y == 0.0) | (x == 1.0) | ((size == 1.0) & (magnitude(y) == math.inf))
    return select(one, 1.0, result)


# --- circular functions -------------------------------------------------------------------------

# (sin(r) - r) / r^3 in r^2, |r| <= pi/4: 4.2e-9 of sin(r)
SIN = (-0.16666654, 0.008332106, -0.00019507876)
# (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4: 1.2e-10 of cos(r)
COS = (0.041666646, -0.0013887307, 2.443188e-05)
# (atan(x) - x) / x^3 in x^2, |x| <= 1: 2.6e-9 of atan(x)
ATAN = (
    -0.333333, 0.19998531, -0.14264052, 0.10951175, -0.08400475, 0.057906546, -0.031127002,
    0.010887361, -0.0017875476,
)  # fmt: skip
# (asin(x) - x) / x^3 in x^2, |x| <= 1/2: 4.9e-9 of asin(x)
ASIN = (0.16666752, 0.074953094, 0.04546915, 0.024184778, 0.042158306)

# Up to here the first step of the reduction, x - n*HALF_PI[0], is exact: it fits in 24 bits.
FAR = 2.0**17


def _quarter_turn(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x = n*pi/2 + r: sin(r), cos(r), and an integer whose low two bits are those of n."""
    shifted = fma(x, 2 / math.pi, ROUND)
    n, r = shifted - ROUND, x
    for part in HALF_PI:
        r = fma(n, -part, r)
    square = r * r
    sine = fma(square * r, polynomial(square, SIN), r)
    cosine = fma(square * square, polynomial(square, COS), fma(square, -0.5, 1.0))
    return sine, cosine, bits(shifted)


def sin(x: Expr) -> Expr:
    sine, cosine, n = _quarter_turn(magnitude(x))  # with -0 itself, r + r^3*SIN is +0
    result = select(is_odd(n), cosine, sine)
    return toggle_sign(result, (n << 30) ^ bits(x))


def cos(x: Expr) -> Expr:
    sine, cosine, n = _quarter_turn(x)
    return toggle_sign(select(is_odd(n), sine, cosine), (n + 1) << 30)


def tan(x: Expr) -> Expr:
    sine, cosine, n = _quarter_turn(magnitude(x))
    odd = is_odd(n)
    ratio = select(odd, cosine, sine) / select(odd, sine, cosine)
    return toggle_sign(ratio, (n << 31) ^ bits(x))


def atan(x: Expr) -> Expr:
    size = magnitude(x)
    far = size > 1.0
    y = select(far, ir.const(-1.0, "float32"), size) / select(far, size, 1.0)
    square = y * y
    y = fma(square * y, polynomial(square, ATAN), y)
    return with_sign_of(select(far, y + HALF_PI[0], y), x)


def _asin(size: Expr) -> tuple[Expr, Expr]:
    """|x| > 1/2, and where it is: asin(sqrt((1 - |x|) / 2)), elsewhere asin(|x|)."""
    far = size > 0.5
    square = select(far, fma(size, -0.5, 0.5), size * size)
    y = select(far, ir.call("sqrt", square), size)
    return far, fma(square * y, polynomial(square, ASIN), y)


def asin(x: Expr) -> Expr:
    far, y = _asin(magnitude(x))
    return with_sign_of(select(far, fma(y, -2.0, HALF_PI[0]), y), x)


def acos(x: Expr) -> Expr:
    far, y = _asin(magnitude(x))
    right = x > 0.0
    near = HALF_PI[0] - (with_sign_of(y, x) - HALF_PI[1])
    return select(far, select(right, y + y, fma(y, -2.0, PI)), near)


# --- error function -----------------------------------------------------------------------------

# (erf(x) - x) / x in x^2, |x| <= 0.9: 1.4e-8 of erf(x)
ERF_NEAR = (0.12837915, -0.37612507, 0.11281976, -0.026773281, 0.005004148, -0.00060523656)
# (1 - erf(x))^(1/4), 0.9 <= x <= 4: 5.1e-10 of erf(x) after the fourth power
ERF_FAR = (
    0.99980575, -0.28069907, -0.12380054, 0.023664523, 0.008848339, 0.006618715, -0.006215839,
    0.0017632348, -0.00022708075, 1.1485912e-05,
)  # fmt: skip


def erf(x: Expr) -> Expr:
    size = ir.minimum(magnitude(x), 4.0)
    first, second, *rest = ERF_FAR  # Horner for these two: they cancel
    root = fma(fma(polynomial(size, tuple(rest)), size, second), size, first)
    square = root * root
    far = with_sign_of(fma(square, -square, 1.0), x)
    near = fma(x, polynomial(x * x, ERF_NEAR), x)
    return select(size < 0.9, near, far)


ALGORITHMS: dict[str, Callable[..., Expr]] = {
    function.__name__: function
    for function in (
        exp, exp2, expm1, sinh, cosh, tanh, sigmoid, log, log2, log10, log1p, pow, sin, cos, tan,
        atan, asin, acos, erf,
    )
}  # fmt: skip
PERIODIC = ("sin", "cos", "tan")
