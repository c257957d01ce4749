"""Variances and norms: reductions of what an earlier reduction gave."""

from __future__ import annotations

import math

import torch

from ... import te
from ...ir import Expr, is_float
from ..dtypes import accumulator, dtype_name
from ..lowering import Kind, lowers
from .matmul import round_to
from .reductions import Dims, amax, amin, count, kept_shape, mean, reduced_dims, sum
from .views import reshape

aten = torch.ops.aten


def widen(x: te.Tensor) -> te.Tensor:
    """`x` in the dtype that sums of it have."""
    return round_to(x, accumulator(x.dtype))


def centred_squares(x: te.Tensor, dims: Dims) -> te.Tensor:
    """The squared differences from the mean over `dims`."""
    middle = mean(x, dims, keepdim=False)
    kept = [d for d in range(x.ndim) if d not in reduced_dims(x, dims)]

    def element(*i: Expr) -> Expr:
        way = x[i] - middle[tuple([i[d] for d in kept])]
        return way * way

    return te.compute(x.shape, element, name="squares")


@lowers(aten.var.correction, kind=Kind.REDUCTION)
def var(x: te.Tensor, dims: Dims = None, correction: float | None = None, keepdim: bool = False) -> te.Tensor:
    wide = widen(x)
    total = sum(centred_squares(wide, dims), dims, keepdim)
    freedom = float(max(count(x, dims) - (1 if correction is None else correction), 0))
    return te.compute(total.shape, lambda *i: te.cast(total[i] / freedom, x.dtype), name="var")


@lowers(aten.var.dim, kind=Kind.REDUCTION)
def var_dim(x: te.Tensor, dims: Dims, unbiased: bool, keepdim: bool) -> te.Tensor:
    return var(x, dims, int(unbiased), keepdim)


@lowers(aten.var.default, kind=Kind.REDUCTION)
def var_all(x: te.Tensor, unbiased: bool) -> te.Tensor:
    return var(x, None, int(unbiased))


@lowers(aten.std.correction, kind=Kind.REDUCTION)
def std(x: te.Tensor, dims: Dims = None, correction: float | None = None, keepdim: bool = False) -> te.Tensor:
    squares = var(widen(x), dims, correction, keepdim)
    return te.compute(squares.shape, lambda *i: te.cast(te.sqrt(squares[i]), x.dtype), name="std")


@lowers(aten.std.dim, kind=Kind.REDUCTION)
def std_dim(x: te.Tensor, dims: Dims, unbiased: bool, keepdim: bool) -> te.Tensor:
    return std(x, dims, int(unbiased), keepdim)


@lowers(aten.var_mean.correction, kind=Kind.REDUCTION)
def var_mean(
    x: te.Tensor, dims: Dims = None, correction: float | None = None, keepdim: bool = False
) -> tuple[te.Tensor, te.Tensor]:
    return var(x, dims, correction, keepdim), mean(x, dims, keepdim)


@lowers(aten.logsumexp.default, kind=Kind.REDUCTION)
def logsumexp(x: te.Tensor, dims: Dims, keepdim: bool) -> te.Tensor:
    result = x.dtype if is_float(x.dtype) else "float32"
    wide = round_to(x, accumulator(result))
    top = amax(wide, dims)
    kept = [d for d in range(x.ndim) if d not in reduced_dims(x, dims)]

    def finite(at: tuple[Expr, ...]) -> Expr:  # infinity minus infinity is no number
        return te.select(te.isinf(top[at]), te.constant(0, top.dtype), top[at])

    def power(*i: Expr) -> Expr:
        return te.exp(wide[i] - finite(tuple([i[d] for d in kept])))

    total = sum(te.compute(x.shape, power, name="exp"), dims)
    logs = te.compute(total.shape, lambda *i: te.cast(te.log(total[i]) + finite(i), result), name="logsumexp")
    return reshape(logs, kept_shape(x, reduced_dims(x, dims))) if keepdim and x.ndim else logs


@lowers(aten.linalg_vector_norm.default, kind=Kind.REDUCTION)
def vector_norm(
    x: te.Tensor, order: float, dims: Dims, keepdim: bool, dtype: torch.dtype | None = None
) -> te.Tensor:
    result = x.dtype if dtype is None else dtype_name(dtype)
    sizes = te.compute(x.shape, lambda *i: te.abs(te.cast(x[i], accumulator(result))), name="abs")
    if math.isinf(order):
        return round_to((amax if order > 0 else amin)(sizes, dims, keepdim), result)

    def term(*i: Expr) -> Expr:
        size = sizes[i]
        if order == 0:
            return te.cast(size != 0, size.dtype)
        return size if order == 1 else size * size if order == 2 else te.pow(size, order)

    def root(value: Expr) -> Expr:
        return value if order in (0, 1) else te.sqrt(value) if order == 2 else te.pow(value, 1 / order)

    total = sum(te.compute(x.shape, term, name="powers"), dims, keepdim)
    return te.compute(total.shape, lambda *i: te.cast(root(total[i]), result), name="norm")
