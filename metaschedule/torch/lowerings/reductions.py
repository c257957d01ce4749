"""Reductions over some or all dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import te
from ...ir import Expr, is_float
from ..dtypes import accumulator, dtype_name
from ..lowering import Kind, lowers
from .views import reshape, wrap_dim

aten = torch.ops.aten

Dims = int | Sequence[int] | None


def reduced_dims(x: te.Tensor, dims: Dims) -> list[int]:
    """The dimensions meant, in order; none given means all."""
    if dims is None or dims == []:
        return list(range(x.ndim))
    return sorted({wrap_dim(d, x.ndim) for d in ([dims] if isinstance(dims, int) else dims)})


def count(x: te.Tensor, dims: Dims) -> int:
    return math.prod([x.shape[d] for d in reduced_dims(x, dims)]) if x.ndim else 1


def reduce_dims(
    x: te.Tensor, dims: Dims, keepdim: bool, combine: Callable[[Expr, list[Any]], Expr], name: str
) -> te.Tensor:
    """`combine(element, axes)` over `dims`. A tensor without dimensions has one element to combine."""
    over = reduced_dims(x, dims) if x.ndim else []
    axes = {d: te.reduce_axis(x.shape[d], name=f"r{d}") for d in over}
    kept = [d for d in range(x.ndim) if d not in axes]

    def element(*i: Expr) -> Expr:
        index = dict(zip(kept, i, strict=True)) | axes
        value = x[tuple([index[d] for d in range(x.ndim)])]
        return combine(value, list(axes.values()) or [te.reduce_axis(1, name="r")])

    result = te.compute([x.shape[d] for d in kept], element, name=name, axes=[f"i{d}" for d in kept])
    return reshape(result, kept_shape(x, over)) if keepdim and over else result


def kept_shape(x: te.Tensor, over: Sequence[int]) -> list[int]:
    return [1 if d in over else n for d, n in enumerate(x.shape)]


def sum_dtype(x: te.Tensor, dtype: torch.dtype | None) -> str:
    """The dtype of a sum or a product: of integers it is int64, unless told otherwise."""
    if dtype is not None:
        return dtype_name(dtype)
    return x.dtype if is_float(x.dtype) else "int64"


def accumulate_dims(
    x: te.Tensor, dims: Dims, keepdim: bool, dtype: str, combine: Callable[..., Expr], name: str
) -> te.Tensor:
    wide = accumulator(dtype)
    return reduce_dims(
        x, dims, keepdim, lambda e, axes: te.cast(combine(te.cast(e, wide), axis=axes), dtype), name
    )


@lowers(aten.sum.dim_IntList, aten.sum.default, kind=Kind.REDUCTION)
def sum(
    x: te.Tensor, dims: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> te.Tensor:
    return accumulate_dims(x, dims, keepdim, sum_dtype(x, dtype), te.sum, "sum")


@lowers(aten.prod.dim_int, aten.prod.default, kind=Kind.REDUCTION)
def prod(
    x: te.Tensor, dims: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> te.Tensor:
    return accumulate_dims(x, dims, keepdim, sum_dtype(x, dtype), te.prod, "prod")


@lowers(aten.mean.dim, aten.mean.default, kind=Kind.REDUCTION)
def mean(
    x: te.Tensor, dims: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> te.Tensor:
    result = sum_dtype(x, dtype)
    total = accumulate_dims(x, dims, keepdim, accumulator(result), te.sum, "sum")
    size = float(count(x, dims))
    return te.compute(total.shape, lambda *i: te.cast(total[i] / size, result), name="mean")


@lowers(aten.amax.default, aten.max.default, kind=Kind.REDUCTION)
def amax(x: te.Tensor, dims: Dims = None, keepdim: bool = False) -> te.Tensor:
    return extreme(x, dims, keepdim, te.max)


@lowers(aten.amin.default, aten.min.default, kind=Kind.REDUCTION)
def amin(x: te.Tensor, dims: Dims = None, keepdim: bool = False) -> te.Tensor:
    return extreme(x, dims, keepdim, te.min)


def extreme(x: te.Tensor, dims: Dims, keepdim: bool, combine: Callable[..., Expr]) -> te.Tensor:
    dtype = comparable(x.dtype)
    return reduce_dims(
        x,
        dims,
        keepdim,
        lambda e, axes: te.cast(combine(te.cast(e, dtype), axis=axes), x.dtype),
        combine.__name__,
    )


def comparable(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


@lowers(aten.argmax.default, kind=Kind.REDUCTION)
def argmax(x: te.Tensor, dim: int | None, keepdim: bool) -> te.Tensor:
    return position(x, dim, keepdim, te.argmax)


@lowers(aten.argmin.default, kind=Kind.REDUCTION)
def argmin(x: te.Tensor, dim: int | None, keepdim: bool) -> te.Tensor:
    return position(x, dim, keepdim, te.argmin)


def position(x: te.Tensor, dim: int | None, keepdim: bool, find: Callable[..., Expr]) -> te.Tensor:
    dtype = comparable(x.dtype)
    return reduce_dims(x, dim, keepdim, lambda e, axes: find(te.cast(e, dtype), axis=axes), find.__name__)


@lowers(aten.max.dim, kind=Kind.REDUCTION)
def max_dim(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    return amax(x, dim, keepdim), argmax(x, dim, keepdim)


@lowers(aten.min.dim, kind=Kind.REDUCTION)
def min_dim(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    return amin(x, dim, keepdim), argmin(x, dim, keepdim)


ANY = te.reducer(lambda a, b: a | b, lambda dtype: False, name="any")
ALL = te.reducer(lambda a, b: a & b, lambda dtype: True, name="all")


@lowers(aten.any.default, aten.any.dim, aten.any.dims, kind=Kind.REDUCTION)
def any_(x: te.Tensor, dims: Dims = None, keepdim: bool = False) -> te.Tensor:
    return reduce_dims(x, dims, keepdim, lambda e, axes: ANY(te.cast(e, "bool"), axis=axes), "any")


@lowers(aten.all.default, aten.all.dim, aten.all.dims, kind=Kind.REDUCTION)
def all_(x: te.Tensor, dims: Dims = None, keepdim: bool = False) -> te.Tensor:
    return reduce_dims(x, dims, keepdim, lambda e, axes: ALL(te.cast(e, "bool"), axis=axes), "all")
