"""What asks for the order of elements: sorting, the largest ones, medians, places in a sorted sequence.

All are reductions that compare everything with everything, for rows so short that torch's way is no faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ... import te
from ...ir import INDEX, Expr, const, is_float
from ..dtypes import promote_dtypes
from ..lowering import Kind, NotLowered, lowers
from .gather import within
from .matmul import round_to
from .pointwise import element_of
from .reductions import comparable
from .scatter import check_questions
from .views import reshape, wrap_dim

aten = torch.ops.aten

LONGEST_SORTED = 64
Rank = int | Callable[[Expr], Expr]  # of the number of elements that are no NaN


def move_index(index: Sequence[Expr], dim: int, at: Expr) -> tuple[Expr, ...]:
    return (*index[:dim], at, *index[dim + 1 :])


@lowers(aten.sort.default, kind=Kind.REDUCTION)
def sort(x: te.Tensor, dim: int, descending: bool) -> tuple[te.Tensor, te.Tensor]:
    """By each element's rank: how many come before it. Equal ones stay in their order, NaN is the largest."""
    if x.ndim == 0:
        values, positions = sort(reshape(x, (1,)), 0, descending)
        return reshape(values, ()), reshape(positions, ())
    dim = wrap_dim(dim, x.ndim)
    extent = x.shape[dim]
    if extent > LONGEST_SORTED:
        raise NotLowered(f"sort of {extent} elements, of more than {LONGEST_SORTED}")
    keys = round_to(x, comparable(x.dtype))

    def is_before(j: Expr, i: Expr, index: Sequence[Expr]) -> Expr:
        a, b = keys[move_index(index, dim, j)], keys[move_index(index, dim, i)]
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
        found = te.cast(ranks[move_index(i, dim, j)], INDEX) == i[dim]
        return te.sum(te.select(found, te.cast(j, INDEX), const(0, INDEX)), axis=j)

    positions = te.compute(x.shape, position, name="position")
    values = te.compute(
        x.shape, lambda *i: x[move_index(i, dim, within(positions[i], extent))], name="sorted"
    )
    return values, positions


@lowers(aten.sort.stable, kind=Kind.REDUCTION)
def sort_stable(
    x: te.Tensor, *, stable: bool | None, dim: int, descending: bool
) -> tuple[te.Tensor, te.Tensor]:
    return sort(x, dim, descending)


def at_rank(x: te.Tensor, dim: int, keepdim: bool, rank: Rank) -> tuple[te.Tensor, te.Tensor]:
    """The element of that rank in each row in ascending order, and where it is."""
    if x.ndim == 0:
        values, positions = at_rank(reshape(x, (1,)), 0, True, rank)
        return reshape(values, ()), reshape(positions, ())
    dim = wrap_dim(dim, x.ndim)
    shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    valid = te.compute(shape, lambda *i: numbers_in_row(x, dim, i), name="valid")

    def index_of_rank(i: Sequence[Expr]) -> tuple[Expr, ...]:
        if isinstance(rank, int):
            return move_index(i, dim, const(rank, INDEX))
        return move_index(i, dim, within(rank(valid[tuple(i)]), x.shape[dim]))

    found = [
        te.compute(shape, lambda *i, t=t: t[index_of_rank(i)], name="chosen") for t in sort(x, dim, False)
    ]
    if not keepdim:
        found = [reshape(t, (*x.shape[:dim], *x.shape[dim + 1 :])) for t in found]
    return found[0], found[1]


def numbers_in_row(x: te.Tensor, dim: int, i: Sequence[Expr]) -> Expr:
    """How many elements of the row at `i` are not NaN."""
    k = te.reduce_axis(x.shape[dim], name="k")
    own = x[move_index(i, dim, k)]
    return te.sum(te.cast(~te.isnan(own) if is_float(x.dtype) else const(True), INDEX), axis=k)


def check_distinct(x: te.Tensor) -> None:
    """Of equal elements torch takes one that its algorithm comes upon; among floats they are rare."""
    if not is_float(x.dtype):
        raise NotLowered(f"which of several equal elements of {x.dtype} is meant")


@lowers(aten.topk.default, kind=Kind.REDUCTION)
def topk(x: te.Tensor, k: int, dim: int, largest: bool, sorted: bool) -> tuple[te.Tensor, te.Tensor]:
    check_distinct(x)
    if x.ndim == 0:
        return reshape(x, ()), te.compute((), lambda: const(0, INDEX), name="position")
    dim = wrap_dim(dim, x.ndim)
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    first, second = (te.compute(shape, lambda *i, t=t: t[i], name="top") for t in sort(x, dim, largest))
    return first, second


@lowers(aten.kthvalue.default, kind=Kind.REDUCTION)
def kthvalue(x: te.Tensor, k: int, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    check_distinct(x)
    return at_rank(x, dim, keepdim, k - 1)


@lowers(aten.median.dim, kind=Kind.REDUCTION)
def median_dim(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    """The lower one of an even number; a NaN, if there is one: the first."""
    check_distinct(x)
    return median_of(x, dim, keepdim)


def median_of(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    extent = x.shape[dim] if x.ndim else 1
    middle = const((extent - 1) // 2, INDEX)
    return at_rank(x, dim, keepdim, lambda valid: te.select(valid < extent, valid, middle))


@lowers(aten.median.default, kind=Kind.REDUCTION)
def median(x: te.Tensor) -> te.Tensor:
    return median_of(reshape(x, (math.prod(x.shape),)), 0, False)[0]


@lowers(aten.nanmedian.dim, kind=Kind.REDUCTION)
def nanmedian_dim(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    check_distinct(x)
    return nanmedian_of(x, dim, keepdim)


def nanmedian_of(x: te.Tensor, dim: int, keepdim: bool) -> tuple[te.Tensor, te.Tensor]:
    return at_rank(x, dim, keepdim, lambda valid: te.maximum((valid - 1) // 2, 0))


@lowers(aten.nanmedian.default, kind=Kind.REDUCTION)
def nanmedian(x: te.Tensor) -> te.Tensor:
    return nanmedian_of(reshape(x, (math.prod(x.shape),)), 0, False)[0]


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
    dtype, _ = promote_dtypes(sequence, values)
    right = right or side == "right"

    def element(*i: Expr) -> Expr:
        k = te.reduce_axis(extent, name="k")
        row = i[:-1] if sequence.ndim > 1 else ()
        at = k if sorter is None else within(sorter[*row, k], extent)
        own, value = te.cast(sequence[*row, at], dtype), element_of(values, i, values.shape, dtype)
        behind = ~(own > value) if right else ~(own >= value)  # NaN is behind everything
        return te.sum(te.cast(behind, INDEX), axis=k)

    found = te.compute(values.shape, element, name="searchsorted")
    return round_to(found, "int32") if out_int32 else found
