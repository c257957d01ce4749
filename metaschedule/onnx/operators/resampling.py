"""Resize: each axis by itself, as a few elements with weights that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ..errors import Unsupported
from ..registry import Tensor, operator
from ..tensors import axes_of, constant, ints, read


@operator("Resize")
def resize(
    x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None, *,
    antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    chosen = axes_of(axes, x.ndim) if axes else list(range(x.ndim))
    if antialias or coordinate_transformation_mode == "tf_crop_and_resize":
        raise Unsupported("Resize with antialiasing, or of regions")
    if keep_aspect_ratio_policy != "stretch":
        raise Unsupported(f"Resize with keep_aspect_ratio_policy {keep_aspect_ratio_policy!r}")
    extents = [x.shape[a] for a in chosen]
    if sizes is not None and sizes.numel():
        wanted = ints(sizes, "the sizes of Resize")
        factors = [w / n for w, n in zip(wanted, extents, strict=True)]
    elif scales is not None:
        factors = [float(f) for f in read(scales, "the scales of Resize")]
        wanted = [math.floor(n * f) for n, f in zip(extents, factors, strict=True)]
    else:
        raise Unsupported("Resize without sizes and scales")
    for axis, extent, size, factor in zip(chosen, extents, wanted, factors):
        if size == extent and factor == 1:
            continue
        places = find_places(coordinate_transformation_mode, extent, size, factor)
        taps, weights = weigh(mode, places, nearest_mode, cubic_coeff_a)
        outside = (taps < 0) | (taps >= extent)
        if exclude_outside and mode == "cubic":
            weights = np.where(outside, 0.0, weights)
            weights = weights / weights.sum(1, keepdims=True)
        x = combine(x, axis, np.clip(taps, 0, extent - 1), weights)
    return x


def find_places(mode: str, extent: int, size: int, scale: float) -> np.ndarray:
    """Where in the input the elements of the result are."""
    at = np.arange(size, dtype=np.float64)
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * (extent - 1) / (scale * extent - 1) if size > 1 else np.zeros(size)
    if mode == "pytorch_half_pixel" and size == 1:
        return np.zeros(size)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        offset = extent / 2 * (1 - size / (scale * extent))
        return offset + (at + 0.5) / scale - 0.5
    raise Unsupported(f"Resize with {mode!r} coordinates")


def weigh(mode: str, places: np.ndarray, nearest: str, a: float) -> tuple[np.ndarray, np.ndarray]:
    """Which elements make one of the result, and with which weights: a row for each."""
    low = np.floor(places)
    if mode == "nearest":
        rounding = {
            "round_prefer_floor": lambda p: np.ceil(p - 0.5),
            "round_prefer_ceil": lambda p: np.floor(p + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        return rounding[nearest](places).astype(np.int64)[:, None], np.ones((len(places), 1))
    rest = (places - low)[:, None]
    if mode == "linear":
        return (low[:, None] + [0, 1]).astype(np.int64), np.concatenate([1 - rest, rest], 1)
    if mode != "cubic":
        raise Unsupported(f"Resize with mode {mode!r}")
    away = np.abs(rest - np.array([-1, 0, 1, 2]))
    near = ((a + 2) * away - (a + 3)) * away**2 + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    return (low[:, None] + [-1, 0, 1, 2]).astype(np.int64), np.where(away <= 1, near, far)


def combine(x: Tensor, axis: int, taps: np.ndarray, weights: np.ndarray) -> Tensor:
    if taps.shape[1] == 1:
        return x.index_select(axis, constant(taps[:, 0], torch.int64))
    wide = x if x.is_floating_point() else x.to(torch.float32)
    shape = [-1] + [1] * (x.ndim - 1 - axis)
    terms = [
        wide.index_select(axis, constant(np.ascontiguousarray(taps[:, n]), torch.int64))
        * constant(np.ascontiguousarray(weights[:, n]), wide.dtype).reshape(shape)
        for n in range(taps.shape[1])
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total.to(x.dtype)
