"""What a store moves between the caches.

The outermost level whose data fits in a cache is loaded once; the loop around it still finds what its
previous iteration used, so it loads every line once; loops outside of that load all of it again. Rows whose
distance is a multiple of a large power of two share few sets of a cache and fit worse, or not at all: 24 rows
that are 4 KB apart are in one set of a first cache of 48 KB, which has room for 12. Lines along a row are
prefetched.

    for i in 16, k in 64, j in 512: C[i, j] += A[i, k] * B[k, j], float32, 32 KB of 512 lines
    the loop over j touches 32 + 1 + 32 lines, which fit; that over k 32 + 4 + 64 * 32 = 2084, which do not:
    it loads each of those once, and 16 iterations of i load them again: 33,344 lines missed in the first
    cache; in the second, of 512 KB, everything fits
"""

from __future__ import annotations

import numpy as np

from ..target import Target
from .table import Table

# Cycles to bring a line from the second cache, the third and memory: one more of a row, and the first.
LINE = (1.3, 3.2, 8.0)
JUMP = (1.5, 8.0, 50.0)
WAYS = 8  # or more: a cache of 48 KB has 12 of 4 KB, because a way is a power of two
ROOM = 2 / 3  # of a cache: what the next iteration loads comes in before what is used again has gone out


def traffic_of(t: Table, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Per store, the lines that it misses in each cache, and the cycles that takes."""
    present = t.item > 0
    rows = t.rows.prod(axis=2) * present[..., None]
    lines = rows * np.maximum(1, t.run * t.item[..., None] / target.line)
    whole = np.bincount(t.owner, weights=lines[..., 0].sum(axis=1), minlength=t.count)[t.owner]
    outside = np.concatenate([np.ones((len(t.extent), 1)), np.cumprod(t.extent, axis=1)], axis=1)
    missing = np.zeros((len(t.extent), 3))
    cycles = np.zeros(len(t.extent))
    for cache, size in enumerate((target.l1, target.l2, target.l3 // target.cores)):
        room = ROOM * size / target.line
        crowding, deepest = crowding_of(t, size, target.line)
        fits = ((lines * crowding).sum(axis=1) <= room) & deepest
        level = np.maximum(np.where(fits.any(axis=1), fits.argmax(axis=1), t.extent.shape[1]) - 1, 0)
        times = np.take_along_axis(outside, level[:, None], 1)[:, 0] * t.executed * (whole > room)
        missing[:, cache] = np.take_along_axis(lines, level[:, None, None], 2)[..., 0].sum(axis=1) * times
        jumps = np.take_along_axis(rows, level[:, None, None], 2)[..., 0].sum(axis=1) * times
        cycles += missing[:, cache] * LINE[cache] + jumps * JUMP[cache]
    return missing, cycles


def crowding_of(t: Table, size: int, line: int) -> tuple[np.ndarray, np.ndarray]:
    """By how much the rows of a box overfill the sets of a cache that their distances let them use; and where
    no set has more lines of one access than ways."""
    way = 1 << max(line, size // WAYS).bit_length() - 1
    places = way / np.gcd(np.maximum(1, t.pitch).astype(np.int64), way)
    rows, run = t.rows.prod(axis=2), np.maximum(1, t.run * t.item[..., None] / line)
    used = np.minimum(t.rows, places[..., None]).prod(axis=2) * run
    sets = way / line
    deepest = (rows * run / np.minimum(used, sets)).max(axis=1)
    return np.maximum(1, np.minimum(rows, sets) / used), deepest * way <= size
