"""Many elements make one: sums, extremes and where they are, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ..errors import Unsupported
from ..registry import Tensor, operator
from ..tensors import axes_of, ints, number
from .integers import flip, modular, ordering, widen

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def reduce_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sum(x, axes, keep, dtype=x.dtype)


def reduce_mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, keep)
    count = math.prod(x.shape[a] for a in axes)
    return torch.div(torch.sum(x, axes, keep), count, rounding_mode="trunc").to(x.dtype)


def reduce_prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def reduce_extreme(x: Tensor, axes: list[int], keep: bool, largest: bool) -> Tensor:
    """Of no elements: the number that any other would replace."""
    if x.dtype is torch.bool:
        return reduce_extreme(x.to(torch.uint8), axes, keep, largest) != 0
    if any(x.shape[a] == 0 for a in axes):
        kept = [1 if a in axes else n for a, n in enumerate(x.shape) if keep or a not in axes]
        if x.is_floating_point():
            least = -math.inf if largest else math.inf
        else:
            least = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
        return torch.full(kept, least, dtype=x.dtype)
    return ordering(lambda x: x.amax(axes, keep) if largest else x.amin(axes, keep))(x)


def reduce_logsumexp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(x if x.is_floating_point() else x.float(), axes, keep).to(x.dtype)


def in_float(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x) if x.is_floating_point() else function(x.to(torch.float64)).to(x.dtype)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": reduce_sum,
    "ReduceMean": reduce_mean,
    "ReduceProd": reduce_prod,
    "ReduceMax": lambda x, axes, keep: reduce_extreme(x, axes, keep, True),
    "ReduceMin": lambda x, axes, keep: reduce_extreme(x, axes, keep, False),
    "ReduceL1": lambda x, axes, keep: reduce_sum(torch.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: in_float(torch.sqrt)(reduce_sum(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: in_float(torch.log)(reduce_sum(x, axes, keep)),
    "ReduceLogSumExp": reduce_logsumexp,
    "ReduceSumSquare": lambda x, axes, keep: reduce_sum(x * x, axes, keep),
}


def register_reduction(name: str, reduction: Reduction) -> None:
    @operator(name)
    def reduce(
        x: Tensor,
        given: Tensor | None = None,
        *,
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        """The axes are an input since opset 18 (13 for sums), an attribute before. If there are none, all are
        reduced; a `noop` then does what it does to a single element."""
        chosen = ints(given, "axes of a reduction") if given is not None else list(axes or ())
        if not chosen and noop_with_empty_axes:
            if name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
                return x
            return reduction(x.unsqueeze(0), [0], False)
        chosen = axes_of(chosen, x.ndim) if chosen else list(range(x.ndim))
        return (
            modular(lambda x: reduction(x, chosen, bool(keepdims)))(x)
            if name != "ReduceMax"
            else (reduction(x, chosen, bool(keepdims)))
        )


for name, reduction in REDUCTIONS.items():
    register_reduction(name, reduction)


def find_extreme(x: Tensor, axis: int, keepdims: int, last: int, largest: bool) -> Tensor:
    find = torch.argmax if largest else torch.argmin
    if not last:
        return find(x, axis, bool(keepdims))
    return x.shape[axis] - 1 - find(x.flip(axis), axis, bool(keepdims))


@operator("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return find_extreme(x, axis, keepdims, select_last_index, True)


@operator("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return find_extreme(x, axis, keepdims, select_last_index, False)


def run_along(
    x: Tensor, axis: int, exclusive: int, reverse: int, neutral: int, function: Callable[..., Tensor]
) -> Tensor:
    """A running sum or product; an exclusive one starts with the neutral element and leaves the last out."""
    x = x.flip(axis) if reverse else x
    found = function(x, axis, dtype=x.dtype)
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), neutral)
        found = torch.cat([first, found.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
    return found.flip(axis) if reverse else found


@operator("CumSum")
def cumsum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return run_along(x, int(number(axis, "the axis of CumSum")), exclusive, reverse, 0, torch.cumsum)


@operator("CumProd")
def cumprod(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return run_along(x, int(number(axis, "the axis of CumProd")), exclusive, reverse, 1, torch.cumprod)


@operator("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first of the largest elements."""
    (axis,) = axes_of([axis], x.ndim)
    place = torch.arange(x.shape[axis]).reshape([-1] + [1] * (x.ndim - 1 - axis))
    return (place == torch.argmax(x, axis, True)).to(x.dtype)


@operator("TopK")
def topk(x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """Of equal elements those with the smaller index come first, so the sort has to be stable."""
    count = int(number(k, "K of TopK"))
    if count > x.shape[axis]:
        raise Unsupported(f"TopK of {count} elements among {x.shape[axis]}")
    ordered = flip(x.to(torch.int64)) if x.dtype is torch.uint64 else widen(x)
    indices = torch.sort(ordered, dim=axis, descending=bool(largest), stable=True)[1]
    values = torch.gather(x, axis, indices)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)
