"""What asks for the order of elements: sorting, running extremes, places in a sorted sequence.

All are reductions that compare everything with everything, for rows so short that torch's way is no faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import te
from ...ir import INDEX, Expr, const, integer_limits, is_float
from ..dtypes import accumulator, promoted
from ..lowering import Kind, NotLowered, lowers
from .gather import within
from .matmul import rounded
from .pointwise import element_of
from .reductions import LONGEST_CUMULATED, comparable
from .scatter import check_questions
from .views import reshaped, wrapped

aten = torch.ops.aten

LONGEST_SORTED = 64


def moved(index: Sequence[Expr], dim: int, at: Expr) -> tuple[Expr, ...]:
    return (*index[:dim], at, *index[dim + 1 :])


@lowers(aten.sort.default, kind=Kind.REDUCTION)
def sort(x: te.Tensor, dim: int, descending: bool) -> tuple[te.Tensor, te.Tensor]:
    """By each element's rank: how many come before it. Equal ones stay in their order, NaN is the largest."""
    if x.ndim == 0:
        values, positions = sort(reshaped(x, (1,)), 0, descending)
        return reshaped(values, ()), reshaped(positions, ())
    dim = wrapped(dim, x.ndim)
    extent = x.shape[dim]
    if extent > LONGEST_SORTED:
        raise NotLowered(f"sort of {extent} elements, of more than {LONGEST_SORTED}")
    keys = rounded(x, comparable(x.dtype))

    def is_before(j: Expr, i: Expr, index: Sequence[Expr]) -> Expr:
        a, b = keys[moved(index, dim, j)], keys[moved(index, dim, i)]
        less, equal = (a > b if descending else a < b), a == b
        if is_float(keys.dtype):
            larger = te.isnan(a) & ~te.isnan(b) if descending else te.isnan(b) & ~te.isnan(a)
            less, equal = less | larger, equal | (te.isnan(a) & te.isnan(b))
        return less | (equal & (j < i))

    def rank(*i: Expr) -> Expr:
        j = te.reduce_axis(extent, name="j")
        return te.sum(te.cast(is_before(j, i[dim], i), "int32"), axis=j)

    ranks = te.compute(x.shape, rank, name="rank")

    def position(*i: Expr) -> Expr:
        j = te.reduce_axis(extent, name="j")
        found = te.cast(ranks[moved(i, dim, j)], INDEX) == i[dim]
        return te.sum(te.select(found, te.cast(j, INDEX), const(0, INDEX)), axis=j)

    positions = te.compute(x.shape, position, name="position")
    values = te.compute(x.shape, lambda *i: x[moved(i, dim, within(positions[i], extent))], name="sorted")
    return values, positions


@lowers(aten.sort.stable, kind=Kind.REDUCTION)
def sort_stable(
    x: te.Tensor, *, stable: bool | None, dim: int, descending: bool
) -> tuple[te.Tensor, te.Tensor]:
    return sort(x, dim, descending)


def later(better: str) -> Any:
    """A reducer of values with their positions: of the extreme ones the last, and NaN is extreme."""

    def combine(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        (x, i), (y, j) = a, b
        keep = (x > y if better == ">" else x < y) | ((x == y) & (i > j))
        if is_float(x.dtype):
            keep = te.select(te.isnan(x) & te.isnan(y), i > j, keep | te.isnan(x))
        return te.select(keep, x, y), te.select(keep, i, j)

    def identity(dtype: str, index: str) -> tuple[float, int]:
        worst = math.inf if is_float(dtype) else integer_limits(dtype)[1]
        if better == ">":
            worst = -math.inf if is_float(dtype) else integer_limits(dtype)[0]
        return worst, -1  # loses every tie

    return te.reducer(combine, identity, name="later")


def running(x: te.Tensor, dim: int, better: str) -> tuple[te.Tensor, te.Tensor]:
    """The extreme of all elements up to each, and where it is."""
    if x.ndim == 0:
        one = running(reshaped(x, (1,)), 0, better)
        return reshaped(one[0], ()), reshaped(one[1], ())
    dim = wrapped(dim, x.ndim)
    check_cumulated(x, dim)
    reducer = later(better)

    def component(part: int) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            k = te.reduce_axis(i[dim] + 1, name="k")
            own = te.cast(x[moved(i, dim, k)], comparable(x.dtype))
            return reducer((own, te.cast(k, INDEX)), k)[part]

        return te.compute(x.shape, element, name="running")

    return rounded(component(0), x.dtype), component(1)


def check_cumulated(x: te.Tensor, dim: int) -> None:
    if x.shape[dim] > LONGEST_CUMULATED:
        raise NotLowered(f"{x.shape[dim]} elements to accumulate, of more than {LONGEST_CUMULATED}")


@lowers(aten.cummax.default, kind=Kind.REDUCTION)
def cummax(x: te.Tensor, dim: int) -> tuple[te.Tensor, te.Tensor]:
    return running(x, dim, ">")


@lowers(aten.cummin.default, kind=Kind.REDUCTION)
def cummin(x: te.Tensor, dim: int) -> tuple[te.Tensor, te.Tensor]:
    return running(x, dim, "<")


@lowers(aten.logcumsumexp.default, kind=Kind.REDUCTION)
def logcumsumexp(x: te.Tensor, dim: int) -> te.Tensor:
    if x.ndim == 0:
        return reshaped(x, ())
    dim = wrapped(dim, x.ndim)
    check_cumulated(x, dim)
    wide = rounded(x, accumulator(x.dtype))

    def top(*i: Expr) -> Expr:
        k = te.reduce_axis(i[dim] + 1, name="k")
        return te.max(wide[moved(i, dim, k)], axis=k)

    tops = te.compute(x.shape, top, name="top")

    def finite(i: Sequence[Expr]) -> Expr:  # infinity minus infinity is no number
        return te.select(te.isinf(tops[tuple(i)]), const(0, wide.dtype), tops[tuple(i)])

    def total(*i: Expr) -> Expr:
        k = te.reduce_axis(i[dim] + 1, name="k")
        return te.sum(te.exp(wide[moved(i, dim, k)] - finite(i)), axis=k)

    totals = te.compute(x.shape, total, name="total")
    return te.compute(
        x.shape, lambda *i: te.cast(te.log(totals[i]) + finite(i), x.dtype), name="logcumsumexp"
    )


@lowers(aten.bucketize.Tensor, kind=Kind.REDUCTION)
def bucketize(values: te.Tensor, boundaries: te.Tensor, *, out_int32: bool, right: bool) -> te.Tensor:
    return searchsorted(boundaries, values, out_int32=out_int32, right=right, side=None, sorter=None)


@lowers(aten.searchsorted.Tensor, kind=Kind.REDUCTION)
def searchsorted(
    sequence: te.Tensor, values: te.Tensor, *, out_int32: bool, right: bool, side: str | None,
    sorter: te.Tensor | None,
) -> te.Tensor:  # fmt: skip
    """How many elements of the sequence a value comes behind."""
    extent = sequence.shape[-1]
    check_questions(math.prod(values.shape), extent)
    dtype, _ = promoted(sequence, values)
    right = right or side == "right"

    def element(*i: Expr) -> Expr:
        k = te.reduce_axis(extent, name="k")
        row = i[:-1] if sequence.ndim > 1 else ()
        at = k if sorter is None else within(sorter[*row, k], extent)
        own, value = te.cast(sequence[*row, at], dtype), element_of(values, i, values.shape, dtype)
        behind = ~(own > value) if right else ~(own >= value)  # NaN is behind everything
        return te.sum(te.cast(behind, INDEX), axis=k)

    found = te.compute(values.shape, element, name="searchsorted")
    return rounded(found, "int32") if out_int32 else found
