"""Calls of pooling and resampling of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.torch.agreement import Sample, call, ints, t

aten = torch.ops.aten
f16, f64 = torch.float16, torch.float64


def channels_last(name: str, overload: Callable[..., Any], x: torch.Tensor, *rest: Any) -> Sample:
    """An operator of ours, checked by torch's on a permuted input; of several results the first."""
    last, back = [0, *range(2, x.ndim), 1], [0, x.ndim - 1, *range(1, x.ndim - 1)]

    def reference(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = overload(x.permute(back), *rest)
        return (found if isinstance(found, torch.Tensor) else found[0]).permute(last)

    return Sample(f"{name}_channels_last", (x.permute(last).contiguous(), *rest), reference=reference)


# Spatial extents; kernel, stride, padding, dilation; whether to round up
MAX_POOLS: list[tuple[Any, ...]] = [
    ((7, 6), [3, 3], [2, 2], [1, 1], [1, 1], False),
    ((7, 6), [3, 2], [2, 3], [1, 0], [1, 2], True),
    ((5, 5), [2], [], [0], [1], True),
    ((7,), [3], [2], [1], [2], False),
    ((8,), [3], [3], [0], [1], True),
    ((3, 4, 5), [2, 2, 2], [1, 2, 2], [0, 1, 1], [1, 1, 1], False),
    ((3, 4, 5), [2], [2], [1], [1], True),
]


def pooling() -> Iterator[Sample]:
    for space, kernel, stride, padding, dilation, ceil in MAX_POOLS:
        n = len(space)
        rest = (kernel, stride, padding, dilation, ceil)
        plain = getattr(aten, f"max_pool{n}d").default
        yield call(plain, t(2, 3, *space), *rest)
        yield channels_last(f"max_pool{n}d", plain, t(2, 3, *space), *rest)
        if n > 1:
            yield call(getattr(aten, f"max_pool{n}d_with_indices").default, t(2, 3, *space), *rest)
            yield call(getattr(aten, f"max_pool{n}d_with_indices").default, t(3, *space, dtype=f64), *rest)
        average = getattr(aten, f"avg_pool{n}d").default
        for counted in (True, False):
            rest = (kernel, stride, padding, ceil, counted)
            yield call(average, t(2, 3, *space), *rest)
            more = (None,) if n > 1 else ()
            yield channels_last(f"avg_pool{n}d", average, t(2, 3, *space), *rest, *more)
        if n > 1:
            yield call(average, t(2, *space, dtype=f64), kernel, stride, padding, ceil, True, 5)
    yield call(aten.max_pool2d_with_indices.default, t(1, 2, 4, 4), [2, 2])
    nothing = torch.full((1, 2, 4, 4), float("-inf"))
    nothing[0, 1, :2] = float("nan")
    for x in (nothing, torch.full((1, 1, 4, 4), -(2**63)), torch.ones(1, 1, 4, 4)):  # ties, also with padding
        yield call(aten.max_pool2d_with_indices.default, x, [2, 2], [2, 2], [1, 1])
        yield call(aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1], [1, 1], True)
    cube = torch.full((1, 1, 4, 4, 4), float("-inf"))
    yield call(aten.max_pool3d_with_indices.default, cube, [2, 2, 2], [2, 2, 2], [1, 1, 1])
    for space, sizes in (
        ((7,), [3]),
        ((6, 4), [3, 2]),
        ((7, 5), [1, 1]),
        ((5, 7), [3, 4]),
        ((3, 4, 5), [2, 2, 3]),
    ):
        n = len(space)
        average = getattr(aten, f"adaptive_avg_pool{n}d").default
        yield call(average, t(2, 3, *space), sizes)
        yield call(average, t(3, *space), sizes)
        yield channels_last(f"adaptive_avg_pool{n}d", average, t(2, 3, *space), sizes)
        if n > 1:
            yield call(getattr(aten, f"_adaptive_avg_pool{n}d").default, t(2, 3, *space, dtype=f64), sizes)
        if n > 1:
            yield call(getattr(aten, f"adaptive_max_pool{n}d").default, t(2, 3, *space), sizes)
        yield Sample(getattr(aten, f"adaptive_max_pool{n}d").default, (t(2, 3, *space), sizes), reads=[0])


def resampling() -> Iterator[Sample]:
    cases = [
        ((5,), [10]),
        ((5,), [7]),
        ((3, 4), [6, 8]),
        ((5, 4), [3, 9]),
        ((2, 3, 4), [4, 3, 6]),
        ((3, 1), [1, 4]),
    ]
    for space, sizes in cases:
        n = len(space)
        none = [None] * n
        for name in (f"upsample_nearest{n}d", f"_upsample_nearest_exact{n}d"):
            yield call(getattr(aten, name).default, t(2, 3, *space), sizes, *none)
            yield call(getattr(aten, name).vec, t(1, 2, *space), sizes, None)
            yield call(getattr(aten, name).vec, t(1, 2, *space), None, [1.7] * n)
        name = f"upsample_nearest{n}d"
        yield channels_last(name, getattr(aten, name).default, t(1, 2, *space), sizes, *none)
        name = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")[n - 1]
        for corners in (False, True):
            yield call(getattr(aten, name).default, t(2, 3, *space), sizes, corners, *none)
            yield call(getattr(aten, name).vec, t(1, 2, *space), None, corners, [1.7] * n)
            yield call(getattr(aten, name).vec, t(1, 2, *space), sizes, corners, None)
            yield channels_last(name, getattr(aten, name).default, t(1, 2, *space), sizes, corners, *none)
    for packet in (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
        for sizes, corners in (([3, 4], False), ([5, 2], True), ([11, 13], False), ([1, 1], True)):
            yield call(packet.default, t(2, 3, 7, 9), sizes, corners)
            yield call(packet.vec, t(1, 2, 7, 9), sizes, corners, None)
        yield call(packet.vec, t(1, 2, 7, 9, dtype=f64), None, False, [0.4, 1.3])
    yield call(aten.upsample_nearest2d.vec, t(1, 2, 3, 4, dtype=f16), None, [2.0, 2.0])
    yield call(aten.upsample_nearest2d.default, ints(1, 1, 2, 2, low=0, dtype=torch.uint8), [4, 6])


def samples() -> Iterator[Sample]:
    yield from pooling()
    yield from resampling()
