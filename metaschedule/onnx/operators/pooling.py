"""Pooling over windows, whole images and regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..errors import Unsupported
from ..registry import Op, Tensor, operator
from ..tensors import constant, ints
from .convolution import amounts_of, pad_by


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial dimensions: `amounts` are pads as they are given, `extra` what the last window
    reaches beyond those when extents are rounded up."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    amounts: list[tuple[int, int]]
    extra: list[int]
    outputs: list[int]

    @property
    def padded(self) -> list[tuple[int, int]]:
        return [(b, e + more) for (b, e), more in zip(self.amounts, self.extra)]


def windows_of(
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> Windows:
    rank = len(kernel)
    stride, dilation = list(strides or [1] * rank), list(dilations or [1] * rank)
    amounts = amounts_of(x, kernel, stride, dilation, pads, auto_pad)
    outputs, extra = [], []
    for n, k, s, d, (b, e) in zip(x.shape[2:], kernel, stride, dilation, amounts):
        reach = d * (k - 1) + 1
        free = n + b + e - reach
        count = (-(-free // s) if ceil_mode else free // s) + 1
        if ceil_mode and (count - 1) * s >= n + b:  # no window starts behind the elements
            count -= 1
        outputs.append(count)
        extra.append(max(0, (count - 1) * s + reach - (n + b + e)))
    return Windows(list(kernel), stride, dilation, amounts, extra, outputs)


def by_planes(x: Tensor) -> Tensor:
    """At least two spatial dimensions."""
    return x.unsqueeze(2) if x.ndim == 3 else x


@operator("MaxPool")
def max_pool(
    op: Op,
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The second result tells where in the whole tensor the elements were."""
    w = windows_of(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    dtype = x.dtype
    if not x.is_floating_point():
        x = x.to(torch.float32 if dtype.itemsize == 1 else torch.float64)
    direct = not any(w.extra) and all(b == e and 2 * b <= k for (b, e), k in zip(w.amounts, w.kernel))
    padding = [b for b, _ in w.amounts] if direct else [0] * len(w.kernel)
    source = x if direct else pad_by(x, w.padded, -math.inf)
    window = (w.kernel, w.strides, padding, w.dilations)
    if len(w.kernel) == 1:
        window = ([1, *w.kernel], [1, *w.strides], [0, *padding], [1, *w.dilations])
    if len(w.kernel) > 3:
        raise Unsupported(f"MaxPool over {len(w.kernel)} dimensions")
    pool = (
        torch.ops.aten.max_pool3d_with_indices
        if len(w.kernel) == 3
        else torch.ops.aten.max_pool2d_with_indices
    )
    found, places = pool(by_planes(source), *window)
    found = found.reshape([*x.shape[:2], *w.outputs]).to(dtype)
    if op.results < 2:
        return found
    places = places.reshape(found.shape)
    extents, inner = list(x.shape[2:]), list(source.shape[2:])
    before = [0] * len(inner) if direct else [b for b, _ in w.amounts]
    flat, weight = torch.zeros_like(places), 1
    rest, coordinates = places, []
    for extent, b in zip(inner[::-1], before[::-1]):
        coordinates.insert(0, torch.remainder(rest, extent) - b)
        rest = torch.div(rest, extent, rounding_mode="floor")
    pairs = list(zip(coordinates, extents))
    for coordinate, extent in pairs if storage_order else pairs[::-1]:
        flat = flat + coordinate * weight
        weight *= extent
    planes = torch.arange(math.prod(x.shape[:2])).reshape([*x.shape[:2]] + [1] * len(extents))
    return found, flat + planes * math.prod(extents)


def sum_windows(x: Tensor, w: Windows) -> Tensor:
    """The sums of windows; beyond the border there is 0. Means times counts are off by a rounding."""
    rank = len(w.kernel)
    source = pad_by(x, w.padded)
    planes = source.reshape([-1, 1, *source.shape[2:]])
    ones = torch.ones([1, 1, *w.kernel], dtype=x.dtype)
    found = torch.convolution(planes, ones, None, w.strides, [0] * rank, w.dilations, False, [0] * rank, 1)
    return found.reshape([*x.shape[:2], *w.outputs])


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    w = windows_of(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    plain = all(b == e and 2 * b <= k for (b, e), k in zip(w.amounts, w.kernel)) and set(w.dilations) == {1}
    if plain and not any(w.extra) and len(w.kernel) == 2:
        padding = [b for b, _ in w.amounts]
        return torch.ops.aten.avg_pool2d(x, w.kernel, w.strides, padding, False, bool(count_include_pad))
    total = sum_windows(x, w)
    for axis, (n, k, s, d, (b, e), count) in enumerate(
        zip(x.shape[2:], w.kernel, w.strides, w.dilations, w.amounts, w.outputs)
    ):
        low, high = (-b, n + e) if count_include_pad else (0, n)
        taps = [[low <= i * s - b + j * d < high for j in range(k)] for i in range(count)]
        shape = [-1] + [1] * (len(w.kernel) - 1 - axis)
        total = total / constant([sum(row) for row in taps], x.dtype).reshape(shape)
    return total


@operator("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    w = windows_of(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return torch.pow(sum_windows(torch.pow(torch.abs(x), p), w), 1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.ndim)), True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.ndim)), True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return torch.pow(torch.pow(torch.abs(x), p).sum(list(range(2, x.ndim)), True), 1 / p)


@operator("MaxUnpool")
def max_unpool(
    x: Tensor,
    places: Tensor,
    shape: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Elements at their places, among zeros. Places count in the tensor that the strides give."""
    rank = len(kernel_shape)
    stride, pad = list(strides or [1] * rank), list(pads or [0] * (2 * rank))
    natural = [
        (n - 1) * s - pad[a] - pad[a + rank] + k
        for a, (n, s, k) in enumerate(zip(x.shape[2:], stride, kernel_shape))
    ]
    extents = [*x.shape[:2], *natural]
    zeros = torch.zeros(math.prod(extents), dtype=x.dtype)
    found = torch.scatter(zeros, 0, places.reshape(-1), x.reshape(-1))
    if shape is None:
        return found.reshape(extents)
    wanted = ints(shape, "the shape of MaxUnpool")
    return pad_by(found.reshape(extents), [(0, n - m) for n, m in zip(wanted[2:], natural)])
