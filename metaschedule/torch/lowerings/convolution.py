"""Convolutions of any number of spatial dimensions, with channels first as torch has them or last.

Padding, and the zeros between the elements of a transposed convolution, are a stage of their own; the
convolution reads it without conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ... import te
from ...ir import Expr, Operand
from ..dtypes import accumulator
from ..lowering import Kind, lowers
from .matmul import round_to
from .padding import pad_constant

aten = torch.ops.aten
Space = Sequence[Any]


@dataclass(frozen=True)
class DimensionOrder:
    """In what order an activation has batch, channels and space, and a weight outputs, inputs and space
    (of a transposed convolution inputs, outputs and space, unless channels are last)."""

    channels_last: bool

    def activation(self, n: Any, c: Any, space: Space) -> tuple[Any, ...]:
        return (n, *space, c) if self.channels_last else (n, c, *space)

    def weight(self, o: Any, i: Any, space: Space) -> tuple[Any, ...]:
        return (*space, i, o) if self.channels_last else (o, i, *space)

    def transposed_weight(self, o: Any, i: Any, space: Space) -> tuple[Any, ...]:
        return (*space, i, o) if self.channels_last else (i, o, *space)

    def of_activation(self, dims: Sequence[Any]) -> tuple[Any, Any, Space]:
        """Batch, channels and space of an index or a shape."""
        return (dims[0], dims[-1], dims[1:-1]) if self.channels_last else (dims[0], dims[1], dims[2:])

    def kernel(self, weight: te.Tensor) -> tuple[int, ...]:
        return weight.shape[:-2] if self.channels_last else weight.shape[2:]

    def names(self, spatial: int) -> list[str]:
        return list(self.activation("n", "c", ("d", "h", "w")[3 - spatial :]))


FIRST, LAST = DimensionOrder(False), DimensionOrder(True)


@dataclass(frozen=True)
class SlidingWindow:
    """How a kernel goes over the input, one number for each spatial dimension."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]


def reach(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """How far the last element of a kernel is from its first."""
    return [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]


def sum_over_kernel(
    source: te.Tensor,
    shape: tuple[int, ...],
    layout: DimensionOrder,
    kernel: Sequence[int],
    window: SlidingWindow,
    channels: int,
    term: Callable[[Expr, Any, Space], tuple[Expr, Expr]],
    dtype: str | None = None,
) -> te.Tensor:
    """The sum over `kernel` and `channels` inputs of a group. `term(output channel, input, kernel index)` is
    the channel of `source` to read, and the weight to multiply it with. In `dtype`, or torch's for sums."""
    spatial = ("d", "h", "w")[3 - len(kernel) :]
    rk = [te.reduce_axis(n, name=f"r{d}") for n, d in zip(kernel, spatial, strict=True)]
    rc = [te.reduce_axis(channels, name="rc")] if channels != 1 else []  # none if depthwise
    dtype = dtype or accumulator(source.dtype)

    def element(*i: Expr) -> Expr:
        n, c, space = layout.of_activation(i)
        at = [v * s + r * d for v, s, r, d in zip(space, window.stride, rk, window.dilation, strict=True)]
        channel, weight = term(c, rc[0] if rc else 0, rk)
        value = source[layout.activation(n, channel, at)]
        return te.sum(te.cast(value, dtype) * te.cast(weight, dtype), axis=[*rk, *rc])

    return te.compute(shape, element, name="conv", axes=layout.names(len(kernel)))


def forward(
    x: te.Tensor, weight: te.Tensor, window: SlidingWindow, groups: int, layout: DimensionOrder,
    fill: Operand = 0, dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """`fill` is around the input."""
    batch, inputs, space = layout.of_activation(x.shape)
    kernel = layout.kernel(weight)
    outputs = weight.shape[-1 if layout.channels_last else 0]
    sides = [(p, p) for p in window.padding]
    source = pad_constant(x, layout.activation((0, 0), (0, 0), sides), fill)
    far = reach(kernel, window.dilation)
    extents = [
        (n + 2 * p - r - 1) // s + 1
        for n, p, r, s in zip(space, window.padding, far, window.stride, strict=True)
    ]
    per_group = inputs // groups

    def term(o: Expr, i: Any, k: Space) -> tuple[Expr, Expr]:
        first = o // (outputs // groups) * per_group if groups > 1 else 0
        return first + i, weight[layout.weight(o, i, k)]

    shape = layout.activation(batch, outputs, extents)
    return sum_over_kernel(source, shape, layout, kernel, window, per_group, term, dtype)


def convolve_transposed(
    x: te.Tensor, weight: te.Tensor, window: SlidingWindow, more: Sequence[int], groups: int,
    layout: DimensionOrder, fill: Operand = 0, dtype: str | None = None,
) -> te.Tensor:  # fmt: skip
    """The input spread out, `stride` apart with `fill` between and around, and convolved with the kernel
    turned round. `more` is torch's `output_padding`."""
    batch, inputs, space = layout.of_activation(x.shape)
    kernel = layout.kernel(weight)
    per_output_group = weight.shape[-1 if layout.channels_last else 1]
    far = reach(kernel, window.dilation)
    extents = [
        (n - 1) * s - 2 * p + r + m + 1
        for n, s, p, r, m in zip(space, window.stride, window.padding, far, more, strict=True)
    ]
    source = spread(x, extents, far, window, layout, fill)
    per_group = inputs // groups

    def term(o: Expr, i: Any, k: Space) -> tuple[Expr, Expr]:
        channel = o // per_output_group * per_group + i if groups > 1 else i
        output = o % per_output_group if groups > 1 else o
        turned = [n - 1 - r for n, r in zip(kernel, k, strict=True)]
        return channel, weight[layout.transposed_weight(output, channel, turned)]

    shape = layout.activation(batch, per_output_group * groups, extents)
    ones = [1] * len(kernel)
    window = SlidingWindow(ones, ones, window.dilation)
    return sum_over_kernel(source, shape, layout, kernel, window, per_group, term, dtype)


def spread(
    x: te.Tensor, extents: Sequence[int], far: Sequence[int], window: SlidingWindow, layout: DimensionOrder,
    fill: Operand = 0,
) -> te.Tensor:  # fmt: skip
    batch, channels, space = layout.of_activation(x.shape)
    edges = [r - p for r, p in zip(far, window.padding, strict=True)]  # negative where padding cuts

    def element(*i: Expr) -> Expr:
        n, c, at = layout.of_activation(i)
        inside: list[Expr] = []
        index: list[Expr] = []
        for v, edge, extent, s in zip(at, edges, space, window.stride, strict=True):
            inside += [v >= edge, v < edge + (extent - 1) * s + 1]
            inside += [(v - edge) % s == 0] if s > 1 else []
            index.append((v - edge) // s)
        return te.select(te.all_of(inside), x[layout.activation(n, c, index)], fill)

    shape = layout.activation(batch, channels, [n + r for n, r in zip(extents, far, strict=True)])
    return te.compute(shape, element, name="spread", axes=layout.names(len(space)))


def add_bias(x: te.Tensor, bias: te.Tensor | None, dtype: str, layout: DimensionOrder) -> te.Tensor:
    if bias is None:
        return round_to(x, dtype)

    def element(*i: Expr) -> Expr:
        channel = layout.of_activation(i)[1]
        return te.cast(x[i] + te.cast(bias[channel], x.dtype), dtype)

    return te.compute(x.shape, element, name="bias_add", axes=layout.names(x.ndim - 2))


@lowers(aten.convolution.default, kind=Kind.HEAVY)
def convolution(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    is_transposed: bool, output_padding: Sequence[int], groups: int, layout: DimensionOrder = FIRST,
) -> te.Tensor:  # fmt: skip
    window = SlidingWindow(stride, padding, dilation)
    if is_transposed:
        result = convolve_transposed(x, weight, window, output_padding, groups, layout)
    else:
        result = forward(x, weight, window, groups, layout)
    return add_bias(result, bias, x.dtype, layout)


@lowers(*[f"conv{n}d_channels_last" for n in (1, 2, 3)], kind=Kind.HEAVY)
def conv_channels_last(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> te.Tensor:  # fmt: skip
    """X(n, space.., ci) with W(k.., ci/groups, co), giving (n, space.., co)."""
    return convolution(x, weight, bias, stride, padding, dilation, False, (), groups, LAST)


@lowers(*[f"conv_transpose{n}d_channels_last" for n in (1, 2, 3)], kind=Kind.HEAVY)
def conv_transpose_channels_last(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    output_padding: Sequence[int], groups: int, dilation: Sequence[int],
) -> te.Tensor:  # fmt: skip
    """X(n, space.., ci) with W(k.., ci, co/groups), giving (n, space.., co)."""
    return convolution(x, weight, bias, stride, padding, dilation, True, output_padding, groups, LAST)
