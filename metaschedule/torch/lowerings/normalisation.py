"""Softmax and the normalisations: reductions over rows, and what makes every element of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import accumulator, dtype_name
from ..lowering import Kind, NotLowered, lowers
from .matmul import round_to
from .reductions import amax, mean, sum
from .views import reshape, wrap_dim

aten = torch.ops.aten


def powers(x: te.Tensor, dim: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The largest of each row along `dim`, exp(x - largest), and the sums of those."""
    top = amax(x, dim)
    power = te.compute(x.shape, lambda *i: te.exp(x[i] - top[drop_dimension(i, dim)]), name="exp")
    return top, power, sum(power, dim)


def drop_dimension(index: Sequence[Expr], dim: int) -> tuple[Expr, ...]:
    return (*index[:dim], *index[dim + 1 :])


def widen(x: te.Tensor) -> te.Tensor:
    """`x` in the dtype of sums of it, with at least one dimension."""
    return round_to(x if x.ndim else reshape(x, (1,)), accumulator(x.dtype))


@lowers(aten._softmax.default, kind=Kind.REDUCTION)
def softmax(x: te.Tensor, dim: int, half_to_float: bool = False) -> te.Tensor:
    wide = widen(x)
    dim = wrap_dim(dim, wide.ndim)
    _, power, total = powers(wide, dim)
    dtype = "float32" if half_to_float else x.dtype
    result = te.compute(
        wide.shape, lambda *i: te.cast(power[i] / total[drop_dimension(i, dim)], dtype), name="softmax"
    )
    return result if x.ndim else reshape(result, ())


@lowers(aten._log_softmax.default, kind=Kind.REDUCTION)
def log_softmax(x: te.Tensor, dim: int, half_to_float: bool = False) -> te.Tensor:
    wide = widen(x)
    dim = wrap_dim(dim, wide.ndim)
    top, _, total = powers(wide, dim)
    dtype = "float32" if half_to_float else x.dtype

    def element(*i: Expr) -> Expr:
        row = drop_dimension(i, dim)
        return te.cast(wide[i] - top[row] - te.log(total[row]), dtype)

    result = te.compute(wide.shape, element, name="log_softmax")
    return result if x.ndim else reshape(result, ())


@lowers(aten.softmax.int, kind=Kind.REDUCTION)
def softmax_in(x: te.Tensor, dim: int, dtype: torch.dtype | None = None) -> te.Tensor:
    return softmax(x if dtype is None else round_to(x, dtype_name(dtype)), dim)


@lowers(aten.log_softmax.int, kind=Kind.REDUCTION)
def log_softmax_in(x: te.Tensor, dim: int, dtype: torch.dtype | None = None) -> te.Tensor:
    return log_softmax(x if dtype is None else round_to(x, dtype_name(dtype)), dim)


@lowers(aten._safe_softmax.default, kind=Kind.REDUCTION)
def safe_softmax(x: te.Tensor, dim: int, dtype: torch.dtype | None = None) -> te.Tensor:
    """As softmax, but a row that is masked altogether, all -infinity, gives zeros."""
    result = x.dtype if dtype is None else dtype_name(dtype)
    wide = round_to(x, accumulator(result))
    dim = wrap_dim(dim, wide.ndim)
    top, power, total = powers(wide, dim)

    def element(*i: Expr) -> Expr:
        row = drop_dimension(i, dim)
        share = te.select(top[row] == -math.inf, const(0, wide.dtype), power[i] / total[row])
        return te.cast(share, result)

    return te.compute(x.shape, element, name="safe_softmax")


def moments(x: te.Tensor, first: int, eps: float) -> tuple[te.Tensor, te.Tensor]:
    """Mean and 1 / standard deviation over the dimensions from `first` on."""
    dims = list(range(first, x.ndim))
    middle = mean(x, dims)

    def square(*i: Expr) -> Expr:
        way = x[i] - middle[i[:first]]
        return way * way

    variance = mean(te.compute(x.shape, square, name="squares"), dims)
    spread = te.compute(variance.shape, lambda *i: te.rsqrt(variance[i] + eps), name="rstd")
    return middle, spread


def affine(
    value: Expr, weight: te.Tensor | None, bias: te.Tensor | None, index: Sequence[Expr], dtype: str
) -> Expr:
    """`value * weight + bias` at `index` of both, each where it is given."""
    if weight is not None:
        value = value * te.cast(weight[tuple(index)], value.dtype)
    if bias is not None:
        value = value + te.cast(bias[tuple(index)], value.dtype)
    return te.cast(value, dtype)


@lowers(aten.native_layer_norm.default, kind=Kind.REDUCTION)
def layer_norm(
    x: te.Tensor, shape: Sequence[int], weight: te.Tensor | None, bias: te.Tensor | None, eps: float
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    first = x.ndim - len(shape)
    wide = round_to(x, accumulator(x.dtype))
    middle, spread = moments(wide, first, eps)

    def element(*i: Expr) -> Expr:
        row = i[:first]
        return affine((wide[i] - middle[row]) * spread[row], weight, bias, i[first:], x.dtype)

    result = te.compute(x.shape, element, name="layer_norm")
    kept = (*x.shape[:first], *[1] * len(shape))
    return result, reshape(middle, kept), reshape(spread, kept)


@lowers(aten._fused_rms_norm.default, kind=Kind.REDUCTION)
def rms_norm(
    x: te.Tensor, shape: Sequence[int], weight: te.Tensor | None, eps: float | None
) -> tuple[te.Tensor, te.Tensor]:
    first = x.ndim - len(shape)
    wide = round_to(x, accumulator(x.dtype))
    floor = torch.finfo(getattr(torch, wide.dtype)).eps if eps is None else eps
    squares = te.compute(x.shape, lambda *i: wide[i] * wide[i], name="squares")
    power = mean(squares, list(range(first, x.ndim)))
    spread = te.compute(power.shape, lambda *i: te.rsqrt(power[i] + floor), name="rstd")
    result = te.compute(
        x.shape,
        lambda *i: affine(wide[i] * spread[i[:first]], weight, None, i[first:], x.dtype),
        name="rms_norm",
    )
    return result, reshape(spread, (*x.shape[:first], *[1] * len(shape)))


@lowers(aten.native_group_norm.default, kind=Kind.REDUCTION)
def group_norm(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None,
    n: int, c: int, area: int, groups: int, eps: float,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:  # fmt: skip
    size = c // groups
    wide = round_to(x, accumulator(x.dtype))
    middle, spread = moments(reshape(wide, (n, groups, size, *x.shape[2:])), 2, eps)

    def element(*i: Expr) -> Expr:
        row = (i[0], i[1] // size)
        return affine((wide[i] - middle[row]) * spread[row], weight, bias, [i[1]], x.dtype)

    return te.compute(x.shape, element, name="group_norm"), middle, spread


def batch_norm(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, middle: te.Tensor, spread: te.Tensor
) -> te.Tensor:
    def element(*i: Expr) -> Expr:
        c = i[1]
        dtype = accumulator(x.dtype)
        value = (te.cast(x[i], dtype) - te.cast(middle[c], dtype)) * spread[c]
        return affine(value, weight, bias, [c], x.dtype)

    return te.compute(x.shape, element, name="batch_norm")


# Not element-wise: channels are the second dimension, where broadcasting would take the last.
@lowers(aten._native_batch_norm_legit_no_training.default, kind=Kind.INJECTIVE)
def batch_norm_inference(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, middle: te.Tensor, variance: te.Tensor,
    momentum: float, eps: float,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:  # fmt: skip
    dtype = accumulator(x.dtype)
    spread = te.compute(variance.shape, lambda c: te.rsqrt(te.cast(variance[c], dtype) + eps), name="rstd")
    return batch_norm(x, weight, bias, middle, spread), nothing(x.dtype), nothing(x.dtype)


def nothing(dtype: str) -> te.Tensor:
    """What inference has in the place of the batch's statistics."""
    return te.compute((0,), lambda i: const(0, dtype), name="nothing")


@lowers(aten.native_batch_norm.default, kind=Kind.INJECTIVE)
def native_batch_norm(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None,
    middle: te.Tensor | None, variance: te.Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:  # fmt: skip
    if training or middle is None or variance is None:
        raise NotLowered("batch norm while training changes its running statistics")
    return batch_norm_inference(x, weight, bias, middle, variance, momentum, eps)


@lowers(aten._native_batch_norm_legit.no_stats, kind=Kind.REDUCTION)
def batch_norm_of_batch(
    x: te.Tensor,
    weight: te.Tensor | None,
    bias: te.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """By the statistics of the batch itself, as instance norm is written."""
    wide = round_to(x, accumulator(x.dtype))
    order = [1, 0, *range(2, x.ndim)]
    by_channel = te.compute(
        [x.shape[d] for d in order], lambda c, n, *space: wide[n, c, *space], name="by_channel"
    )
    middle, spread = moments(by_channel, 1, eps)
    return batch_norm(x, weight, bias, middle, spread), middle, spread
