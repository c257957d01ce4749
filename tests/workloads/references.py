"""What each workload computes, in plain NumPy and independently of tensor expressions.

`REFERENCES[name](config, *inputs)` gives the output, computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Config = dict[str, Any]


def windows(x: np.ndarray, rank: int, k: int, s: int, p: int, dilation: int = 1) -> np.ndarray:
    """(n, out.., rest.., k..): every window of dimensions 1 to `rank`."""
    x = np.pad(x, [(0, 0), *[(p, p)] * rank, *[(0, 0)] * (x.ndim - rank - 1)])
    reach = dilation * (k - 1) + 1
    view = sliding_window_view(x, (reach,) * rank, axis=tuple(range(1, rank + 1)))
    view = view[(slice(None), *[slice(None, None, s)] * rank)]
    return view[(..., *[slice(None, None, dilation)] * rank)]


def convolution(rank: int) -> Callable[..., np.ndarray]:
    def reference(c: Config, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        groups = c.get("groups", 1)
        view = windows(x, rank, c["k"], c["s"], c["p"], c.get("dilation", 1))
        letters = "xyz"[:rank]
        ci, co = x.shape[-1] // groups, w.shape[-1] // groups
        parts = [
            np.einsum(
                f"n{letters.upper()}c{letters},{letters}co->n{letters.upper()}o",
                view[(slice(None), *[slice(None)] * rank, slice(g * ci, (g + 1) * ci))],
                w[..., g * co : (g + 1) * co],
            )
            for g in range(groups)
        ]
        return np.concatenate(parts, axis=-1)

    return reference


def depthwise(c: Config, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("nXYcxy,xyc->nXYc", windows(x, 2, c["k"], c["s"], c["p"]), w)


def transposed(c: Config, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """By scattering: out[hi * s - p + kh] += x[hi] * w[kh]."""
    k, s, p = c["k"], c["s"], c["p"]
    n, h, width, _ = x.shape
    full = np.zeros((n, (h - 1) * s + k, (width - 1) * s + k, w.shape[-1]))
    for kh in range(k):
        for kw in range(k):
            term = x @ w[kh, kw]
            full[:, kh : kh + (h - 1) * s + 1 : s, kw : kw + (width - 1) * s + 1 : s] += term
    return full[:, p : full.shape[1] - p, p : full.shape[2] - p]


def conv_bias_relu(
    c: Config, x: np.ndarray, w: np.ndarray, bias: np.ndarray, scale: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    return np.maximum((convolution(2)(c, x, w) + bias) * scale + offset, 0)


def capsule(c: Config, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    view = windows(x, 2, c["k"], c["s"], c["p"])
    return np.einsum("nXYimcxy,xymjco->nXYijo", view, w)


def softmax(c: Config, x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def dense_gelu(c: Config, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    y = x @ w + bias
    return y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "GMM": lambda c, x, y: np.matmul(x, y),
    "C1D": convolution(1),
    "C2D": convolution(2),
    "C3D": convolution(3),
    "DEP": depthwise,
    "DIL": convolution(2),
    "GRP": convolution(2),
    "T2D": transposed,
    "CBR": conv_bias_relu,
    "TBG": lambda c, q, k: np.einsum("bshd,bthd->bhst", q, k),
    "NRM": lambda c, x: np.sqrt((x * x).sum(axis=(1, 2))),
    "SFM": softmax,
    "CAP": capsule,
    "FDENSE": dense_gelu,
}

# Workloads of + * max select only: small integers give the same bits in any order of summation.
EXACT = ("GMM", "C1D", "C2D", "C3D", "DEP", "DIL", "GRP", "T2D", "CBR", "TBG", "CAP")


def stand_in(name: str, config: Config) -> Config:
    """A small configuration with the same kernel, stride, padding, dilation, groups and parity."""
    small: Config = {}
    dilation, groups = config.get("dilation", 1), config.get("groups", 1)
    for key, value in config.items():
        if key == "shape":
            value = tuple([min(n, 5 + n % 3) for n in value])
        elif key in ("l", "d", "h", "w") and name != "TBG":
            reach = dilation * (config["k"] - 1) + 1
            value = min(value, max(reach - 2 * config["p"], 5) + 2 + value % 2)
        elif key in ("ci", "co", "c"):
            value = groups * min(value // groups, 2 + value % 2)
        elif key in ("b", "n", "m", "k", "s", "h", "d") and name in ("GMM", "TBG", "NRM", "FDENSE"):
            value = min(value, 6 + value % 4)
        small[key] = value
    return small
