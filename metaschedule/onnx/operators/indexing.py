"""Elements by indices that are tensors: gathers and scatters."""

from __future__ import annotations

import math

import torch

from ..errors import InvalidModel, Unsupported
from ..registry import Tensor, operator
from ..tensors import axes_of, is_known, number
from .integers import WIDE, widen

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def count_from_front(indices: Tensor, extent: int) -> Tensor:
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + extent, indices)


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    (axis,) = axes_of([axis], x.ndim)
    if indices.ndim == 0 and is_known(indices):
        return x.select(axis, int(number(indices, "the index of Gather")))
    places = count_from_front(indices, x.shape[axis])
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, count_from_front(indices, x.shape[axis]))


def flat_places(extents: list[int], indices: Tensor) -> Tensor:
    """The number, in row-major order, of the elements that the last dimension of `indices` tells."""
    place = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for n, extent in enumerate(extents):
        place = place * extent + count_from_front(indices[..., n], extent)
    return place


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    batch, inner = list(x.shape[:batch_dims]), list(x.shape[batch_dims : batch_dims + depth])
    rest = list(x.shape[batch_dims + depth :])
    count = math.prod(batch)
    places = flat_places(inner, indices).reshape(count, -1)
    places = (places + torch.arange(count)[:, None] * math.prod(inner)).reshape(-1)
    found = x.reshape([count * math.prod(inner), *rest]).index_select(0, places)
    return found.reshape([*indices.shape[:-1], *rest])


@operator("ScatterElements", "Scatter")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = count_from_front(indices, x.shape[axis])
    return scatter(x, axis, places, updates, reduction)


def scatter(x: Tensor, axis: int, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    if reduction not in REDUCTIONS:
        raise Unsupported(f"a scatter with reduction {reduction!r}")
    if x.dtype in WIDE:
        return scatter(widen(x), axis, places, widen(updates), reduction).to(x.dtype)
    return torch.scatter_reduce(x, axis, places, updates, REDUCTIONS[reduction], include_self=True)


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    outer, rest = list(x.shape[:depth]), list(x.shape[depth:])
    size = math.prod(rest)
    places = flat_places(outer, indices).reshape(-1, 1).expand(-1, size)
    flat = scatter(x.reshape(-1, size), 0, places, updates.reshape(-1, size), reduction)
    return flat.reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(
    past: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Each batch's update is written into it from its start on along an axis; a circular one wraps around."""
    (axis,) = axes_of([axis], past.ndim)
    if axis == 0:
        raise InvalidModel("TensorScatter along the batch")
    step = torch.arange(update.shape[axis]).reshape([-1] + [1] * (past.ndim - 1 - axis))
    start = torch.zeros(past.shape[0], dtype=torch.int64) if starts is None else starts
    place = start.reshape([-1] + [1] * (past.ndim - 1)) + step
    place = torch.remainder(place, past.shape[axis]) if mode == "circular" else place
    return torch.scatter(past, axis, place.expand(update.shape), update)
