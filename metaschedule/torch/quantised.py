"""Quantising operators of `torch.ao` and torchao in ATen's: what follows sees arithmetic, whoever wrote it.

`quantize` is round(x * (1 / scale)) + zero, kept between two limits and narrowed; `dequantize` is
(q - zero) * scale. They differ in what has a scale of its own: the tensor, a channel, a row (token), or a
group of elements in a row. Each is computed in the dtypes in which torch's own functions compute it, so that
the integers are the same; `passes/integer_products.py` then finds products of such integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor

decomposed = torch.ops.quantized_decomposed
EPS = torch.finfo(torch.float32).eps


def quantize_per_tensor(x: Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype) -> Tensor:
    """Numbers or tensors of one element. The quotient of 1 is taken in float64."""
    if isinstance(scale, Tensor):
        inverse = (1.0 / scale.reshape(()).double()).float()
        scaled = torch.round(x.float() * inverse) + zero.reshape(()).float()
    else:
        scaled = torch.round(x.float() * (1.0 / scale)) + zero
    return narrowed(scaled, low, high, dtype)


def narrowed(x: Tensor, low: Any, high: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(low, Tensor):
        low, high = (limit.reshape(()).to(x.dtype) for limit in (low, high))
    return torch.clamp(x, low, high).to(dtype)


def dequantize_per_tensor(
    q: Tensor, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype, *, out_dtype: Any = None
) -> Tensor:
    out_dtype = out_dtype or torch.float32
    if isinstance(scale, Tensor):
        scale, zero = scale.reshape(()).to(out_dtype), zero.reshape(()).to(torch.int32)
        return (q.to(torch.int32) - zero).to(out_dtype) * scale
    return (q.to(out_dtype) - zero) * scale


def along(x: Tensor, parameters: Tensor, axis: int) -> Tensor:
    """Parameters of channels, in the rank of `x`."""
    return parameters.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


def quantize_per_channel(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    scaled = torch.round(x.float() * (1.0 / along(x, scales, axis))) + along(x, zeros, axis)
    return narrowed(scaled, low, high, dtype)


def dequantize_per_channel(
    q: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    return dequantize(q, along(q, scales, axis), None if zeros is None else along(q, zeros, axis)).to(
        out_dtype or torch.float32
    )


def dequantize(q: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Integers minus integers are integers; others are subtracted as what they are."""
    if zero is None:
        return q * scale
    if zero.is_floating_point():
        return (q - zero) * scale
    return (q.to(torch.int32) - zero.to(torch.int32)) * scale


def quantize_per_token(
    x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """The zero is added before rounding, here and for groups."""
    return narrowed((x * (1.0 / scales) + zeros).round(), low, high, dtype)


def dequantize_per_token(
    q: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: torch.dtype, output: torch.dtype
) -> Tensor:
    return dequantize(q, scales, zeros).to(output)


def in_groups(x: Tensor, scales: Tensor, size: int) -> Tensor:
    return x.reshape(-1, x.shape[-1] if size > x.shape[-1] and scales.shape[-1] == 1 else size)


def quantize_per_channel_group(
    x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: torch.dtype, group_size: int = 128
) -> Tensor:
    scales, zeros = scales.reshape(-1, 1), zeros.reshape(-1, 1)
    return quantize_per_token(in_groups(x, scales, group_size), scales, zeros, low, high, dtype).reshape(
        x.shape
    )


def dequantize_per_channel_group(
    q: Tensor, scales: Tensor, zeros: Tensor | None, low: int, high: int, dtype: torch.dtype,
    group_size: int = 128, output_dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    zeros = None if zeros is None else zeros.reshape(-1, 1)
    found = dequantize(in_groups(q, scales, group_size), scales.reshape(-1, 1), zeros)
    return found.reshape(q.shape).to(output_dtype)


def choose_qparams(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of the whole tensor, so that 0 is one of the numbers."""
    least, most = extremes(x)
    scale = torch.clamp((most - least) / float(high - low), min=eps)
    zero = torch.clamp(low - torch.round(least / scale).to(torch.int32), low, high)
    return scale.double().reshape(1), zero.long().reshape(1)


def choose_qparams_symmetric(
    x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    least, most = extremes(x)
    scale = torch.clamp(torch.maximum(-least, most) / (float(high - low) / 2), min=eps)
    zero = torch.full((1,), 128 if dtype is torch.uint8 else 0, dtype=torch.int64, device=x.device)
    return scale.double().reshape(1), zero


def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest element, and 0. Of rows first: along with what computes them."""
    if x.ndim > 1:
        return torch.clamp(x.amin(-1).amin(), max=0), torch.clamp(x.amax(-1).amax(), min=0)
    return torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)


def choose_qparams_per_token(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True)
    scale = (scale.float() if scale.dtype is torch.float16 else scale).clamp(min=1e-5) / 127
    return scale, torch.zeros_like(scale)


def choose_qparams_per_token_asymmetric(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of the two ends that one which is hit with the smaller error decides where 0 is."""
    low, high = -128, 127
    least, most = torch.clamp(x.amin(-1, True), max=0), torch.clamp(x.amax(-1, True), min=0)
    scale = ((most - least) / float(high - low)).clamp(min=EPS)
    at_least, at_most = least / scale, most / scale
    zero = torch.where((low + at_least) + (high + at_most) > 0, low - at_least, high - at_most)
    return scale.double(), torch.clamp(zero, low, high).round().long()


def convert_element_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


QUANTISED: dict[Any, Callable[..., Any]] = {
    **{
        getattr(decomposed.quantize_per_tensor, o): quantize_per_tensor
        for o in ("default", "tensor", "tensor2")
    },
    **{
        getattr(decomposed.dequantize_per_tensor, o): dequantize_per_tensor
        for o in ("default", "tensor", "tensor2")
    },
    decomposed.quantize_per_channel.default: quantize_per_channel,
    decomposed.dequantize_per_channel.default: dequantize_per_channel,
    decomposed.quantize_per_token.default: quantize_per_token,
    decomposed.dequantize_per_token.default: dequantize_per_token,
    decomposed.quantize_per_channel_group.default: quantize_per_channel_group,
    decomposed.dequantize_per_channel_group.default: dequantize_per_channel_group,
    decomposed.choose_qparams.tensor: choose_qparams,
    decomposed.choose_qparams_symmetric.tensor: choose_qparams_symmetric,
    decomposed.choose_qparams_per_token.default: choose_qparams_per_token,
    decomposed.choose_qparams_per_token_asymmetric.default: choose_qparams_per_token_asymmetric,
    decomposed.convert_element_type.no_fuse: convert_element_type,
}
