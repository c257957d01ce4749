"""What manuals say that instructions compute, written down from their pseudo-code, for arrays of registers.

Numbers are exact: integers of 64 bits that wrap to 32; products of bfloat16 are exact in float64, and one of
them added to a float32 is rounded to float32 as if there were no float64 between: a product has 16 bits, so
the exact sum fits 53 bits whenever it is near the middle of two float32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LEAST = np.float32(2.0**-126)  # smaller ones are subnormal


def flush(x: np.ndarray) -> np.ndarray:
    """Subnormal float32 as zeros of their sign ("DAZ" for inputs, "FTZ" for results)."""
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x).astype(np.float32)


def keep(x: np.ndarray) -> np.ndarray:
    return x


Rounding = Callable[[np.ndarray], np.ndarray]


def fused(c: np.ndarray, a: np.ndarray, b: np.ndarray, small: Rounding) -> np.ndarray:
    """c + a * b, rounded once to the nearest float32, ties to even."""
    product = small(a).astype(np.float64) * small(b).astype(np.float64)
    return small((small(c).astype(np.float64) + product).astype(np.float32))


def wrap(total: np.ndarray) -> np.ndarray:
    return total.astype(np.int64).astype(np.int32)


def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """vpdpbusd, vpdpwssd, vpdpb*d, vpmaddwd and an addition, sdot, udot, usdot: all wrap."""
    return wrap(c.astype(np.int64) + (a.astype(np.int64) * b.astype(np.int64)).sum(axis=-1))


def dot_saturated(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """vpmaddubsw (pairs of bytes to words, saturated), vpmaddwd by ones, an addition that wraps."""
    pairs = (a.astype(np.int64) * b.astype(np.int64)).reshape(*a.shape[:-1], 2, 2).sum(axis=-1)
    return wrap(c.astype(np.int64) + np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=-1))


def matrix(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """smmla, ummla, usmmla: c[i, j] += sum of a[i, k] * b[j, k]."""
    return wrap(c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64).T)


def tiles(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """tdpb*d: b has rows k // 4 with bytes 4 * n + k % 4."""
    total = c.astype(np.int64)
    for k in range(a.shape[1]):
        total = total + a[:, k, None].astype(np.int64) * b[k // 4, :, k % 4].astype(np.int64)
    return wrap(total)


def dot_bf16(a: np.ndarray, b: np.ndarray, c: np.ndarray, small: Rounding = flush) -> np.ndarray:
    """vdpbf16ps: the odd pair first, then the even one; each fused; denormals are zeros, before and after."""
    wide = a.astype(np.float32), b.astype(np.float32)
    for n in (1, 0):
        c = fused(c, wide[0][:, n], wide[1][:, n], small)
    return c


def tiles_bf16(a: np.ndarray, b: np.ndarray, c: np.ndarray, small: Rounding = flush) -> np.ndarray:
    """tdpbf16ps: sums of the even and of the odd ones, then both together, then c."""
    left, right = a.astype(np.float32), b.astype(np.float32)
    parts = [np.zeros_like(c), np.zeros_like(c)]
    for k in range(a.shape[1]):
        row = np.broadcast_to(right[k // 2, :, k % 2], c.shape)
        parts[k % 2] = fused(parts[k % 2], np.broadcast_to(left[:, k, None], c.shape), row, small)
    return small(small(c) + small(parts[0] + parts[1]))


def add_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b rounded to float32 towards zero, the last bit set if that lost something; denormals flushed. An
    overflow is infinite."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)  # of the sum, when rounded to float64
    near = total.astype(np.float32)
    wide = near.astype(np.float64)
    beyond = (np.abs(wide) > np.abs(total)) | ((wide == total) & (lost * total < 0))
    cut = np.where(np.isfinite(near) & beyond, np.nextafter(near, np.float32(0)), near)
    inexact = np.isfinite(cut) & ((wide != total) | (lost != 0))
    return flush((cut.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32))


def bfdot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """BFDOT without FEAT_EBF16: products, their sum and the addition are rounded to odd one by one."""
    left, right = flush(a.astype(np.float32)).astype(float), flush(b.astype(np.float32)).astype(float)
    exact = left * right
    products = add_to_odd(exact, np.copysign(0.0, exact))
    return add_to_odd(flush(c), add_to_odd(products[..., 0], products[..., 1]))


def bfmmla(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """BFMMLA: two steps of BFDOT for each element of 2 x 2."""
    for k in (0, 2):
        left = np.broadcast_to(a[:, None, k : k + 2], (2, 2, 2))
        right = np.broadcast_to(b[None, :, k : k + 2], (2, 2, 2))
        c = bfdot(left, right, c)
    return c


def oracle_of(name: str) -> Callable[..., np.ndarray]:
    """The pseudo-code of a registered instruction."""
    for part, oracle in (
        ("tdpbf16ps", tiles_bf16), ("tdpb", tiles), ("bfmmla", bfmmla), ("mmla", matrix), ("bfdot", bfdot),
        ("vdpbf16ps", dot_bf16), ("vpmaddubsw", dot_saturated),
    ):  # fmt: skip
        if part in name:
            return oracle
    return dot
