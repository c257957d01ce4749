"""How the threads of a warp access memory together: sectors and lines of global memory, conflicts of banks.

The addresses of the lanes of the first warps of a block are worked out one by one. A thread number is cut
into the digits that loops count, as it is in the program.

    float32 A[i, t] of 32 threads t: 128 bytes, 4 sectors of 1 line
    float32 A[t, i], rows of 4 KB: 32 sectors of 32 lines
    float32 S[t, i] in shared memory, rows of 32 elements: 32 words of one bank, 32 rounds; of 33 elements: 1
"""

from __future__ import annotations

import numpy as np

from ...target.gpu import Gpu
from .table import GLOBAL, SHARED, THREAD, GpuTable

WARPS = 4  # of a block that are looked at
CHUNK = 1 << 12  # accesses at once


class WarpAccess:
    """Per store and access, of one instruction of one warp, on average: `sectors` and `lines` of global
    memory, `rounds` through the banks of shared memory; `bytes` that a thread takes at once, and `pieces`,
    the instructions for one vector of the program."""

    def __init__(self, t: GpuTable, gpu: Gpu) -> None:
        stores, accesses = t.item.shape
        lanes = np.where(t.vector, t.extent, 1.0).prod(axis=1)[:, None]
        step = np.where(t.vector[:, None], t.stride, 0.0).sum(axis=2)
        wide = np.where(step == 1, lanes * t.item, t.item)
        self.bytes = np.minimum(np.maximum(wide, 1), gpu.vector_bytes)
        self.pieces = np.where(step == 0, 1.0, np.where(step == 1, np.ceil(wide / gpu.vector_bytes), lanes))
        self.sectors = np.ones((stores, accesses))
        self.lines = np.ones((stores, accesses))
        self.rounds = np.ones((stores, accesses))
        self.lookups = np.ones((stores, accesses))
        far = np.abs(t.stride) * t.item[..., None] * (t.extent > 1)[:, None]
        far = np.where((t.axis == THREAD)[:, None] & (far < gpu.line), 0.0, far)
        grain = np.gcd.reduce(far.astype(np.int64), axis=2)  # every address is a multiple of so many bytes
        for scope, count in ((GLOBAL, self.count_lines), (SHARED, self.count_rounds)):
            where = np.argwhere((t.scope == scope) & (t.item > 0))
            for begin in range(0, len(where), CHUNK):
                s, a = where[begin : begin + CHUNK].T
                address, active = lane_addresses(t, s, a, gpu.warp)
                count(s, a, address, active, gpu, grain[s, a])

    def count_lines(
        self,
        s: np.ndarray,
        a: np.ndarray,
        address: np.ndarray,
        active: np.ndarray,
        gpu: Gpu,
        grain: np.ndarray,
    ) -> None:
        """`n` bytes that begin at any multiple of `g` bytes are in (n - g) / unit + 1 units on average."""
        size = self.bytes[s, a][:, None]
        used = active.any(axis=2).sum(axis=1)
        elements, pieces = count_distinct(np.where(active, np.floor(address / size[..., None]), np.nan))
        for unit, into in ((gpu.sector, self.sectors), (gpu.line, self.lines)):
            number, runs = count_distinct(np.where(active, np.floor(address / unit), np.nan))
            number = number * np.maximum(1.0, np.ceil(size / unit))
            g = np.where(grain == 0, unit, np.minimum(grain, unit))[:, None]
            shifted = np.minimum((elements * size - pieces * g) / unit + pieces, number + runs)
            into[s, a] = np.where(g < unit, np.maximum(number, shifted), number).sum(axis=1) / used
        self.count_phases(s, a, address, active, gpu)

    def count_rounds(
        self, s: np.ndarray, a: np.ndarray, address: np.ndarray, active: np.ndarray, gpu: Gpu, _: np.ndarray
    ) -> None:
        """A bank gives one word a round, to any number of lanes. Of wide words only as many lanes are served
        together as the banks have words for; twice as many where neighbours ask for the same."""
        for size, at in by_size(self.bytes[s, a]):
            unit = max(size, float(gpu.bank_bytes))
            banks = max(1, int(gpu.shared_bytes // unit))
            words = in_phases(np.where(active[at], np.floor(address[at] / unit), np.nan), banks)
            rounds = most_in_a_bank(words, banks)
            if banks < gpu.warp:
                pairs = words.reshape(*words.shape[:3], -1, 2)
                same = ((pairs[..., 0] == pairs[..., 1]) | np.isnan(pairs[..., 1])).all(axis=(2, 3))
                rounds = np.where(same[..., None], rounds / 2, rounds)
            used = active[at].any(axis=2).sum(axis=1)
            self.rounds[s[at], a[at]] = rounds.sum(axis=(1, 2)) / used

    def count_phases(
        self, s: np.ndarray, a: np.ndarray, address: np.ndarray, active: np.ndarray, gpu: Gpu
    ) -> None:
        """The first cache looks up the lines of as many lanes at once as take one line together."""
        for size, at in by_size(self.bytes[s, a]):
            lines = np.where(active[at], np.floor(address[at] / gpu.line), np.nan)
            number, _ = count_distinct(in_phases(lines, max(1, int(gpu.line // size))))
            used = active[at].any(axis=2).sum(axis=1)
            self.lookups[s[at], a[at]] = number.sum(axis=(1, 2)) / used


def in_phases(lanes: np.ndarray, together: int) -> np.ndarray:
    """The lanes of warps cut into phases of some lanes, filled up with NaN."""
    together = min(together, lanes.shape[-1])
    phases = -(-lanes.shape[-1] // together)
    missing = phases * together - lanes.shape[-1]
    filled = np.pad(lanes, ((0, 0), (0, 0), (0, missing)), constant_values=np.nan)
    return filled.reshape(*lanes.shape[:2], phases, together)


def by_size(sizes: np.ndarray) -> list[tuple[float, np.ndarray]]:
    return [(float(size), np.flatnonzero(sizes == size)) for size in np.unique(sizes)]


def lane_addresses(t: GpuTable, s: np.ndarray, a: np.ndarray, warp: int) -> tuple[np.ndarray, np.ndarray]:
    """The addresses in bytes of the lanes of some warps (access, warp, lane), and which of them there are."""
    linear = np.arange(WARPS * warp, dtype=float)
    address = np.zeros((len(s), WARPS * warp))
    size = np.ones(len(s))
    for loop in range(t.extent.shape[1]):
        extent, stride = t.extent[s, loop], t.stride[s, a, loop]
        bound = (t.axis[s, loop] == THREAD) & (extent > 1)
        if not bound.any():
            continue
        digit = np.floor(linear / t.weight[s, loop][:, None]) % extent[:, None]
        address += np.where(bound[:, None], digit * stride[:, None], 0.0)
        size = np.where(bound, size * extent, size)
    active = linear < np.maximum(size, 1)[:, None]
    shape = (len(s), WARPS, warp)
    return (address * t.item[s, a][:, None]).reshape(shape), active.reshape(shape)


def count_distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many different numbers there are along the last axis, NaN being none, and in how many runs."""
    ordered = np.sort(values, axis=-1)
    gaps = np.diff(ordered, axis=-1)
    there = ~np.isnan(ordered[..., 0])
    return there + (gaps > 0).sum(axis=-1), there + (gaps > 1).sum(axis=-1)


def most_in_a_bank(words: np.ndarray, banks: int) -> np.ndarray:
    """The most different words of one bank along the last axis."""
    ordered = np.sort(words, axis=-1)
    first = np.ones(ordered.shape, dtype=bool)
    first[..., 1:] = np.diff(ordered, axis=-1) > 0
    first &= ~np.isnan(ordered)
    bank = np.where(first, np.nan_to_num(ordered) % banks, -1.0)
    bank = np.sort(bank, axis=-1)
    same = np.ones(bank.shape)
    for n in range(1, bank.shape[-1]):
        same[..., n] = np.where(
            (bank[..., n] == bank[..., n - 1]) & (bank[..., n] >= 0), same[..., n - 1] + 1, 1.0
        )
    return np.where(bank >= 0, same, 0.0).max(axis=-1)
