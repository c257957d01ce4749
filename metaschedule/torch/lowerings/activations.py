"""Activation functions."""

from __future__ import annotations

import math

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import Promotion
from .pointwise import elementwise

aten = torch.ops.aten


@elementwise(aten.relu.default)
def relu(x: Expr) -> Expr:
    return te.maximum(x, 0)


@elementwise(aten.hardtanh.default)
def hardtanh(x: Expr, low: float = -1, high: float = 1) -> Expr:
    return te.minimum(te.maximum(x, low), high)


@elementwise(aten.relu6.default)
def relu6(x: Expr) -> Expr:
    return hardtanh(x, 0, 6)


@elementwise(aten.gelu.default)
def gelu(x: Expr, approximate: str = "none") -> Expr:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + te.tanh(inner))
    return 0.5 * x * (1 + te.erf(x * math.sqrt(0.5)))


@elementwise(aten.silu.default)
def silu(x: Expr) -> Expr:
    return x * te.sigmoid(x)


@elementwise(aten.hardsigmoid.default)
def hardsigmoid(x: Expr) -> Expr:
    return relu6(x + 3) / 6


@elementwise(aten.hardswish.default)
def hardswish(x: Expr) -> Expr:
    return x * relu6(x + 3) / 6


@elementwise(aten.leaky_relu.default)
def leaky_relu(x: Expr, slope: float = 0.01) -> Expr:
    return te.select(x > 0, x, x * slope)


@elementwise(aten._prelu_kernel.default)
def prelu(x: Expr, slope: Expr) -> Expr:
    return te.select(x > 0, x, x * slope)


@elementwise(aten.elu.default)
def elu(x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    return te.select(x > 0, x * scale, te.expm1(x * input_scale) * (alpha * scale))


@elementwise(aten.celu.default)
def celu(x: Expr, alpha: float = 1) -> Expr:
    return elu(x, alpha, 1, 1 / alpha)


@elementwise(aten.selu.default)
def selu(x: Expr) -> Expr:
    return elu(x, 1.6732632423543772, 1.0507009873554805)


@elementwise(aten.softplus.default)
def softplus(x: Expr, beta: float = 1, threshold: float = 20) -> Expr:
    return te.select(x * beta > threshold, x, te.log1p(te.exp(x * beta)) / beta)


@elementwise(aten.mish.default)
def mish(x: Expr) -> Expr:
    return x * te.tanh(te.select(x > 20, x, te.log1p(te.exp(x))))


@elementwise(aten.log_sigmoid.default)
def log_sigmoid(x: Expr) -> Expr:
    return te.minimum(x, 0) - te.log1p(te.exp(-te.abs(x)))


@elementwise(aten.hardshrink.default)
def hardshrink(x: Expr, width: float = 0.5) -> Expr:
    return te.select((x >= -width) & (x <= width), const(0, x.dtype), x)


@elementwise(aten.softshrink.default)
def softshrink(x: Expr, width: float = 0.5) -> Expr:
    within = te.select(te.isnan(x), x, const(0, x.dtype))
    return te.select(x > width, x - width, te.select(x < -width, x + width, within))


@elementwise(aten.threshold.default, promotion=Promotion.NO_OPMATH)
def threshold(x: Expr, limit: float = 0, value: float = 0) -> Expr:
    return te.select(x <= limit, const(value, x.dtype), x)
