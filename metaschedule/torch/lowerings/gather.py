"""Elements from places that other tensors tell.

An index that is out of bounds is an error in torch: the kernel checks what it loads and fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import te
from ...ir import INDEX, Expr
from ..lowering import Kind, NotLowered, lowers
from .pointwise import broadcast, broadcast_shape
from .views import reshape, wrap_dim

aten = torch.ops.aten


def within(index: Expr, extent: int) -> Expr:
    """An index that is certainly valid, whatever was computed; negative ones count from the end."""
    return te.maximum(te.minimum(from_end(index, extent), extent - 1), 0)


def from_end(index: Expr, extent: int) -> Expr:
    """An index; negative ones count from the end."""
    index = te.cast(index, INDEX)
    return te.select(index < 0, index + extent, index)


@lowers(aten.embedding.default, kind=Kind.INJECTIVE)
def embedding(
    weight: te.Tensor, indices: te.Tensor, padding: int, scale_by_frequency: bool, sparse: bool
) -> te.Tensor:
    columns = weight.shape[1]
    return te.compute(
        (*indices.shape, columns),
        lambda *i: weight[te.cast(indices[i[:-1]], INDEX), i[-1]],
        name="embedding",
    )


@lowers(aten.gather.default, kind=Kind.INJECTIVE)
def gather(x: te.Tensor, dim: int, index: te.Tensor, sparse_grad: bool = False) -> te.Tensor:
    if x.ndim == 0:
        return te.compute(index.shape, lambda *i: x[()], name="gather")
    dim = wrap_dim(dim, x.ndim)
    return te.compute(
        index.shape,
        lambda *i: x[*i[:dim], te.cast(index[i], INDEX), *i[dim + 1 :]],
        name="gather",
    )


@lowers(aten.index_select.default, kind=Kind.INJECTIVE)
def index_select(x: te.Tensor, dim: int, index: te.Tensor) -> te.Tensor:
    if index.ndim == 0:
        index = reshape(index, (1,))
    if x.ndim == 0:
        return reshape(index_select(reshape(x, (1,)), 0, index), ())
    dim = wrap_dim(dim, x.ndim)
    return te.compute(
        (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]),
        lambda *i: x[*i[:dim], te.cast(index[i[dim]], INDEX), *i[dim + 1 :]],
        name="index_select",
    )


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor, kind=Kind.INJECTIVE)
def index(x: te.Tensor, indices: Sequence[te.Tensor | None]) -> te.Tensor:
    """The dimensions that index tensors replace come where the first of them was, or first of all if they
    were not next to each other."""
    given = {d: at for d, at in enumerate(indices) if at is not None}
    if any(at.dtype in ("bool", "uint8") for at in given.values()):
        raise NotLowered("the extent of a selection by a mask is known only at run time")
    places = broadcast_shape(*given.values())
    adjacent = list(given) == list(range(min(given), max(given) + 1))
    first = min(given) if adjacent else 0
    kept = [d for d in range(x.ndim) if d not in given]
    rest = [x.shape[d] for d in kept]

    def element(*i: Expr) -> Expr:
        place = i[first : first + len(places)]
        own = dict(zip(kept, i[:first] + i[first + len(places) :]))
        for d, at in given.items():
            own[d] = from_end(broadcast(at, place, places), x.shape[d])
        return x[tuple([own[d] for d in range(x.ndim)])]

    return te.compute((*rest[:first], *places, *rest[first:]), element, name="index")
