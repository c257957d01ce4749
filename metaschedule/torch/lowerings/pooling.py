"""Pooling over windows, of images with channels first as torch has them or last."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ... import ir, te
from ..dtypes import accumulator
from ..lowering import Kind, lowers
from .padding import pad_constant

aten = torch.ops.aten


class Windows:
    """Windows over the dimensions `dims` of `x`; a list of one number is meant for each dimension."""

    def __init__(
        self, x: te.Tensor, dims: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
        padding: Sequence[int], dilation: Sequence[int] = (1,), ceil: bool = False,
    ) -> None:  # fmt: skip
        self.x, self.dims = x, list(dims)
        self.kernel, self.padding, self.dilation = map(self.each, (kernel, padding, dilation))
        self.stride = self.each(stride or kernel)
        self.extents = [self.extent(at, ceil) for at in range(len(dims))]
        self.shape = [
            self.extents[self.dims.index(d)] if d in self.dims else n for d, n in enumerate(x.shape)
        ]
        self.axes = [te.reduce_axis(k, name=f"r{d}") for k, d in zip(self.kernel, self.dims, strict=True)]

    def each(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers) * (len(self.dims) if len(numbers) == 1 else 1)

    def extent(self, at: int, ceil: bool) -> int:
        size, pad, stride = self.x.shape[self.dims[at]], self.padding[at], self.stride[at]
        way = size + 2 * pad - self.dilation[at] * (self.kernel[at] - 1) - 1
        extent = -(-way // stride) + 1 if ceil else way // stride + 1
        if ceil and (extent - 1) * stride >= size + pad:
            extent -= 1  # a window has to begin inside the input or its padding before
        return extent

    def source(self, value: float) -> te.Tensor:
        """The input with `value` around it, as far as windows reach."""
        sides = [(0, 0)] * self.x.ndim
        for at, d in enumerate(self.dims):
            last = (self.extents[at] - 1) * self.stride[at] + self.dilation[at] * (self.kernel[at] - 1)
            beyond = last + 1 - self.padding[at] - self.x.shape[d]
            sides[d] = (self.padding[at], max(beyond, 0))
        return pad_constant(self.x, sides, ir.const(value, self.x.dtype))

    def sizes(self, i: Sequence[ir.Expr], count_padding: bool) -> ir.Expr:
        """How many elements the window at `i` has, with or without those of the padding."""
        size: ir.Expr = ir.const(1, ir.INDEX)
        for at, d in enumerate(self.dims):
            stride, kernel, pad, extent = self.stride[at], self.kernel[at], self.padding[at], self.x.shape[d]
            border = pad if count_padding else 0
            start, end = i[d] * stride - pad, i[d] * stride - pad + kernel
            if border == pad and (self.extents[at] - 1) * stride + kernel <= extent + 2 * pad:
                size = size * kernel
            else:
                size = size * (te.minimum(end, extent + border) - te.maximum(start, -border))
        return size

    def index(self, i: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        """Where in `source` the element of the axes is."""
        index = list(i)
        for d, s, r, step in zip(self.dims, self.stride, self.axes, self.dilation, strict=True):
            index[d] = i[d] * s + r * step
        return tuple(index)


def pool_max(windows: Windows) -> te.Tensor:
    source = windows.source(ir.lowest(windows.x.dtype))
    return te.compute(
        windows.shape, lambda *i: te.max(source[windows.index(i)], axis=windows.axes), name="max_pool"
    )


def max_positions(windows: Windows) -> te.Tensor:
    """Where each window's largest element is, counted over the input's pooled dimensions: the first of equal
    ones, the last NaN, and never a place in the padding."""
    source = windows.source(ir.lowest(windows.x.dtype))
    outside = ir.integer_limits(ir.INDEX)[1]

    def element(*i: ir.Expr) -> ir.Expr:
        index = windows.index(i)
        position: ir.Expr = ir.const(0, ir.INDEX)
        inside: list[ir.Expr] = []
        for d, pad in zip(windows.dims, windows.padding, strict=True):
            place, extent = index[d] - pad, windows.x.shape[d]
            inside += [place >= 0] if pad else []
            inside += [place < extent] if source.shape[d] > extent + pad else []
            position = position * extent + place
        position = te.select(te.all_of(inside), position, outside) if inside else position
        return LARGEST((source[index], position), windows.axes)[1]

    return te.compute(windows.shape, element, name="positions")


def larger(a: tuple[ir.Expr, ir.Expr], b: tuple[ir.Expr, ir.Expr]) -> tuple[ir.Expr, ir.Expr]:
    (x, i), (y, j) = a, b
    keep = (x > y) | ((x == y) & (i < j))
    if ir.is_float(x.dtype):
        keep = te.select(te.isnan(x) & te.isnan(y), i > j, keep | te.isnan(x))
    return te.select(keep, x, y), te.select(keep, i, j)


LARGEST = te.reducer(
    larger, lambda dtype, index: (ir.lowest(dtype), ir.integer_limits(index)[1]), name="largest"
)


def pool_average(windows: Windows, count_padding: bool, divisor: int | None) -> te.Tensor:
    x, dtype = windows.x, accumulator(windows.x.dtype)
    source = windows.source(0)
    total = te.compute(
        windows.shape,
        lambda *i: te.sum(te.cast(source[windows.index(i)], dtype), axis=windows.axes),
        name="sum",
    )

    def element(*i: ir.Expr) -> ir.Expr:
        size = ir.const(divisor) if divisor else windows.sizes(i, count_padding)
        return te.cast(total[i] / te.cast(size, dtype), x.dtype)

    return te.compute(windows.shape, element, name="avg_pool")


def spatial_dims(x: te.Tensor, spatial: int, channels_last: bool) -> range:
    first = 1 if channels_last else x.ndim - spatial
    return range(first, first + spatial)


def max_pool_with_indices(
    x: te.Tensor, *window: Any, spatial: int, channels_last: bool = False
) -> tuple[te.Tensor, te.Tensor]:
    windows = Windows(x, spatial_dims(x, spatial, channels_last), *window)
    return pool_max(windows), max_positions(windows)


def max_pool(x: te.Tensor, *window: Any, spatial: int, channels_last: bool = False) -> te.Tensor:
    return pool_max(Windows(x, spatial_dims(x, spatial, channels_last), *window))


def avg_pool(
    x: te.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool,
    count_padding: bool, divisor: int | None = None, *, spatial: int, channels_last: bool = False,
) -> te.Tensor:  # fmt: skip
    dims = spatial_dims(x, spatial, channels_last)
    return pool_average(Windows(x, dims, kernel, stride, padding, (1,), ceil), count_padding, divisor)


for n in (1, 2, 3):
    last = {"spatial": n, "channels_last": True}
    lowers(f"max_pool{n}d_channels_last", kind=Kind.REDUCTION)(functools.partial(max_pool, **last))
    lowers(f"avg_pool{n}d_channels_last", kind=Kind.REDUCTION)(functools.partial(avg_pool, **last))
    for name, function in (("max_pool{}d", max_pool), ("avg_pool{}d", avg_pool)):
        overload = getattr(aten, name.format(n)).default
        lowers(overload, kind=Kind.REDUCTION)(functools.partial(function, spatial=n))
    if n > 1:
        overload = getattr(aten, f"max_pool{n}d_with_indices").default
        lowers(overload, kind=Kind.REDUCTION)(functools.partial(max_pool_with_indices, spatial=n))
