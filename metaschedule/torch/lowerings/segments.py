"""Reductions of parts of a tensor whose lengths other tensors tell: bags of embeddings, segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ... import te
from ...ir import INDEX, Expr, Var, const
from ..dtypes import accumulator
from ..lowering import Kind, NotLowered, lowers
from .views import wrap_dim

aten = torch.ops.aten

SUM, MEAN, MAX = 0, 1, 2


@lowers(aten._embedding_bag_forward_only.default, aten._embedding_bag.default, kind=Kind.REDUCTION)
def embedding_bag(
    weight: te.Tensor, indices: te.Tensor, offsets: te.Tensor, scale_by_frequency: bool, mode: int,
    sparse: bool, shares: te.Tensor | None, last_offset: bool, padding: int,
) -> tuple[te.Tensor, None, None, None]:  # fmt: skip
    """Rows of the weight, combined bag by bag: bag b has the indices from `offsets[b]` on. Those of the
    padding do not count. A bag of none is zeros."""
    count, total = offsets.shape[0] - last_offset, indices.shape[0]
    offsets, dtype = bounded(offsets, total), accumulator(weight.dtype)

    def bounds(b: Expr) -> tuple[Expr, Expr]:
        first = te.cast(offsets[b], INDEX)
        if last_offset:
            return first, te.cast(offsets[b + 1], INDEX)
        following = te.cast(offsets[te.minimum(b + 1, count - 1)], INDEX)
        return first, te.select(b + 1 < count, following, const(total, INDEX))

    def row(b: Expr) -> tuple[Var, Expr, Expr]:
        """An axis over a bag, the index that it stands at, and whether that counts."""
        first, end = bounds(b)
        k = te.reduce_axis(end - first, name="k")
        index = te.cast(indices[first + k], INDEX)
        return k, index, const(True) if padding < 0 else index != padding

    def reduce_segment(b: Expr, c: Expr) -> Expr:
        k, index, counts = row(b)
        value = te.cast(weight[index, c], dtype)
        if shares is not None:
            value = value * te.cast(shares[bounds(b)[0] + k], dtype)
        nothing = const(-math.inf if mode == MAX else 0, dtype)
        return (te.max if mode == MAX else te.sum)(te.select(counts, value, nothing), axis=k)

    def number(b: Expr) -> Expr:
        k, _, counts = row(b)
        return te.sum(te.cast(counts, INDEX), axis=k)

    results = te.compute((count, weight.shape[1]), reduce_segment, name="bags")
    numbers = te.compute((count,), number, name="numbers") if mode != SUM else None

    def element(b: Expr, c: Expr) -> Expr:
        value = results[b, c]
        if mode == MEAN and numbers is not None:
            value = value / te.cast(te.maximum(numbers[b], 1), dtype)
        if mode == MAX and numbers is not None:
            value = te.select(numbers[b] > 0, value, const(0, dtype))
        return te.cast(value, weight.dtype)

    return te.compute(results.shape, element, name="embedding_bag"), None, None, None


# How parts are combined, and what of nothing is.
WAYS: dict[str, tuple[Callable[..., Expr], float]] = {
    "sum": (te.sum, 0.0),
    "mean": (te.sum, 0.0),
    "prod": (te.prod, 1.0),
    "max": (te.max, -math.inf),
    "min": (te.min, math.inf),
}
WITH: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": te.maximum,
    "min": te.minimum,
}


@lowers(aten.segment_reduce.default, kind=Kind.REDUCTION)
def segment_reduce(
    x: te.Tensor, reduce: str, *, lengths: te.Tensor | None, indices: te.Tensor | None,
    offsets: te.Tensor | None, axis: int, unsafe: bool, initial: float | None,
) -> te.Tensor:  # fmt: skip
    """Segments along `axis`, one after the other. `initial` takes part in each."""
    axis = wrap_dim(axis, x.ndim)
    if lengths is not None:
        offsets = starts(lengths)
        if not unsafe:
            offsets = ending_at(offsets, x.shape[axis])
    if indices is not None or offsets is None:
        raise NotLowered("segments by indices")
    ends, dtype = offsets, accumulator(x.dtype)
    shape = (*x.shape[:axis], offsets.shape[-1] - 1, *x.shape[axis + 1 :])
    combine, nothing = WAYS[reduce]

    def length(i: Sequence[Expr]) -> tuple[Expr, Expr]:
        first = te.cast(ends[*i[:axis], i[axis]], INDEX)
        return first, te.cast(ends[*i[:axis], i[axis] + 1], INDEX) - first

    def reduce_segment(*i: Expr) -> Expr:
        first, size = length(i)
        k = te.reduce_axis(size, name="k")
        return combine(te.cast(x[*i[:axis], first + k, *i[axis + 1 :]], dtype), axis=k)

    results = te.compute(shape, reduce_segment, name="segments")

    def element(*i: Expr) -> Expr:
        value, size = results[i], length(i)[1]
        if initial is not None:
            value = WITH[reduce](value, const(initial, dtype))
        if reduce == "mean":
            of_none = const(math.nan if initial is None else initial, dtype)
            value = te.select(size > 0, value / te.cast(te.maximum(size, 1), dtype), of_none)
        return te.cast(value, x.dtype)

    return te.compute(shape, element, name=f"segment_{reduce}")


def starts(lengths: te.Tensor) -> te.Tensor:
    """Where each segment begins, and where the last ends."""

    def element(*i: Expr) -> Expr:
        k = te.reduce_axis(i[-1], name="k")
        return te.sum(te.cast(lengths[*i[:-1], k], INDEX), axis=k)

    return te.compute((*lengths.shape[:-1], lengths.shape[-1] + 1), element, name="starts")


def bounded(offsets: te.Tensor, extent: int) -> te.Tensor:
    """Offsets of which the first is 0 and the last at most the extent; else the kernel fails."""
    nothing, last = te.table(np.zeros(1), INDEX, name="nothing"), offsets.shape[0] - 1

    def element(i: Expr) -> Expr:
        at = te.cast(offsets[i], INDEX)
        beyond = te.select(i == last, te.maximum(at - extent, 0), const(0, INDEX))
        return at + nothing[te.select(i == 0, at, beyond)]

    return te.compute(offsets.shape, element, name="offsets")


def ending_at(offsets: te.Tensor, extent: int) -> te.Tensor:
    """The offsets, of which the last is `extent`; else the kernel fails, reading past a table of one."""
    nothing, last = te.table(np.zeros(1), INDEX, name="nothing"), offsets.shape[-1] - 1

    def element(*i: Expr) -> Expr:
        return offsets[i] + nothing[te.select(i[-1] == last, offsets[i] - extent, const(0, INDEX))]

    return te.compute(offsets.shape, element, name="ends")
