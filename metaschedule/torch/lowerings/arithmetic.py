"""Arithmetic, element by element: of floats, integers and (where torch has it) bools."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from ... import ir, te
from ..dtypes import Promotion, promote_dtypes
from ..lowering import Kind, NotLowered, lowers
from .pointwise import elementwise, pointwise

aten = torch.ops.aten


@elementwise(aten.add.Tensor, aten.add.Scalar)
def add(x: ir.Expr, y: ir.Expr, alpha: float = 1) -> ir.Expr:
    if x.dtype == "bool":
        return x | y if alpha else x
    return x + scale(y, alpha)


@elementwise(aten.sub.Tensor, aten.sub.Scalar)
def sub(x: ir.Expr, y: ir.Expr, alpha: float = 1) -> ir.Expr:
    return x - scale(y, alpha)


@elementwise(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: ir.Expr, y: ir.Expr, alpha: float = 1) -> ir.Expr:
    return y - scale(x, alpha)


def scale(x: ir.Expr, factor: float) -> ir.Expr:
    """`x * factor`; of integers torch takes the factor without its fraction."""
    if not ir.is_float(x.dtype):
        factor = int(factor)
    return x if factor == 1 else x * ir.const(factor, x.dtype)


@elementwise(aten.mul.Tensor, aten.mul.Scalar)
def mul(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return x & y if x.dtype == "bool" else x * y


@elementwise(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, promotion=Promotion.INT_TO_FLOAT)
def div(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return x / y


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar, kind=Kind.ELEMENTWISE)
def floor_divide(x: te.Tensor, y: Any) -> te.Tensor:
    return div_rounded(x, y, "floor")


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode, kind=Kind.ELEMENTWISE)
def div_rounded(x: te.Tensor, y: Any, rounding_mode: str | None) -> te.Tensor:
    if rounding_mode is None:
        return pointwise("div", div, x, y, promotion=Promotion.INT_TO_FLOAT)
    computed_in, dtype = promote_dtypes(x, y)
    if not isinstance(y, te.Tensor) or math.prod(y.shape) == 1:
        dtype = computed_in  # by one number torch divides without rounding on the way
    return pointwise(
        "div", partial(divide_floor if rounding_mode == "floor" else divide_trunc, step=dtype), x, y
    )


def round_to(x: ir.Expr, dtype: str) -> ir.Expr:
    """As exact as `dtype` is."""
    return te.cast(te.cast(x, dtype), x.dtype)


def divide_floor(x: ir.Expr, y: ir.Expr, step: str) -> ir.Expr:
    """The quotient, rounded down. With floats that are narrower than what torch computes in, it rounds every
    step to them (`step`)."""
    if x.dtype == step:
        return x // y
    rest = fmod(x, y)
    quotient = round_to(round_to(x - rest, step) / y, step)
    down = (rest != 0) & ((y < 0) != (rest < 0))
    quotient = te.select(down, round_to(quotient - 1, step), quotient)
    floor = te.floor(quotient)
    floor = te.select(round_to(quotient - floor, step) > 0.5, round_to(floor + 1, step), floor)
    return te.select(y == 0, x / y, copy_sign_of_zero(floor, x / y))


def divide_trunc(x: ir.Expr, y: ir.Expr, step: str | None = None) -> ir.Expr:
    """The quotient, rounded towards zero; see `divide_floor`."""
    if ir.is_float(x.dtype):
        return te.trunc(round_to(x / y, step or x.dtype))
    quotient = x // y
    return te.select((x % y != 0) & ((x < 0) != (y < 0)), quotient + 1, quotient)


@elementwise(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    rest = x % y
    return copy_sign_of_zero(rest, x) if ir.is_float(x.dtype) else rest


def copy_sign_of_zero(value: ir.Expr, sign: ir.Expr) -> ir.Expr:
    """`value`, which where it is 0 has the sign of another. (That is finite there.)"""
    return te.select(value == 0, sign * 0.0, value)


@elementwise(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    if ir.is_integer(x.dtype):
        return x - divide_trunc(x, y) * y
    rest = te.abs(x) % te.abs(y)
    return copy_sign_of_zero(te.select(x < 0, -rest, rest), x)


@elementwise(
    aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar, promotion=Promotion.BOOL_TO_LONG
)
def pow(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    exponent = y.value if isinstance(y, ir.Const) else None
    if exponent in (2, 3):
        return x * x if exponent == 2 else x * x * x
    if ir.is_integer(x.dtype):
        return integer_power(x, exponent)
    half_precision = isinstance(x, ir.Cast) and x.a.dtype == "float16"  # for which torch takes no roots
    if exponent in (0.5, -0.5) and not half_precision:
        return te.sqrt(x) if exponent == 0.5 else te.rsqrt(x)
    return te.pow(x, y)


def integer_power(x: ir.Expr, exponent: float | None) -> ir.Expr:
    if exponent is None or exponent < 0:
        raise NotLowered("a power of integers whose exponent is not known, or negative")
    result: ir.Expr = ir.const(1, x.dtype)
    for bit in f"{int(exponent):b}":
        result = result * result
        if bit == "1":
            result = result * x
    return result


@elementwise(aten.square.default, promotion=Promotion.BOOL_TO_LONG)
def square(x: ir.Expr) -> ir.Expr:
    return x * x


@elementwise(aten.neg.default)
def neg(x: ir.Expr) -> ir.Expr:
    return -x


@elementwise(aten.abs.default)
def absolute(x: ir.Expr) -> ir.Expr:
    return x if x.dtype in ("bool", "uint8") else te.abs(x)


@elementwise(aten.sign.default, aten.sgn.default)
def sign(x: ir.Expr) -> ir.Expr:
    if x.dtype == "bool":
        return x
    one, zero = ir.const(1, x.dtype), ir.const(0, x.dtype)
    if x.dtype == "uint8":
        return te.select(x > 0, one, zero)
    return te.select(x > 0, one, te.select(x < 0, ir.const(-1, x.dtype), zero))


@elementwise(aten.maximum.default)
def maximum(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return x | y if x.dtype == "bool" else te.maximum(x, y)


@elementwise(aten.minimum.default)
def minimum(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return x & y if x.dtype == "bool" else te.minimum(x, y)


@elementwise(aten.fmax.default)
def fmax(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return ignoring_nan(x, y, maximum(x, y))


@elementwise(aten.fmin.default)
def fmin(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    return ignoring_nan(x, y, minimum(x, y))


def ignoring_nan(x: ir.Expr, y: ir.Expr, both: ir.Expr) -> ir.Expr:
    if not ir.is_float(x.dtype):
        return both
    return te.select(te.isnan(x), y, te.select(te.isnan(y), x, both))


@elementwise(aten.clamp.default, aten.clamp.Tensor)
def clamp(x: ir.Expr, low: ir.Expr | None, high: ir.Expr | None) -> ir.Expr:
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@elementwise(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(x: ir.Expr, low: ir.Expr) -> ir.Expr:
    return maximum(x, low)


@elementwise(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(x: ir.Expr, high: ir.Expr) -> ir.Expr:
    return minimum(x, high)


@elementwise(aten.addcmul.default)
def addcmul(x: ir.Expr, y: ir.Expr, z: ir.Expr, value: float = 1) -> ir.Expr:
    return x + scale(y, value) * z


@elementwise(aten.addcdiv.default)
def addcdiv(x: ir.Expr, y: ir.Expr, z: ir.Expr, value: float = 1) -> ir.Expr:
    return x + scale(y, value) / z


@elementwise(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(start: ir.Expr, end: ir.Expr, weight: ir.Expr) -> ir.Expr:
    way = end - start
    return te.select(te.abs(weight) < 0.5, start + weight * way, end - way * (1 - weight))
