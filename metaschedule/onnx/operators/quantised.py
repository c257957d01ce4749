"""Quantised operators in arithmetic: passes find the products of integers in it (`torch/passes`)."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from ..registry import Tensor, operator
from ..tensors import FLOAT8, dtype_of
from .convolution import conv
from .elementwise import convert
from .integers import WIDE


def spread(parameter: Tensor, x: Tensor, axis: int, block: int = 0) -> Tensor:
    """A scale or zero point at the elements of `x` that it is for."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    if parameter.ndim == 1 and not block:
        shape = [1] * x.ndim
        shape[axis] = -1
        return parameter.reshape(shape)
    return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


@operator("QuantizeLinear")
def quantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Tensor:
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else torch.uint8
    wide = torch.float64 if precision == 11 else torch.float32
    scaled = x.to(wide) / spread(scale, x, axis, block_size).to(wide)
    offset = None if zero is None else spread(zero, x, axis, block_size).to(wide)
    if dtype in FLOAT8:
        return convert(scaled if offset is None else scaled + offset, dtype, bool(saturate))
    scaled = torch.round(scaled)
    scaled = scaled if offset is None else scaled + offset
    limits = torch.iinfo(dtype)
    return convert(torch.clamp(scaled, limits.min, limits.max), dtype)


@operator("DequantizeLinear")
def dequantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    factor = spread(scale, x, axis, block_size)
    if x.dtype in FLOAT8:
        number = x.float() if zero is None else x.float() - spread(zero, x, axis, block_size).float()
    else:
        number = x.to(torch.int32)
        number = number if zero is None else number - spread(zero, x, axis, block_size).to(torch.int32)
    found = number.to(factor.dtype) * factor
    return found.to(dtype_of(output_dtype)) if output_dtype else found


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    least, most = torch.clamp(x.amin(), max=0.0), torch.clamp(x.amax(), min=0.0)
    scale = (most - least) / 255
    divisor = torch.where(scale == 0, 1.0, scale)
    zero = torch.clamp(torch.round(-least / divisor), 0, 255).to(torch.uint8)
    return quantize(x, divisor, zero), scale, zero


def as_rows(parameter: Tensor | None, x: Tensor) -> Any:
    """A zero point or scale of rows of the first operand."""
    if parameter is None or parameter.numel() == 1 or parameter.ndim > 1:
        return parameter if parameter is None or parameter.ndim > 1 else parameter.reshape(())
    return parameter.unsqueeze(-1)


@operator("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    x, y = a.to(torch.int32), b.to(torch.int32)
    x = x if a_zero is None else x - as_rows(a_zero, a).to(torch.int32)
    y = y if b_zero is None else y - b_zero.to(torch.int32)
    return torch.matmul(x, y)


@operator("QLinearMatMul")
def quantised_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    total = matmul_integer(a, b, a_zero, b_zero)
    scale = (
        as_rows(a_scale, a).float() * b_scale.reshape(b_scale.shape if b_scale.numel() > 1 else ()).float()
    )
    wide = total.float() * scale
    return quantize(wide, y_scale.float(), y_zero, axis=-1)


@operator("ConvInteger")
def conv_integer(
    x: Tensor, weight: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **window: Any
) -> Tensor:
    return integer_convolution(x, weight, x_zero, w_zero, **window).to(torch.int32)


def integer_convolution(
    x: Tensor, weight: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, **window: Any
) -> Tensor:
    """In float64, in which any sum of such products is exact."""
    one = torch.ones((), dtype=torch.float64)
    return conv(dequantize(x, one, x_zero), dequantize(weight, one, w_zero, axis=0), None, **window)


@operator("QLinearConv")
def quantised_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, weight: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None, **window: Any,
) -> Tensor:  # fmt: skip
    """The bias is in steps of both scales."""
    if y_scale.numel() != 1 or x.dtype in WIDE:
        raise Unsupported("QLinearConv with scales of channels for its result")
    found = conv(dequantize(x, x_scale, x_zero), dequantize(weight, w_scale, w_zero, axis=0), None, **window)
    if bias is not None:
        factor = (
            (x_scale * w_scale).reshape([-1] + [1] * (x.ndim - 2))
            if w_scale.numel() > 1
            else x_scale * w_scale
        )
        found = found + bias.to(torch.float32).reshape([-1] + [1] * (x.ndim - 2)) * factor
    return quantize(found, y_scale, y_zero)
