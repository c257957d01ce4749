"""Pooling to a given size: windows that differ by one in extent if they have to."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from ... import te
from ...ir import INDEX, Expr, const
from ..dtypes import accumulator
from ..lowering import Kind, lowers
from .pooling import LARGEST, spatial_dims

aten = torch.ops.aten


def pool_windows(
    x: te.Tensor,
    dims: Sequence[int],
    sizes: Sequence[int | None],
    combine: Callable[..., Expr],
    name: str,
) -> te.Tensor:
    """`combine(index, axes, number of elements)` over `sizes` windows of the dimensions `dims`."""
    goal = {d: x.shape[d] if n is None else n for d, n in zip(dims, sizes, strict=True)}

    def element(*i: Expr) -> Expr:
        index: list[Expr] = list(i)
        axes: list[Expr] = []
        extents: list[Expr | int] = []
        for d, n in goal.items():
            step, rest = divmod(x.shape[d], n)
            low, high = i[d] * x.shape[d] // n, ((i[d] + 1) * x.shape[d] + n - 1) // n
            axes.append(te.reduce_axis((low, high) if rest else step, name=f"r{d}"))
            extents.append(high - low if rest else step)
            index[d] = axes[-1] if rest else i[d] * step + axes[-1]
        return combine(tuple(index), axes, math.prod(extents))

    return te.compute([goal.get(d, n) for d, n in enumerate(x.shape)], element, name=name)


def adaptive_avg_pool(
    x: te.Tensor, sizes: Sequence[int | None], spatial: int, channels_last: bool = False
) -> te.Tensor:
    dtype = accumulator(x.dtype)

    def mean(index: tuple[Expr, ...], axes: list[Expr], count: Expr | int) -> Expr:
        return te.cast(te.sum(te.cast(x[index], dtype), axis=axes) / te.cast(count, dtype), x.dtype)

    return pool_windows(x, spatial_dims(x, spatial, channels_last), sizes, mean, "adaptive_avg_pool")


def adaptive_max_pool(x: te.Tensor, sizes: Sequence[int | None], spatial: int) -> tuple[te.Tensor, te.Tensor]:
    """The largest elements, and where they are, counted over the pooled dimensions."""
    dims = spatial_dims(x, spatial, False)

    def largest(index: tuple[Expr, ...], axes: list[Expr], count: Expr | int) -> Expr:
        return te.max(x[index], axis=axes)

    def position(index: tuple[Expr, ...], axes: list[Expr], count: Expr | int) -> Expr:
        place: Expr = const(0, INDEX)
        for d in dims:
            place = place * x.shape[d] + index[d]
        return LARGEST((x[index], place), axes)[1]

    return (
        pool_windows(x, dims, sizes, largest, "adaptive_max_pool"),
        pool_windows(x, dims, sizes, position, "positions"),
    )


for n, names in (
    (1, ["adaptive_avg_pool1d"]),
    (2, ["adaptive_avg_pool2d", "_adaptive_avg_pool2d"]),
    (3, ["adaptive_avg_pool3d", "_adaptive_avg_pool3d"]),
):
    average = functools.partial(adaptive_avg_pool, spatial=n)
    lowers(*[getattr(aten, name).default for name in names], kind=Kind.REDUCTION)(average)
    lowers(f"adaptive_avg_pool{n}d_channels_last", kind=Kind.REDUCTION)(
        functools.partial(average, channels_last=True)
    )
    lowers(getattr(aten, f"adaptive_max_pool{n}d").default, kind=Kind.REDUCTION)(
        functools.partial(adaptive_max_pool, spatial=n)
    )
