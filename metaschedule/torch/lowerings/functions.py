"""Mathematical functions, element by element; integers become floats first."""

from __future__ import annotations

import math

import torch

from ... import te
from ...ir import Expr, const, is_float
from ..dtypes import Promotion
from .pointwise import elementwise

aten = torch.ops.aten
TO_FLOAT = Promotion.INT_TO_FLOAT

for name in (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf", "sigmoid"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
):
    elementwise(getattr(aten, name).default, promotion=TO_FLOAT)(getattr(te, name))


@elementwise(aten.reciprocal.default, promotion=TO_FLOAT)
def reciprocal(x: Expr) -> Expr:
    return 1 / x


@elementwise(aten.floor.default)
def floor(x: Expr) -> Expr:
    return te.floor(x) if is_float(x.dtype) else x


@elementwise(aten.ceil.default)
def ceil(x: Expr) -> Expr:
    return te.ceil(x) if is_float(x.dtype) else x


@elementwise(aten.trunc.default, aten.fix.default)
def trunc(x: Expr) -> Expr:
    return te.trunc(x) if is_float(x.dtype) else x


@elementwise(aten.frac.default)
def frac(x: Expr) -> Expr:
    return x - te.trunc(x)


@elementwise(aten.round.default, aten.round.decimals)
def round(x: Expr, decimals: int = 0) -> Expr:
    if not is_float(x.dtype):
        return x
    if decimals == 0:
        return te.round(x)
    scale = 10.0 ** abs(decimals)
    return te.round(x * scale) / scale if decimals > 0 else te.round(x / scale) * scale


# Above this the squares of float32 overflow; log(2x) is exact long before.
LARGE = 1e9


@elementwise(aten.asinh.default, promotion=TO_FLOAT)
def asinh(x: Expr) -> Expr:
    size = te.abs(x)
    small = te.log1p(size + size * size / (1 + te.sqrt(size * size + 1)))
    result = te.select(size > LARGE, te.log(size) + math.log(2), small)
    return te.select(is_negative(x), -result, result)


@elementwise(aten.acosh.default, promotion=TO_FLOAT)
def acosh(x: Expr) -> Expr:
    above = x - 1
    small = te.log1p(above + te.sqrt(above * (above + 2)))
    result = te.select(x > LARGE, te.log(x) + math.log(2), small)
    return te.select(x < 1, const(math.nan, x.dtype), result)  # below -1 the root is a number again


@elementwise(aten.atanh.default, promotion=TO_FLOAT)
def atanh(x: Expr) -> Expr:
    return 0.5 * (te.log1p(x) - te.log1p(-x))


@elementwise(aten.atan2.default, promotion=TO_FLOAT)
def atan2(y: Expr, x: Expr) -> Expr:
    """From the angle in the first octant by symmetry, which also keeps infinities and zeros apart."""
    long, short = te.maximum(te.abs(x), te.abs(y)), te.minimum(te.abs(x), te.abs(y))
    slope = te.select(short == long, te.select(long == 0, long, const(1, x.dtype)), short / long)
    slope = te.select(te.isnan(long), long, slope)
    octant = te.atan(slope)
    quadrant = te.select(te.abs(y) > te.abs(x), math.pi / 2 - octant, octant)
    half = te.select(is_negative(x), math.pi - quadrant, quadrant)
    return te.select(is_negative(y), -half, half)


def is_negative(x: Expr) -> Expr:
    """Whether the sign is set, of a zero too."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


@elementwise(aten.copysign.Tensor, aten.copysign.Scalar, promotion=TO_FLOAT)
def copysign(x: Expr, y: Expr) -> Expr:
    return te.select(is_negative(y), -te.abs(x), te.abs(x))


@elementwise(aten.hypot.default)
def hypot(x: Expr, y: Expr) -> Expr:
    long, short = te.maximum(te.abs(x), te.abs(y)), te.minimum(te.abs(x), te.abs(y))
    slope = short / long
    infinite = te.isinf(x) | te.isinf(y)  # whatever the other is, NaN too
    finite = te.select(long == 0, long, long * te.sqrt(1 + slope * slope))
    return te.select(infinite, const(math.inf, x.dtype), finite)


@elementwise(aten.logaddexp.default)
def logaddexp(x: Expr, y: Expr) -> Expr:
    top = te.maximum(x, y)
    return te.select(te.isinf(x) & (x == y), x, top + te.log1p(te.exp(-te.abs(x - y))))


@elementwise(aten.logit.default, promotion=TO_FLOAT)
def logit(x: Expr, eps: float | None = None) -> Expr:
    if eps is not None:
        x = te.minimum(te.maximum(x, eps), 1 - eps)
    return te.log(x / (1 - x))


@elementwise(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other, promotion=TO_FLOAT)
def xlogy(x: Expr, y: Expr) -> Expr:
    return te.select(te.isnan(y), y, te.select(x == 0, const(0, x.dtype), x * te.log(y)))


@elementwise(aten.nan_to_num.default, promotion=Promotion.NO_OPMATH)
def nan_to_num(
    x: Expr, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Expr:
    if not is_float(x.dtype):
        return x
    limits = torch.finfo(getattr(torch, x.dtype))
    above = limits.max if posinf is None else posinf
    below = limits.min if neginf is None else neginf
    finite = te.select(te.isinf(x), te.select(x > 0, const(above, x.dtype), const(below, x.dtype)), x)
    return te.select(te.isnan(x), const(nan or 0.0, x.dtype), finite)
