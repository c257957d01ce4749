"""Comparisons, conditions and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import te
from ...ir import Expr, binary, const, is_float
from ..dtypes import Promotion, promote_dtypes
from ..lowering import Kind, lowers
from .functions import is_negative
from .pointwise import broadcast, broadcast_shape, element_of, elementwise

aten = torch.ops.aten

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def comparison(name: str, operator: str) -> Callable[[Expr, Expr], Expr]:
    def compare(x: Expr, y: Expr) -> Expr:
        return binary(operator, x, y)

    compare.__name__ = name
    return compare


for name, operator in COMPARISONS.items():
    packet = getattr(aten, name)
    elementwise(packet.Tensor, packet.Scalar, promotion=Promotion.NO_OPMATH, result="bool")(
        comparison(name, operator)
    )


@elementwise(aten.logical_and.default, result="bool")
def logical_and(x: Expr, y: Expr) -> Expr:
    return te.cast(x, "bool") & te.cast(y, "bool")


@elementwise(aten.logical_or.default, result="bool")
def logical_or(x: Expr, y: Expr) -> Expr:
    return te.cast(x, "bool") | te.cast(y, "bool")


@elementwise(aten.logical_xor.default, result="bool")
def logical_xor(x: Expr, y: Expr) -> Expr:
    return te.cast(x, "bool") ^ te.cast(y, "bool")


@elementwise(aten.logical_not.default, result="bool")
def logical_not(x: Expr) -> Expr:
    return ~te.cast(x, "bool")


@elementwise(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.__and__.Tensor, aten.__and__.Scalar)
def bitwise_and(x: Expr, y: Expr) -> Expr:
    return x & y


@elementwise(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.__or__.Tensor, aten.__or__.Scalar)
def bitwise_or(x: Expr, y: Expr) -> Expr:
    return x | y


@elementwise(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.__xor__.Tensor, aten.__xor__.Scalar)
def bitwise_xor(x: Expr, y: Expr) -> Expr:
    return x ^ y


@elementwise(aten.bitwise_not.default)
def bitwise_not(x: Expr) -> Expr:
    return ~x


@elementwise(
    aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar,
    aten.__lshift__.Tensor, aten.__lshift__.Scalar,
)  # fmt: skip
def left_shift(x: Expr, y: Expr) -> Expr:
    return x << y


@elementwise(
    aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar,
    aten.__rshift__.Tensor, aten.__rshift__.Scalar,
)  # fmt: skip
def right_shift(x: Expr, y: Expr) -> Expr:
    return x >> y


@elementwise(aten.isnan.default, result="bool")
def isnan(x: Expr) -> Expr:
    return te.isnan(x) if is_float(x.dtype) else const(False)


@elementwise(aten.isinf.default, result="bool")
def isinf(x: Expr) -> Expr:
    return te.isinf(x) if is_float(x.dtype) else const(False)


@elementwise(aten.isfinite.default, result="bool")
def isfinite(x: Expr) -> Expr:
    return ~(te.isinf(x) | te.isnan(x)) if is_float(x.dtype) else const(True)


@elementwise(aten.signbit.default, result="bool")
def signbit(x: Expr) -> Expr:
    if x.dtype in ("bool", "uint8"):
        return const(False)
    return is_negative(x) if is_float(x.dtype) else x < 0


@lowers(
    *(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar),
    kind=Kind.ELEMENTWISE,
)
def where(condition: te.Tensor, x: Any, y: Any) -> te.Tensor:
    dtype = promote_dtypes(x, y, promotion=Promotion.NO_OPMATH)[1]
    shape = broadcast_shape(condition, x, y)

    def element(*i: Expr) -> Expr:
        chosen = te.cast(broadcast(condition, i, shape), "bool")
        return te.select(chosen, element_of(x, i, shape, dtype), element_of(y, i, shape, dtype))

    return te.compute(shape, element, name="where")


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor, kind=Kind.ELEMENTWISE)
def masked_fill(x: te.Tensor, mask: te.Tensor, value: Any) -> te.Tensor:
    shape = broadcast_shape(x, mask)

    def element(*i: Expr) -> Expr:
        filled = element_of(value, i, shape, x.dtype)
        return te.select(broadcast(mask, i, shape), filled, broadcast(x, i, shape))

    return te.compute(shape, element, name="masked_fill")
