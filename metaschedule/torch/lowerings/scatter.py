"""Elements to places that other tensors tell: scatter, index_put and their reductions.

Programs compute each element once, so an element asks who writes to it: a reduction over all that might. That
is work in proportion to targets times sources, which is left to torch where its loop is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ... import te
from ...ir import INDEX, Expr, const, highest, is_float, lowest
from ..dtypes import accumulator
from ..lowering import Kind, NotLowered, lowers
from .pointwise import broadcast, broadcast_shape, element_of
from .views import digits, reshape, wrap_dim

aten = torch.ops.aten

MOST_QUESTIONS = 1 << 14  # of a target to a source, until torch's loop over the sources is faster


def check_questions(targets: int, sources: int) -> None:
    if targets * sources > MOST_QUESTIONS:
        raise NotLowered(f"{sources} elements to be written to {targets} places: too many to compare")


def check_bounds(index: te.Tensor, extent: int, from_end: bool = False) -> te.Tensor:
    """The index tensor, read through a table of the extent, so that an index out of bounds is a failure of
    the kernel and not silence. It may count from the end."""
    numbers = te.table(np.arange(extent), INDEX, name="numbers")

    def element(*i: Expr) -> Expr:
        at = te.cast(index[i], INDEX)
        return numbers[te.select(at < 0, at + extent, at) if from_end else at]

    return te.compute(index.shape, element, name="places")


@lowers(aten.index_put.default, aten._unsafe_index_put.default, kind=Kind.REDUCTION)
def index_put(
    x: te.Tensor, indices: Sequence[te.Tensor | None], values: te.Tensor, accumulate: bool = False
) -> te.Tensor:
    given = {d: at for d, at in enumerate(indices) if at is not None}
    if any(at.dtype in ("bool", "uint8") for at in given.values()):
        return put_where(x, indices, values, accumulate)
    return Put(x, given, values).accumulate() if accumulate else Put(x, given, values).replace()


@lowers(aten.index_copy.default, kind=Kind.REDUCTION)
def index_copy(x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> te.Tensor:
    """Rows in the place of others; unlike those of `index_put`, indices do not count from the end."""
    put, shape = put_rows(x, dim, index, source)
    return reshape(put.replace(), shape)


@lowers(aten.index_add.default, kind=Kind.REDUCTION)
def index_add(x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, *, alpha: float = 1) -> te.Tensor:
    if alpha != 1:
        factor = const(alpha, x.dtype)
        source = te.compute(source.shape, lambda *i: source[i] * factor, name="scaled")
    put, shape = put_rows(x, dim, index, source)
    return reshape(put.accumulate(), shape)


def put_rows(x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> tuple[Put, tuple[int, ...]]:
    """`source` into the rows of `x` that the index tells, and the shape of the result: that of `x`."""
    shape, dim = x.shape, wrap_dim(dim, x.ndim)
    x = x if x.ndim else reshape(x, (1,))
    index = index if index.ndim else reshape(index, (1,))
    rows = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    source = source if source.shape == rows else reshape(source, rows)
    return Put(x, {dim: index}, source, from_end=False), shape


def put_where(
    x: te.Tensor, indices: Sequence[te.Tensor | None], values: te.Tensor, accumulate: bool
) -> te.Tensor:
    """One value wherever a condition holds, over the leading dimensions of `x`."""
    mask = indices[0]
    if len([at for at in indices if at is not None]) > 1 or mask is None or math.prod(values.shape) != 1:
        raise NotLowered("how many elements a mask selects is known only at run time")
    value = values[(0,) * values.ndim]

    def element(*i: Expr) -> Expr:
        put = x[i] + value if accumulate else value
        return te.select(te.cast(mask[i[: mask.ndim]], "bool"), put, x[i])

    return te.compute(x.shape, element, name="masked_put")


class Put:
    """`values` into the places of `x` that index tensors tell for the dimensions `given`. Their elements are
    numbered in row-major order; of two that go to the same place the later stays."""

    def __init__(
        self, x: te.Tensor, given: dict[int, te.Tensor], values: te.Tensor, from_end: bool = True
    ) -> None:
        self.x, self.values = x, values
        self.given = {d: check_bounds(at, x.shape[d], from_end) for d, at in given.items()}
        self.places = broadcast_shape(*given.values())
        adjacent = list(given) == list(range(min(given), max(given) + 1))
        self.first = min(given) if adjacent else 0  # where the dimensions of the index tensors come
        self.kept = [d for d in range(x.ndim) if d not in given]
        rest = [x.shape[d] for d in self.kept]
        self.shape = (*rest[: self.first], *self.places, *rest[self.first :])

    def aims_at(self, place: Sequence[Expr], target: dict[int, Expr]) -> Expr:
        """Whether the element at `place` of the index tensors goes to `target`."""
        return te.all_of([broadcast(at, place, self.places) == target[d] for d, at in self.given.items()])

    def value(self, place: Sequence[Expr], target: Sequence[Expr]) -> Expr:
        """What the element at `place` brings to the element `target` of `x`."""
        rest = [target[d] for d in self.kept]
        index = (*rest[: self.first], *place, *rest[self.first :])
        return te.cast(broadcast(self.values, index, self.shape), self.x.dtype)

    def axes(self) -> list[Any]:
        return [te.reduce_axis(n, name=f"k{d}") for d, n in enumerate(self.places)] or [te.reduce_axis(1)]

    def replace(self) -> te.Tensor:
        """First the number of the last element that goes to each place; then the elements."""
        x, dims = self.x, list(self.given)
        check_questions(math.prod(x.shape[d] for d in dims), math.prod(self.places))

        def last(*target: Expr) -> Expr:
            axes = self.axes()
            place = axes[: len(self.places)]
            number: Expr = const(0, INDEX)
            for axis, n in zip(place, self.places):
                number = number * n + axis
            aims = self.aims_at(place, dict(zip(dims, target)))
            return te.max(te.select(aims, number, const(-1, INDEX)), axis=axes)

        writer = te.compute([x.shape[d] for d in dims], last, name="writer")

        def element(*i: Expr) -> Expr:
            number = writer[tuple([i[d] for d in dims])]
            place = digits(te.maximum(number, 0), self.places)
            return te.select(number >= 0, self.value(place, i), x[i])

        return te.compute(x.shape, element, name="index_put")

    def accumulate(self) -> te.Tensor:
        x = self.x
        if x.dtype == "bool":
            raise NotLowered("sums of bool")
        check_questions(math.prod(x.shape), math.prod(self.places))
        wide = accumulator(x.dtype)

        def sum_of_sources(*i: Expr) -> Expr:
            axes = self.axes()
            place = axes[: len(self.places)]
            aims = self.aims_at(place, {d: i[d] for d in self.given})
            return te.sum(te.select(aims, te.cast(self.value(place, i), wide), const(0, wide)), axis=axes)

        total = te.compute(x.shape, sum_of_sources, name="added")
        return te.compute(
            x.shape, lambda *i: te.cast(te.cast(x[i], wide) + total[i], x.dtype), name="index_put"
        )


@lowers(aten.scatter.src, aten.scatter.value, kind=Kind.REDUCTION)
def scatter(x: te.Tensor, dim: int, index: te.Tensor, source: Any) -> te.Tensor:
    sources = Sources.of_index(x, dim, index, source)
    writer = te.compute(x.shape, sources.last, name="writer")

    def element(*i: Expr) -> Expr:
        return te.select(writer[i] >= 0, sources.value(i, te.maximum(writer[i], 0)), x[i])

    return te.compute(x.shape, element, name="scatter")


class Sources:
    """The elements that may go to an element of `x`: number `k` of `count` is `value(i, k)` and does if
    `aims_at(i, k)`."""

    def __init__(
        self,
        x: te.Tensor,
        count: int,
        aims_at: Callable[[Sequence[Expr], Expr], Expr],
        value: Callable[[Sequence[Expr], Expr], Expr],
    ) -> None:
        check_questions(math.prod(x.shape), count)
        self.x, self.count, self.aims_at, self.value = x, count, aims_at, value

    @staticmethod
    def of_index(x: te.Tensor, dim: int, index: te.Tensor, source: Any) -> Sources:
        """Those of `scatter`: the index is a tensor like `x`, but may be smaller."""
        dim = wrap_dim(dim, x.ndim)
        count = index.shape[dim] if x.ndim else 1
        index = check_bounds(index, x.shape[dim] if x.ndim else 1)

        def place(i: Sequence[Expr], k: Expr) -> tuple[Expr, ...]:
            return (*i[:dim], k, *i[dim + 1 :]) if x.ndim else (const(0, INDEX),) * index.ndim

        def aims_at(i: Sequence[Expr], k: Expr) -> Expr:
            within = [
                i[d] < index.shape[d] for d in range(x.ndim) if d != dim and index.shape[d] < x.shape[d]
            ]
            aims = index[place(i, k)] == (i[dim] if x.ndim else 0)
            return te.select(te.all_of(within), aims, const(False)) if within else aims

        def value(i: Sequence[Expr], k: Expr) -> Expr:
            if isinstance(source, te.Tensor):
                return te.cast(source[place(i, k)[: source.ndim]], x.dtype)
            return element_of(source, i, x.shape, x.dtype)

        return Sources(x, count, aims_at, value)

    @staticmethod
    def of_rows(x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> Sources:
        """Those of `index_reduce`: a row of `source` for each element of the index."""
        dim = wrap_dim(dim, x.ndim)
        index = check_bounds(index, x.shape[dim] if x.ndim else 1)

        def aims_at(i: Sequence[Expr], k: Expr) -> Expr:
            return index[(k,) if index.ndim else ()] == (i[dim] if x.ndim else 0)

        def value(i: Sequence[Expr], k: Expr) -> Expr:
            return source[(*i[:dim], k, *i[dim + 1 :])[: source.ndim]]

        return Sources(x, index.shape[0] if index.ndim else 1, aims_at, value)

    def axis(self) -> Any:
        return te.reduce_axis(self.count, name="k")

    def last(self, *i: Expr) -> Expr:
        """The number of the last that goes to an element; -1 if none does."""
        k = self.axis()
        return te.max(te.select(self.aims_at(i, k), te.cast(k, INDEX), const(-1, INDEX)), axis=k)

    def number(self, *i: Expr) -> Expr:
        """How many go to an element."""
        k = self.axis()
        return te.sum(te.select(self.aims_at(i, k), const(1, INDEX), const(0, INDEX)), axis=k)

    def reduce(self, combine: Callable[..., Expr], nothing: float, dtype: str) -> te.Tensor:
        """Those that go to each element, combined; `nothing` where none does."""

        def element(*i: Expr) -> Expr:
            k = self.axis()
            own = te.cast(self.value(i, k), dtype)
            return combine(te.select(self.aims_at(i, k), own, const(nothing, dtype)), axis=k)

        return te.compute(self.x.shape, element, name="combined")


Both = Callable[[Expr, Expr], Expr]
WAYS: dict[str, tuple[Callable[..., Expr], Callable[[str], float], Both]] = {
    "sum": (te.sum, lambda dtype: 0, lambda a, b: a + b),
    "mean": (te.sum, lambda dtype: 0, lambda a, b: a + b),
    "prod": (te.prod, lambda dtype: 1, lambda a, b: a * b),
    "amax": (te.max, lowest, te.maximum),
    "amin": (te.min, highest, te.minimum),
}
SYNONYMS = {"add": "sum", "multiply": "prod"}


def combine_sources(sources: Sources, way: str, include_self: bool) -> te.Tensor:
    x, way = sources.x, SYNONYMS.get(way, way)
    if x.dtype == "bool":
        raise NotLowered(f"{way} of bool")
    wide = accumulator(x.dtype)
    combine, nothing, both = WAYS[way]
    rest = sources.reduce(combine, nothing(wide), wide)
    number = te.compute(x.shape, sources.number, name="number")

    def element(*i: Expr) -> Expr:
        own = te.cast(x[i], wide)
        result = both(own, rest[i]) if include_self else rest[i]
        if way == "mean":
            size = te.maximum(number[i] + 1 if include_self else number[i], 1)
            result = result / te.cast(size, wide) if is_float(wide) else result // te.cast(size, wide)
        return te.cast(te.select(number[i] > 0, result, own), x.dtype)

    return te.compute(x.shape, element, name=way)


@lowers(aten.scatter.reduce, aten.scatter.value_reduce, kind=Kind.REDUCTION)
def scatter_by(x: te.Tensor, dim: int, index: te.Tensor, source: Any, reduce: str) -> te.Tensor:
    return combine_sources(Sources.of_index(x, dim, index, source), reduce, include_self=True)


@lowers(aten.scatter_add.default, kind=Kind.REDUCTION)
def scatter_add(x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor) -> te.Tensor:
    return combine_sources(Sources.of_index(x, dim, index, source), "sum", include_self=True)


@lowers(aten.scatter_reduce.two, kind=Kind.REDUCTION)
def scatter_reduce(
    x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, reduce: str, include_self: bool = True
) -> te.Tensor:
    return combine_sources(Sources.of_index(x, dim, index, source), reduce, include_self)


@lowers(aten.index_reduce.default, kind=Kind.REDUCTION)
def index_reduce(
    x: te.Tensor, dim: int, index: te.Tensor, source: te.Tensor, reduce: str, include_self: bool = True
) -> te.Tensor:
    return combine_sources(Sources.of_rows(x, dim, index, source), reduce, include_self)
