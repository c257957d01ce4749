"""Products of narrow integers, summed in int32: what quantised models are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import te
from ..lowering import Kind, lowers
from .convolution import FIRST, LAST, DimensionOrder, SlidingWindow, convolve_transposed, forward
from .matmul import wide_product

aten = torch.ops.aten


@lowers(aten._int_mm.default, "integer_matmul", kind=Kind.HEAVY)
def integer_matmul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return wide_product(x, y, "int32")


@lowers("integer_convolution", kind=Kind.HEAVY)
def integer_convolution(
    x: te.Tensor, weight: te.Tensor, zero: te.Tensor | int,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    is_transposed: bool, output_padding: Sequence[int], groups: int, layout: DimensionOrder = FIRST,
) -> te.Tensor:  # fmt: skip
    """`zero` is the number that stands for 0.0 in `x`: around it is padded with that."""
    window = SlidingWindow(stride, padding, dilation)
    fill = te.cast(zero[(0,) * zero.ndim], x.dtype) if isinstance(zero, te.Tensor) else zero
    if is_transposed:
        return convolve_transposed(x, weight, window, output_padding, groups, layout, fill, "int32")
    return forward(x, weight, window, groups, layout, fill, "int32")


@lowers("integer_convolution_channels_last", kind=Kind.HEAVY)
def integer_convolution_channels_last(
    x: te.Tensor, weight: te.Tensor, zero: te.Tensor | int,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    is_transposed: bool, output_padding: Sequence[int], groups: int,
) -> te.Tensor:  # fmt: skip
    """Weights as `conv_channels_last` and `conv_transpose_channels_last` have them."""
    window = (stride, padding, dilation)
    return integer_convolution(x, weight, zero, *window, is_transposed, output_padding, groups, LAST)
