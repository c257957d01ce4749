"""Each element from one element at another place: permutations, slices, joins, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import Promotion, promote_dtypes
from ..lowering import Kind, NotLowered, lowers
from .pointwise import broadcast
from .views import digits, reshape, wrap_dim

aten = torch.ops.aten


def along(x: te.Tensor, dim: int, extent: int, move: Callable[[Expr], Expr], name: str) -> te.Tensor:
    """`x` with another extent along `dim`, its element `i` there being that at `move(i)`."""
    shape = (*x.shape[:dim], extent, *x.shape[dim + 1 :])
    return te.compute(shape, lambda *i: x[*i[:dim], move(i[dim]), *i[dim + 1 :]], name=name)


@lowers(aten.permute.default, kind=Kind.INJECTIVE)
def permute(x: te.Tensor, dims: Sequence[int]) -> te.Tensor:
    dims = [wrap_dim(d, x.ndim) for d in dims]
    place = [dims.index(d) for d in range(x.ndim)]
    return te.compute(
        [x.shape[d] for d in dims], lambda *i: x[tuple([i[p] for p in place])], name="transpose"
    )


@lowers(aten.transpose.int, aten.swapaxes.default, kind=Kind.INJECTIVE)
def transpose(x: te.Tensor, first: int, second: int) -> te.Tensor:
    order = list(range(x.ndim))
    if order:
        first, second = wrap_dim(first, x.ndim), wrap_dim(second, x.ndim)
        order[first], order[second] = second, first
    return permute(x, order)


@lowers(aten.t.default, kind=Kind.INJECTIVE)
def t(x: te.Tensor) -> te.Tensor:
    return permute(x, range(x.ndim)[::-1])


@lowers(aten.expand.default, kind=Kind.INJECTIVE)
def expand(x: te.Tensor, sizes: Sequence[int], implicit: bool = False) -> te.Tensor:
    new = len(sizes) - x.ndim
    shape = [x.shape[d - new] if n == -1 else n for d, n in enumerate(sizes)]
    return te.compute(shape, lambda *i: broadcast(x, i, shape), name="expand")


@lowers(aten.slice.Tensor, kind=Kind.INJECTIVE)
def slice_(x: te.Tensor, dim: int, start: int | None, end: int | None, step: int) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim)
    taken = range(x.shape[dim])[start:end:step]
    return along(x, dim, len(taken), lambda i: i * step + taken.start, "slice")


@lowers(aten.select.int, kind=Kind.INJECTIVE)
def select(x: te.Tensor, dim: int, index: int) -> te.Tensor:
    dim, at = wrap_dim(dim, x.ndim), index % x.shape[dim]
    return te.compute(x.shape[:dim] + x.shape[dim + 1 :], lambda *i: x[*i[:dim], at, *i[dim:]], name="select")


@lowers(aten.narrow.default, kind=Kind.INJECTIVE)
def narrow(x: te.Tensor, dim: int, start: int, length: int) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim)
    start = wrap_dim(start, x.shape[dim]) if start < 0 else start
    return along(x, dim, length, lambda i: i + start, "slice")


@lowers(aten.split_with_sizes.default, kind=Kind.INJECTIVE)
def split_with_sizes(x: te.Tensor, sizes: Sequence[int], dim: int) -> list[te.Tensor]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return [narrow(x, dim, start, size) for start, size in zip(starts, sizes, strict=True)]


@lowers(aten.split.Tensor, kind=Kind.INJECTIVE)
def split(x: te.Tensor, size: int, dim: int) -> list[te.Tensor]:
    extent = x.shape[wrap_dim(dim, x.ndim)]
    sizes = [min(size, extent - start) for start in range(0, extent, size)] if extent else [0]
    return split_with_sizes(x, sizes, dim)


@lowers(aten.chunk.default, kind=Kind.INJECTIVE)
def chunk(x: te.Tensor, chunks: int, dim: int) -> list[te.Tensor]:
    return split(x, max(-(-x.shape[wrap_dim(dim, x.ndim)] // chunks), 1), dim)


@lowers(aten.unbind.int, kind=Kind.INJECTIVE)
def unbind(x: te.Tensor, dim: int) -> list[te.Tensor]:
    return [select(x, dim, n) for n in range(x.shape[wrap_dim(dim, x.ndim)])]


MOST_CHAINED = 16  # parts that are looked through one after the other


@lowers(aten.cat.default, kind=Kind.INJECTIVE)
def cat(tensors: Sequence[te.Tensor], dim: int) -> te.Tensor:
    dtype = promote_dtypes(*tensors, promotion=Promotion.NO_OPMATH)[1]
    parts = [x for x in tensors if x.shape != (0,)] or tensors[:1]  # torch lets these be of any rank
    dim = wrap_dim(dim, parts[0].ndim)
    shape = [sum(x.shape[dim] for x in parts) if d == dim else n for d, n in enumerate(parts[0].shape)]

    starts = [0, *itertools.accumulate(x.shape[dim] for x in parts)]

    def among(i: tuple[Expr, ...], first: int, last: int) -> Expr:
        """The element, which is in one of parts `first` to `last`: of many, in one half of them or the other,
        so that the expression is not as deep as there are parts."""
        if first == last:
            own = parts[first][*i[:dim], i[dim] - starts[first], *i[dim + 1 :]]
            return te.cast(own, dtype)
        middle = first if last - first < MOST_CHAINED else (first + last) // 2
        return te.select(i[dim] < starts[middle + 1], among(i, first, middle), among(i, middle + 1, last))

    def element(*i: Expr) -> Expr:
        return among(i, 0, len(parts) - 1)

    return te.compute(shape, element, name="cat")


@lowers(aten.stack.default, kind=Kind.INJECTIVE)
def stack(tensors: Sequence[te.Tensor], dim: int) -> te.Tensor:
    dim = wrap_dim(dim, tensors[0].ndim + 1)
    return cat([reshape(x, (*x.shape[:dim], 1, *x.shape[dim:])) for x in tensors], dim)


@lowers(aten.flip.default, kind=Kind.INJECTIVE)
def flip(x: te.Tensor, dims: Sequence[int]) -> te.Tensor:
    flipped = {wrap_dim(d, x.ndim) for d in dims}
    return te.compute(
        x.shape,
        lambda *i: x[tuple([n - 1 - v if d in flipped else v for d, (v, n) in enumerate(zip(i, x.shape))])],
        name="flip",
    )


@lowers(aten.roll.default, kind=Kind.INJECTIVE)
def roll(x: te.Tensor, shifts: Sequence[int], dims: Sequence[int]) -> te.Tensor:
    if not dims:
        return reshape(roll(reshape(x, (math.prod(x.shape),)), shifts, [0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        dim = wrap_dim(dim, x.ndim)
        extent = x.shape[dim]
        x = along(x, dim, extent, lambda i, by=shift, n=extent: (i + (-by % max(n, 1))) % max(n, 1), "roll")
    return x


@lowers(aten.repeat.default, kind=Kind.INJECTIVE)
def repeat(x: te.Tensor, repeats: Sequence[int]) -> te.Tensor:
    new = len(repeats) - x.ndim
    extents = (1,) * new + x.shape
    return te.compute(
        [n * r for n, r in zip(extents, repeats, strict=True)],
        lambda *i: x[tuple([v % max(n, 1) for v, n in zip(i[new:], x.shape, strict=True)])],
        name="repeat",
    )


@lowers(aten.diagonal.default, kind=Kind.INJECTIVE)
def diagonal(x: te.Tensor, offset: int, first: int, second: int) -> te.Tensor:
    first, second = wrap_dim(first, x.ndim), wrap_dim(second, x.ndim)
    row, column = max(-offset, 0), max(offset, 0)
    extent = max(min(x.shape[first] - row, x.shape[second] - column), 0)
    kept = [d for d in range(x.ndim) if d not in (first, second)]

    def element(*i: Expr) -> Expr:
        index = dict(zip(kept, i)) | {first: i[-1] + row, second: i[-1] + column}
        return x[tuple([index[d] for d in range(x.ndim)])]

    return te.compute([*(x.shape[d] for d in kept), extent], element, name="diagonal")


@lowers(aten.unfold.default, kind=Kind.INJECTIVE)
def unfold(x: te.Tensor, dim: int, size: int, step: int) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim)
    if x.ndim == 0:
        return te.compute((size,), lambda *i: x[()], name="unfold")
    shape = (*x.shape[:dim], (x.shape[dim] - size) // step + 1, *x.shape[dim + 1 :], size)
    return te.compute(shape, lambda *i: x[*i[:dim], i[dim] * step + i[-1], *i[dim + 1 : -1]], name="unfold")


@lowers(aten.as_strided.default, kind=Kind.INJECTIVE)
def as_strided(
    x: te.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> te.Tensor:
    """The memory of `x`, which capture has seen to be dense and all that there is, read by other strides."""

    def element(*i: Expr) -> Expr:
        flat: Expr = const(offset or 0)
        for v, stride in zip(i, strides, strict=True):
            flat = flat + v * stride
        return x[tuple(digits(flat, x.shape))]

    return te.compute(tuple(shape), element, name="as_strided")


LARGEST_TABLE = 1 << 16  # elements


@lowers(aten.as_strided_scatter.default, kind=Kind.INJECTIVE)
def as_strided_scatter(
    x: te.Tensor, source: te.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> te.Tensor:
    """The inverse of `as_strided`, by a table of who writes to each element: the last, if several do."""
    size = math.prod(x.shape)
    if size > LARGEST_TABLE:
        raise NotLowered(f"as_strided_scatter into {size} elements, of more than {LARGEST_TABLE}")
    places = np.full(tuple(shape), offset or 0)
    for d, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        places += np.arange(extent).reshape(-1, *[1] * (len(shape) - d - 1)) * stride
    writers = np.full(size, -1)
    writers[places.ravel()] = np.arange(places.size)
    table = te.table(writers.reshape(x.shape), "int64", name="writer")

    def element(*i: Expr) -> Expr:
        number = table[i]
        return te.select(number >= 0, source[tuple(digits(te.maximum(number, 0), source.shape))], x[i])

    return te.compute(x.shape, element, name="as_strided_scatter")


@lowers(aten.tril.default, kind=Kind.INJECTIVE)
def tril(x: te.Tensor, offset: int) -> te.Tensor:
    return te.compute(
        x.shape, lambda *i: te.select(i[-1] - i[-2] <= offset, x[i], const(0, x.dtype)), name="tril"
    )


@lowers(aten.triu.default, kind=Kind.INJECTIVE)
def triu(x: te.Tensor, offset: int) -> te.Tensor:
    return te.compute(
        x.shape, lambda *i: te.select(i[-1] - i[-2] >= offset, x[i], const(0, x.dtype)), name="triu"
    )


@lowers(aten.slice_scatter.default, kind=Kind.INJECTIVE)
def slice_scatter(
    x: te.Tensor, source: te.Tensor, dim: int, start: int | None, end: int | None, step: int
) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim)
    taken = range(x.shape[dim])[start:end:step]

    def element(*i: Expr) -> Expr:
        way = i[dim] - taken.start
        within = te.all_of(way >= 0, way < len(taken) * step, way % step == 0)
        return te.select(within, source[*i[:dim], way // step, *i[dim + 1 :]], x[i])

    return te.compute(x.shape, element, name="slice_scatter")


@lowers(aten.select_scatter.default, kind=Kind.INJECTIVE)
def select_scatter(x: te.Tensor, source: te.Tensor, dim: int, index: int) -> te.Tensor:
    dim, at = wrap_dim(dim, x.ndim), index % x.shape[dim]
    return te.compute(
        x.shape,
        lambda *i: te.select(i[dim] == at, source[i[:dim] + i[dim + 1 :]], x[i]),
        name="select_scatter",
    )


@lowers(aten.pixel_shuffle.default, kind=Kind.INJECTIVE)
def pixel_shuffle(x: te.Tensor, factor: int) -> te.Tensor:
    *batch, c, h, w = x.shape
    return te.compute(
        (*batch, c // factor**2, h * factor, w * factor),
        lambda *i: x[
            *i[:-3],
            (i[-3] * factor + i[-2] % factor) * factor + i[-1] % factor,
            i[-2] // factor,
            i[-1] // factor,
        ],
        name="pixel_shuffle",
    )


@lowers(aten.pixel_unshuffle.default, kind=Kind.INJECTIVE)
def pixel_unshuffle(x: te.Tensor, factor: int) -> te.Tensor:
    *batch, c, h, w = x.shape
    return te.compute(
        (*batch, c * factor**2, h // factor, w // factor),
        lambda *i: x[
            *i[:-3],
            i[-3] // factor**2,
            i[-2] * factor + i[-3] // factor % factor,
            i[-1] * factor + i[-3] % factor,
        ],
        name="pixel_unshuffle",
    )
