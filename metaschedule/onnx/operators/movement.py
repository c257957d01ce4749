"""Elements in other places: reshapes, transpositions, slices, pads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import InvalidModel, Unsupported
from ..registry import Op, Tensor, operator
from ..tensors import axes_of, constant, ints, number


@operator("Reshape")
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    extents = ints(shape, "the shape of Reshape")
    if not allowzero:
        extents = [x.shape[n] if extent == 0 else extent for n, extent in enumerate(extents)]
    return x.reshape(extents)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


@operator("Squeeze")
def squeeze(x: Tensor, axes: Tensor | None = None) -> Tensor:
    if axes is None:
        return x.reshape([n for n in x.shape if n != 1])
    chosen = axes_of(ints(axes, "axes of Squeeze"), x.ndim)
    if any(x.shape[a] != 1 for a in chosen):
        raise InvalidModel(f"Squeeze of axes {chosen} of {list(x.shape)}")
    return x.reshape([n for a, n in enumerate(x.shape) if a not in chosen])


@operator("Unsqueeze")
def unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    given = ints(axes, "axes of Unsqueeze")
    rank = x.ndim + len(given)
    chosen = set(axes_of(given, rank))
    extents = iter(x.shape)
    return x.reshape([1 if a in chosen else next(extents) for a in range(rank)])


@operator("Transpose")
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(list(perm) if perm is not None else list(range(x.ndim))[::-1])


@operator("Concat")
def concat(*inputs: Tensor, axis: int) -> Tensor:
    return torch.cat(inputs, axis)


@operator("Split")
def split(
    op: Op, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    extent = x.shape[axis]
    if sizes is not None:
        return tuple(torch.split(x, ints(sizes, "the sizes of Split"), axis))
    count = num_outputs or op.results
    largest = -(-extent // count)
    parts = [min(largest, max(0, extent - n * largest)) for n in range(count)]
    return tuple(torch.split(x, parts, axis))


@operator("Slice")
def slice_(
    x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    first, last = ints(starts, "the starts of Slice"), ints(ends, "the ends of Slice")
    chosen = list(range(len(first))) if axes is None else axes_of(ints(axes, "axes of Slice"), x.ndim)
    by = [1] * len(first) if steps is None else ints(steps, "the steps of Slice")
    for axis, start, end, step in zip(chosen, first, last, by, strict=True):
        extent = x.shape[axis]
        start, end, step = slice(start, end, step).indices(extent)
        if step < 0:  # of the reversed elements, forwards
            x = x.flip(axis)
            start, end, step = extent - 1 - start, extent - 1 - end, -step
        x = torch.ops.aten.slice.Tensor(x, axis, start, max(start, end), step)
    return x


@operator("Expand")
def expand(x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, ints(shape, "the shape of Expand")))


@operator("Tile")
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    return x.repeat(ints(repeats, "the repeats of Tile"))


@operator("Pad")
def pad(
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    amounts = ints(pads, "the amounts of Pad")
    chosen = axes_of(ints(axes, "axes of Pad"), x.ndim) if axes is not None else list(range(x.ndim))
    before, after = amounts[: len(chosen)], amounts[len(chosen) :]
    if mode == "constant":
        flat = [0] * (2 * x.ndim)
        for axis, b, e in zip(chosen, before, after, strict=True):
            flat[2 * (x.ndim - 1 - axis) : 2 * (x.ndim - axis)] = [b, e]
        fill = 0 if value is None else number(value, "the value of Pad")
        return F.pad(x, flat, value=fill)
    kinds = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in kinds:
        raise Unsupported(f"Pad with mode {mode!r}")
    for axis, b, e in zip(chosen, before, after, strict=True):
        places = np.pad(np.arange(x.shape[axis]), (max(b, 0), max(e, 0)), mode=kinds[mode])  # pyright: ignore
        places = places[max(-b, 0) : len(places) - max(-e, 0)]
        x = x.index_select(axis, constant(places, torch.int64))
    return x


@operator("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    extents = ints(shape, "the shape of CenterCropPad")
    for axis, extent in zip(axes_of(axes, x.ndim) if axes else range(x.ndim), extents, strict=True):
        more = extent - x.shape[axis]
        before = more // 2 if more >= 0 else -((-more) // 2)
        x = F.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, more - before])
    return x


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        parts = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // b**2, h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, c * b**2, h // b, w // b)


@operator("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first `lengths[b]` steps of each sequence backwards, the rest as it is."""
    shape = [1] * x.ndim
    shape[batch_axis] = -1
    length = lengths.reshape(shape)
    shape[batch_axis], shape[time_axis] = 1, -1
    step = torch.arange(x.shape[time_axis]).reshape(shape)
    place = torch.where(step < length, length - 1 - step, step)
    return torch.gather(x, time_axis, place.expand(x.shape))
