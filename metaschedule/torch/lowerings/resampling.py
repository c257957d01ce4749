"""Upsampling (and downsampling) of images, by the nearest element or linearly between neighbours."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import te
from ...ir import Expr, is_float
from ..dtypes import accumulator
from ..lowering import Kind, NotLowered, lowers
from .matmul import round_to
from .pooling import spatial_dims

aten = torch.ops.aten


def read(values: np.ndarray, i: Expr) -> Expr:
    """`values[i]`, as arithmetic where all of them repeat equally often."""
    step = max(len(values) // max(int(values[-1]) + 1, 1), 1) if len(values) else 1
    if np.array_equal(values, np.arange(len(values)) // step):
        return i // step
    return te.table(values, "int64", name="source")[i]


def nearest(
    x: te.Tensor,
    sizes: Sequence[int],
    *scales: float | None,
    exact: bool = False,
    channels_last: bool = False,
) -> te.Tensor:
    """torch itself says which element each one is, by doing the same with positions."""
    resample = (aten._upsample_nearest_exact1d if exact else aten.upsample_nearest1d).default
    dims = spatial_dims(x, len(sizes), channels_last)
    sources: dict[int, np.ndarray] = {}
    for d, size, scale in zip(dims, sizes, scales, strict=True):
        positions = torch.arange(x.shape[d], dtype=torch.float32).reshape(1, 1, -1)
        sources[d] = resample(positions, [size], scale).flatten().to(torch.int64).numpy()
    shape = [len(sources[d]) if d in sources else n for d, n in enumerate(x.shape)]
    return te.compute(
        shape,
        lambda *i: x[tuple([read(sources[d], v) if d in sources else v for d, v in enumerate(i)])],
        name="upsample",
    )


def neighbours(
    extent: int, size: int, corners: bool, scale: float | None, dtype: str
) -> tuple[np.ndarray, ...]:
    """The two elements around each new one, and how far it is from the first to the second, as exactly as
    `dtype` is."""
    exact = np.dtype(dtype).type
    one, half = exact(1), exact(0.5)
    at = np.arange(size, dtype=dtype)
    if corners:
        place = at * exact((extent - 1) / (size - 1) if size > 1 else 0)
    else:
        step = one / exact(scale) if scale else exact(extent) / exact(size)
        place = np.maximum(step * (at + half) - half, 0)
    first = np.minimum(place.astype(np.int64), extent - 1)
    return first, np.minimum(first + 1, extent - 1), np.clip(place - first.astype(dtype), 0, 1)


def linear(
    x: te.Tensor, sizes: Sequence[int], corners: bool, *scales: float | None, channels_last: bool = False
) -> te.Tensor:
    if not is_float(x.dtype):
        raise NotLowered(f"linear upsampling of {x.dtype}")
    dims = spatial_dims(x, len(sizes), channels_last)
    dtype = accumulator(x.dtype)
    tables: dict[int, list[te.Tensor]] = {}
    for d, size, scale in zip(dims, sizes, scales, strict=True):
        *ends, way = neighbours(x.shape[d], size, corners, scale, dtype)
        sources = [te.table(end, "int64", name="source") for end in ends]
        tables[d] = [*sources, te.table(way, dtype, name="way")]

    def element(*i: Expr) -> Expr:
        result: Expr | None = None
        for sides in itertools.product((0, 1), repeat=len(dims)):
            index, weight = list(i), None
            for d, side in zip(dims, sides, strict=True):
                index[d] = tables[d][side][i[d]]
                share = tables[d][2][i[d]] if side else 1 - tables[d][2][i[d]]
                weight = share if weight is None else weight * share
            assert weight is not None
            term = weight * te.cast(x[tuple(index)], dtype)
            result = term if result is None else result + term
        assert result is not None
        return te.cast(result, x.dtype)

    shape = [sizes[d - dims[0]] if d in dims else n for d, n in enumerate(x.shape)]
    return te.compute(shape, element, name="upsample")


def resample_antialiased(
    x: te.Tensor, sizes: Sequence[int], corners: bool, *scales: float | None, filtering: Any
) -> te.Tensor:
    """Weighted means over windows as wide as a step, along one dimension after the other. torch itself tells
    the weights, by doing the same with the rows of an identity matrix."""
    if not is_float(x.dtype):
        raise NotLowered(f"antialiased resampling of {x.dtype}")
    wide = round_to(x, accumulator(x.dtype))
    for d, size, scale in reversed(list(zip(range(x.ndim - 2, x.ndim), sizes, scales, strict=True))):
        extent = wide.shape[d]
        rows = torch.eye(extent, dtype=getattr(torch, wide.dtype)).reshape(1, extent, extent, 1)
        rows = rows.repeat(1, 1, 1, 2)  # of images one element wide torch takes the strides for others
        weights = filtering(rows, [size, 2], corners, scale, None)[0, :, :, 0].T.numpy()
        firsts = (weights != 0).argmax(1)
        width = int(max(extent - first - (row[::-1] != 0).argmax() for first, row in zip(firsts, weights)))
        firsts = np.minimum(firsts, extent - width)
        shares = np.stack([row[first : first + width] for first, row in zip(firsts, weights)])
        wide = sum_weighted(
            wide, d, te.table(firsts, "int64", "first"), te.table(shares, wide.dtype, "share")
        )
    return round_to(wide, x.dtype)


def sum_weighted(x: te.Tensor, dim: int, first: te.Tensor, share: te.Tensor) -> te.Tensor:
    """Along `dim`, the sum of neighbours from `first[i]` on, each times its share."""
    size, width = share.shape

    def element(*i: Expr) -> Expr:
        k = te.reduce_axis(width, name="k")
        return te.sum(share[i[dim], k] * x[*i[:dim], first[i[dim]] + k, *i[dim + 1 :]], axis=k)

    return te.compute((*x.shape[:dim], size, *x.shape[dim + 1 :]), element, name="resampled")


def antialiased_vec(
    x: te.Tensor, sizes: Sequence[int] | None, corners: bool, factors: Sequence[float] | None, filtering: Any
) -> te.Tensor:
    scales = factors or [None] * (x.ndim - 2)
    return resample_antialiased(x, sizes_of(x, sizes, factors), corners, *scales, filtering=filtering)


def sizes_of(x: te.Tensor, sizes: Sequence[int] | None, factors: Sequence[float] | None) -> Sequence[int]:
    """What the overloads `vec` mean, which have the sizes or factors to multiply extents with."""
    if sizes is not None:
        return sizes
    assert factors is not None
    return [int(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]


def nearest_vec(
    x: te.Tensor, sizes: Sequence[int] | None, factors: Sequence[float] | None, exact: bool = False
) -> te.Tensor:
    return nearest(x, sizes_of(x, sizes, factors), *(factors or [None] * (x.ndim - 2)), exact=exact)


def linear_vec(
    x: te.Tensor, sizes: Sequence[int] | None, corners: bool, factors: Sequence[float] | None
) -> te.Tensor:
    return linear(x, sizes_of(x, sizes, factors), corners, *(factors or [None] * (x.ndim - 2)))


register = functools.partial(lowers, kind=Kind.INJECTIVE)
for n, name in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    packet = getattr(aten, f"upsample_nearest{n}d")
    register(packet.default)(nearest)
    register(packet.vec)(nearest_vec)
    packet = getattr(aten, f"_upsample_nearest_exact{n}d")
    register(packet.default)(functools.partial(nearest, exact=True))
    register(packet.vec)(functools.partial(nearest_vec, exact=True))
    packet = getattr(aten, f"upsample_{name}{n}d")
    register(packet.default)(linear)
    register(packet.vec)(linear_vec)
    register(f"upsample_nearest{n}d_channels_last")(functools.partial(nearest, channels_last=True))
    register(f"upsample_{name}{n}d_channels_last")(functools.partial(linear, channels_last=True))

for packet in (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
    reducing = functools.partial(lowers, kind=Kind.REDUCTION)
    reducing(packet.default)(functools.partial(resample_antialiased, filtering=packet.default))
    reducing(packet.vec)(functools.partial(antialiased_vec, filtering=packet.default))
