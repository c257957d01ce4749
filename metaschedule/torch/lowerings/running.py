"""Sums, products and extremes of all elements up to each, by a reduction for each: without an order to keep,
but quadratic, for rows so short that torch's way is no faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import ir, te
from ..dtypes import accumulator
from ..lowering import Kind, NotLowered, lowers
from .matmul import round_to
from .ordering import move_index
from .reductions import comparable, sum_dtype
from .views import reshape, wrap_dim

aten = torch.ops.aten

LONGEST_CUMULATED = 128  # elements, until quadratic work is worse than a step in eager


def check_cumulated(x: te.Tensor, dim: int) -> None:
    if x.shape[dim] > LONGEST_CUMULATED:
        raise NotLowered(f"a running result of {x.shape[dim]} elements, of more than {LONGEST_CUMULATED}")


@lowers(aten.cumsum.default, kind=Kind.REDUCTION)
def cumsum(x: te.Tensor, dim: int, dtype: torch.dtype | None = None) -> te.Tensor:
    return cumulate(x, dim, sum_dtype(x, dtype), te.sum, "cumsum")


@lowers(aten.cumprod.default, kind=Kind.REDUCTION)
def cumprod(x: te.Tensor, dim: int, dtype: torch.dtype | None = None) -> te.Tensor:
    return cumulate(x, dim, sum_dtype(x, dtype), te.prod, "cumprod")


def cumulate(x: te.Tensor, dim: int, dtype: str, combine: Callable[..., ir.Expr], name: str) -> te.Tensor:
    if x.ndim == 0:
        return reshape(round_to(x, dtype), ())
    dim, wide = wrap_dim(dim, x.ndim), accumulator(dtype)
    check_cumulated(x, dim)

    def element(*i: ir.Expr) -> ir.Expr:
        k = te.reduce_axis(i[dim] + 1, name="k")
        return te.cast(combine(te.cast(x[move_index(i, dim, k)], wide), axis=k), dtype)

    return te.compute(x.shape, element, name=name)


def later(better: str) -> Any:
    """A reducer of values with their positions: of the extreme ones the last, and NaN is extreme."""

    def combine(a: tuple[ir.Expr, ir.Expr], b: tuple[ir.Expr, ir.Expr]) -> tuple[ir.Expr, ir.Expr]:
        (x, i), (y, j) = a, b
        keep = (x > y if better == ">" else x < y) | ((x == y) & (i > j))
        if ir.is_float(x.dtype):
            keep = te.select(te.isnan(x) & te.isnan(y), i > j, keep | te.isnan(x))
        return te.select(keep, x, y), te.select(keep, i, j)

    def identity(dtype: str, index: str) -> tuple[float, int]:
        return ir.lowest(dtype) if better == ">" else ir.highest(dtype), -1  # loses every tie

    return te.reducer(combine, identity, name="later")


def running(x: te.Tensor, dim: int, better: str) -> tuple[te.Tensor, te.Tensor]:
    """The extreme of all elements up to each, and where it is."""
    if x.ndim == 0:
        one = running(reshape(x, (1,)), 0, better)
        return reshape(one[0], ()), reshape(one[1], ())
    dim = wrap_dim(dim, x.ndim)
    check_cumulated(x, dim)
    reducer = later(better)

    def component(part: int) -> te.Tensor:
        def element(*i: ir.Expr) -> ir.Expr:
            k = te.reduce_axis(i[dim] + 1, name="k")
            own = te.cast(x[move_index(i, dim, k)], comparable(x.dtype))
            return reducer((own, te.cast(k, ir.INDEX)), k)[part]

        return te.compute(x.shape, element, name="running")

    return round_to(component(0), x.dtype), component(1)


@lowers(aten.cummax.default, kind=Kind.REDUCTION)
def cummax(x: te.Tensor, dim: int) -> tuple[te.Tensor, te.Tensor]:
    return running(x, dim, ">")


@lowers(aten.cummin.default, kind=Kind.REDUCTION)
def cummin(x: te.Tensor, dim: int) -> tuple[te.Tensor, te.Tensor]:
    return running(x, dim, "<")


@lowers(aten.logcumsumexp.default, kind=Kind.REDUCTION)
def logcumsumexp(x: te.Tensor, dim: int) -> te.Tensor:
    if x.ndim == 0:
        return reshape(x, ())
    dim = wrap_dim(dim, x.ndim)
    check_cumulated(x, dim)
    wide = round_to(x, accumulator(x.dtype))

    def top(*i: ir.Expr) -> ir.Expr:
        k = te.reduce_axis(i[dim] + 1, name="k")
        return te.max(wide[move_index(i, dim, k)], axis=k)

    tops = te.compute(x.shape, top, name="top")

    def finite(i: Sequence[ir.Expr]) -> ir.Expr:  # infinity minus infinity is no number
        return te.select(te.isinf(tops[tuple(i)]), ir.const(0, wide.dtype), tops[tuple(i)])

    def total(*i: ir.Expr) -> ir.Expr:
        k = te.reduce_axis(i[dim] + 1, name="k")
        return te.sum(te.exp(wide[move_index(i, dim, k)] - finite(i)), axis=k)

    totals = te.compute(x.shape, total, name="total")
    return te.compute(
        x.shape, lambda *i: te.cast(te.log(totals[i]) + finite(i), x.dtype), name="logcumsumexp"
    )
