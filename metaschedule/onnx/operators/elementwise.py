"""One element of each input makes one of the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Unsupported
from ..registry import Tensor, operator
from ..tensors import FLOAT8, dtype_of, number
from .integers import WIDE, divide, modular, ordering

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": modular(torch.bitwise_not),
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,  # halves to even ones, as ONNX
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": modular(torch.add),
    "And": torch.logical_and,
    "BitwiseAnd": modular(torch.bitwise_and),
    "BitwiseOr": modular(torch.bitwise_or),
    "BitwiseXor": modular(torch.bitwise_xor),
    "Equal": modular(torch.eq),
    "Greater": ordering(torch.gt),
    "GreaterOrEqual": ordering(torch.ge),
    "Less": ordering(torch.lt),
    "LessOrEqual": ordering(torch.le),
    "Mul": modular(torch.mul),
    "Or": torch.logical_or,
    "Sub": modular(torch.sub),
    "Xor": torch.logical_xor,
}


def register_simple() -> None:
    for name, function in UNARY.items():
        operator(name)(lambda x, function=function: function(x))
    for name, function in BINARY.items():
        operator(name)(lambda x, y, function=function: function(x, y))


register_simple()


@operator("Abs")
def absolute(x: Tensor) -> Tensor:
    return x if x.dtype in WIDE else torch.abs(x)


@operator("Div")
def div(x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else divide(x, y)


@operator("Mod")
def mod(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    if x.dtype is torch.uint64:
        return modular(torch.sub)(x, modular(torch.mul)(divide(x, y), y))
    return modular(torch.fmod if fmod else torch.remainder)(x, y)


@operator("Pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    """In the dtype of the base. Integers to integers are exact."""
    if not x.is_floating_point() and y.is_floating_point():
        return torch.pow(x.to(torch.float64), y).to(x.dtype)
    if x.is_floating_point() and not y.is_floating_point():
        return torch.pow(x, y.to(x.dtype))
    if x.is_floating_point():
        return torch.pow(x, y.to(x.dtype) if y.dtype.itemsize <= x.dtype.itemsize else y).to(x.dtype)
    return torch.pow(x.to(torch.int64), y.to(torch.int64)).to(x.dtype)


@operator("Max")
def maximum(*inputs: Tensor) -> Tensor:
    return reduce(ordering(torch.maximum), inputs)


@operator("Min")
def minimum(*inputs: Tensor) -> Tensor:
    return reduce(ordering(torch.minimum), inputs)


@operator("Sum")
def total(*inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs)


@operator("Mean")
def mean(*inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs) / len(inputs)


@operator("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return modular(torch.where)(condition, x, y)


@operator("Clip")
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = ordering(torch.maximum)(x, low)
    return x if high is None else ordering(torch.minimum)(x, high)


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    wide = x.float() if x.dtype in FLOAT8 else x
    if detect_negative and detect_positive:
        return torch.isinf(wide)
    if detect_negative:
        return wide == -math.inf
    return wide == math.inf if detect_positive else torch.zeros_like(wide, dtype=torch.bool)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.6732632, gamma: float = 1.050701) -> Tensor:
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, 0.0)


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    """Without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return torch.relu(x) + torch.log1p(torch.exp(-torch.abs(x)))


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    outside = torch.where(x > lambd, x - bias, torch.zeros_like(x, dtype=torch.result_type(x, bias)))
    return torch.where(x < -lambd, x + bias, outside).to(x.dtype)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@operator("Dropout")
def dropout(
    x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None, *, seed: int | None = None
) -> Any:
    """Models are run, not trained."""
    if training is not None:
        drops = 0.5 if ratio is None else number(ratio, "the ratio of a dropout")
        if number(training, "whether a dropout is of training") and drops != 0:
            raise Unsupported("Dropout in training draws random numbers")
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return convert(x, dtype_of(to), bool(saturate))


@operator("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return convert(x, like.dtype, bool(saturate))


def convert(x: Tensor, dtype: torch.dtype, saturate: bool = True) -> Tensor:
    if x.dtype is dtype:
        return x
    if dtype in FLOAT8:
        wide = x.to(torch.float32)
        limit = torch.finfo(dtype).max
        if saturate:
            return torch.clamp(wide, -limit, limit).to(dtype)
        if dtype is torch.float8_e4m3fn:  # up to the middle to the next number that there would be
            wide = torch.where(wide.abs() > 464, math.nan, wide)
        return wide.to(dtype)
    if x.dtype in FLOAT8:
        return x.to(torch.float32).to(dtype)
    if x.is_floating_point() and dtype in WIDE:
        return x.to(torch.int64).to(dtype)
    if dtype is torch.bool:
        return x != 0
    return x.to(dtype)


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    dtype = dtype_of(to)
    if dtype.itemsize != x.dtype.itemsize or torch.bool in (dtype, x.dtype):
        raise Unsupported(f"BitCast from {x.dtype} to {dtype}")
    return x.view(dtype)
