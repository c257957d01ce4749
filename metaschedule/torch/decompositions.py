"""Operators that we say in other operators: where torch's own way has more steps than needed, or core ATen
keeps the operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

from .fused_layers import FUSED_LAYERS
from .quantised import QUANTISED

aten = torch.ops.aten


def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two products and a softmax. The scale comes after the first, where it is part of the softmax's kernel
    and not a copy of the query. A query that may attend to nothing gets zeros."""
    if dropout_p > 0:
        return NotImplemented
    if query.shape[-3] != key.shape[-3]:  # several heads of the query share one of the keys and values
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = torch.where(past, scores, -math.inf)
    softmax = torch.softmax if attn_mask is None else aten._safe_softmax
    return torch.matmul(softmax(scores, -1), value), torch.logsumexp(scores, -1)


def addbmm(
    term: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The sum over the batch is part of the product's."""
    batch, rows, inner = x.shape
    joined = x.transpose(0, 1).reshape(rows, batch * inner)
    return torch.addmm(term, joined, y.reshape(batch * inner, -1), beta=beta, alpha=alpha)


ROWS_BY_PRODUCTS = 25  # from which on torch computes Euclidean distances by a matrix product


def cdist(x: torch.Tensor, y: torch.Tensor, p: float, mode: int | None) -> torch.Tensor:
    many = max(x.shape[-2], y.shape[-2]) > ROWS_BY_PRODUCTS
    if p == 2 and (mode == 1 or (mode != 2 and many)):
        return NotImplemented
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    flat = x.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


LONGEST_COUNTED = 128  # elements of a mask, as `cumsum` of more is a step in eager


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The selected elements are numbered by a running sum."""
    x, mask = torch.broadcast_tensors(x, mask)
    if mask.numel() > LONGEST_COUNTED or not source.numel():
        return NotImplemented
    number = mask.reshape(-1).cumsum(0).reshape(mask.shape) - mask.long()
    return torch.where(mask, source.reshape(-1)[torch.where(mask, number, 0)], x)


def angle(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    turned = torch.where(x < 0, x.new_full((), math.pi), x.new_zeros(()))
    return torch.where(torch.isnan(x), x, turned)


def max_pool_backward(grad: torch.Tensor, x: torch.Tensor, *window: Any) -> torch.Tensor:
    """Each gradient goes to where the largest element of its window was (the last argument tells)."""
    places, first = window[-1], x.ndim - len(window[0])
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(first)
    return zeros.scatter_add(-1, places.flatten(first), grad.flatten(first)).reshape(x.shape)


def diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """A choice by position. Torch's own way writes into a view, which a graph without effects cannot."""
    whole = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = whole.shape[-2:]
    if not source.shape[-1]:
        return x.clone()
    row = torch.arange(rows, device=x.device)
    on_it = torch.arange(columns, device=x.device) - row[:, None] == offset
    along = (row - max(-offset, 0)).clamp(0, source.shape[-1] - 1)
    spread = source.index_select(-1, along).unsqueeze(-1)
    return torch.where(on_it, spread, whole).movedim((-2, -1), (dim1, dim2))


def one_hot(classes: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Torch's C++ checks the classes only where they have values, so not while a model is exported."""
    if num_classes == -1:
        num_classes = int(classes.max().item()) + 1
    aten._assert_async.msg((classes >= 0).all(), "Class values must be non-negative.")
    aten._assert_async.msg((classes < num_classes).all(), "Class values must be smaller than num_classes.")
    return (classes.unsqueeze(-1) == torch.arange(num_classes, device=classes.device)).long()


LINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1


def grid_sampler_3d(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, corners: bool
) -> torch.Tensor:
    """Each corner around a place with its weight, or the nearest element; outside there is 0."""
    extents = x.shape[2:]
    places = [
        inside(grid[..., 2 - d], extent, padding, corners) for d, extent in enumerate(extents)
    ]  # the grid tells the last dimension first
    batch = torch.arange(x.shape[0], device=x.device).reshape(-1, 1, 1, 1)
    channels_last = x.permute(0, 2, 3, 4, 1)

    def element(at: Sequence[torch.Tensor], weight: torch.Tensor | None) -> torch.Tensor:
        valid = torch.ones_like(at[0], dtype=torch.bool)
        for place, extent in zip(at, extents):
            valid = valid & (place >= 0) & (place <= extent - 1)
        index = [torch.where(valid, place, 0).long() for place in at]
        found = torch.where(valid.unsqueeze(-1), channels_last[batch, *index], 0)
        return found if weight is None else found * weight.unsqueeze(-1)

    if interpolation == NEAREST:
        return element([place.round() for place in places], None).permute(0, 4, 1, 2, 3)
    result: torch.Tensor | None = None
    for sides in itertools.product((0, 1), repeat=3):
        at = [place.floor() + side for place, side in zip(places, sides)]
        shares = [1 - (place - corner).abs() for place, corner in zip(places, at)]
        term = element(at, shares[0] * shares[1] * shares[2])
        result = term if result is None else result + term
    assert result is not None
    return result.permute(0, 4, 1, 2, 3)


def inside(place: torch.Tensor, extent: int, padding: int, corners: bool) -> torch.Tensor:
    """A coordinate from -1 to 1 as a place, moved inside as the padding says."""
    place = (place + 1) * ((extent - 1) / 2) if corners else ((place + 1) * extent - 1) / 2
    if padding == ZEROS:
        return place
    if padding != BORDER:  # reflected at the centres of the outer elements, or at their edges
        low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        if span == 0:
            return torch.zeros_like(place)
        way = (place - low).abs()
        rest, turns = torch.fmod(way, span), (way / span).floor()
        place = torch.where(torch.fmod(turns, 2) == 0, rest, span - rest) + low
    return place.clamp(0, extent - 1)


def upsample_bicubic(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Of integers eager computes with rounded weights."""
    if not x.is_floating_point():
        return NotImplemented
    return BICUBIC(x, *rest)


BICUBIC = get_decompositions([aten.upsample_bicubic2d.default])[aten.upsample_bicubic2d.default]

# Those of torch that core ATen does without.
OF_TORCH = (
    *(aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default),
    *(aten._batch_norm_with_update_functional.default, aten._batch_norm_no_update.default),
    *(aten._addmm_activation.default, aten.grid_sampler_2d.default),
    *(aten.as_strided_copy.default, aten.narrow_copy.default),
    *(aten.permute_copy.default, aten.unbind_copy.int),
    *(aten.ldexp.Tensor, aten.dist.default),
)

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **get_decompositions(OF_TORCH),
    **QUANTISED,
    **FUSED_LAYERS,
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention,
    aten.addbmm.default: addbmm,
    aten._cdist_forward.default: cdist,
    aten.put.default: put,
    aten.masked_scatter.default: masked_scatter,
    aten.angle.default: angle,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.one_hot.default: one_hot,
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten.max_pool3d_with_indices_backward.default: max_pool_backward,
    aten.grid_sampler_3d.default: grid_sampler_3d,
    aten.upsample_bicubic2d.default: upsample_bicubic,
}
