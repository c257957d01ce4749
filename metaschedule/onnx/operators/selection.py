"""Results whose extents depend on values: what they read must be known."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import ValueNeeded
from ..registry import Tensor, operator
from ..tensors import is_known, number


def need(x: Tensor, what: str) -> Tensor:
    if not is_known(x):
        raise ValueNeeded(x, what)
    return x


@operator("NonZero")
def nonzero(x: Tensor) -> Tensor:
    return torch.nonzero(need(x, "the extent of NonZero")).T.contiguous()


@operator("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    chosen = need(condition, "the extent of Compress")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    with _disable_current_modes():
        places = torch.nonzero(chosen).reshape(-1)
    return x.index_select(axis, places)


@operator("Unique")
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    need(x, "the extent of Unique")
    if axis is None:
        x, axis = x.reshape(-1), 0
    found, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    count = len(counts)
    steps = torch.arange(len(inverse))
    first = torch.full((count,), len(inverse)).scatter_reduce(0, inverse, steps, "amin")
    if not sorted:  # in the order in which they first come
        order = torch.argsort(first)
        back = torch.empty_like(order)
        back[order] = torch.arange(count)
        found, inverse = found.index_select(axis, order), back[inverse]
        first, counts = first[order], counts[order]
    return found, first, inverse, counts


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Of every batch and class the best boxes, without those that overlap a better one too much."""
    for values in (boxes, scores):
        need(values, "the extent of NonMaxSuppression")
    limit = 0 if most is None else int(number(most, "the number of boxes"))
    threshold = 0.0 if overlap is None else float(number(overlap, "the threshold of overlap"))
    score = None if least is None else float(number(least, "the threshold of scores"))
    corners = boxes
    if center_point_box:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        corners = torch.cat([middle - half, middle + half], -1)
    low, high = (
        torch.minimum(corners[..., :2], corners[..., 2:]),
        torch.maximum(corners[..., :2], corners[..., 2:]),
    )
    area = (high - low).prod(-1)
    kept: list[list[int]] = []
    for b in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            chosen: list[int] = []
            for n in torch.sort(scores[b, c], descending=True, stable=True)[1].tolist():
                if len(chosen) >= limit or (score is not None and scores[b, c, n] <= score):
                    break
                sides = torch.minimum(high[b, n], high[b, chosen]) - torch.maximum(low[b, n], low[b, chosen])
                common = sides.clamp(min=0).prod(-1)
                if not bool((common > threshold * (area[b, n] + area[b, chosen] - common)).any()):
                    chosen.append(n)
            kept += [[b, c, n] for n in chosen]
    return torch.tensor(kept, dtype=torch.int64).reshape(-1, 3)
