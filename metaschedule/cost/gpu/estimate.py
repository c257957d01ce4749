"""Seconds of kernels on a GPU: what each of its parts takes, and which of them limits.

A multiprocessor holds some blocks at once (`occupancy.py`). Its parts (arithmetic, instructions, shared
memory, the first cache, its share of the second) each need so many clocks for a block, memory of the device
so many for all. A single warp needs so many from its first instruction to its last (`latency`), which others
hide: what the blocks that are held together take is the longest of these, rounded off where two are close.
Blocks come in waves, so that the last multiprocessor to finish counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import Program
from ...schedule import Schedule
from ...target.gpu import Gpu
from .occupancy import Occupancy
from .table import GLOBAL, SHARED, GpuTable
from .tile import ThreadTile
from .traffic import Traffic
from .warp import WarpAccess

BOUNDS = ("arithmetic", "instructions", "shared memory", "L1", "L2", "DRAM", "latency")
ROUNDING = 3.0  # exponent of the norm that joins them
RETURNED = 0.5  # of the bytes a clock that the first cache has come to registers
IN_FLIGHT = 8.0  # loads from global memory of a warp
BARRIER = 30.0  # clocks
SPILL = 2.0  # accesses to the first cache for every register too many, each time the tile runs
SHORTEST = 1e-9  # seconds


class GpuEstimate:
    """`seconds` per program, `kernel_seconds` per kernel, `clocks` per part (BOUNDS) and kernel, `bound` the
    number of the largest; `store_clocks` the parts per store."""

    def __init__(self, t: GpuTable, gpu: Gpu) -> None:
        self.table, self.gpu = t, gpu
        self.warp = WarpAccess(t, gpu)
        self.tile = ThreadTile(t, self.warp, gpu)
        self.occupancy = Occupancy(t, gpu, self.tile.loads.sum(axis=1))
        self.traffic = Traffic(t, gpu, self.occupancy, self.warp, self.tile)
        blocks = np.ceil(t.blocks / gpu.multiprocessors)
        of_store = np.stack([*self.throughput(t), self.traffic.dram.sum(axis=1), self.latency(t)])
        of_kernel = np.stack([self.per_kernel(x) for x in of_store])
        if gpu.unified:  # shared memory and the first cache are one
            both = of_kernel[2] + of_kernel[3]
            shared = of_kernel[2] >= of_kernel[3]
            of_kernel[2], of_kernel[3] = np.where(shared, both, 0.0), np.where(shared, 0.0, both)
        dram = of_kernel[5] / gpu.dram_bandwidth * gpu.clock
        latency = self.overlap(of_kernel[6]) * np.ceil(blocks / self.occupancy.resident)
        self.store_clocks = of_store
        self.clocks = np.concatenate([of_kernel[:5] * blocks, dram[None], latency[None]])
        self.bound = self.clocks.argmax(axis=0) if self.clocks.size else np.zeros(0, dtype=int)
        clocks = (self.clocks**ROUNDING).sum(axis=0) ** (1 / ROUNDING)
        self.kernel_seconds = clocks / gpu.clock + gpu.launch_seconds
        self.seconds = np.bincount(t.owner_of_kernel, weights=self.kernel_seconds, minlength=t.count)

    def per_kernel(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.table.kernel, weights=values, minlength=len(self.table.owner_of_kernel))

    def throughput(self, t: GpuTable) -> list[np.ndarray]:
        """Clocks that a block takes of each part of a multiprocessor, by store."""
        gpu, tile, w = self.gpu, self.tile, self.warp
        warps = tile.warps * tile.trips
        rate = np.array([gpu.rate(row.nest.accesses[0].buffer.dtype) for row in t.rows_of_stores])
        plain = tile.arithmetic / np.maximum(rate, 1e-3) + tile.special / gpu.rate("special")
        arithmetic = warps * gpu.warp * (plain + tile.integer / gpu.rate("int32"))
        issue = warps * tile.instructions / gpu.issues
        written = t.updates[:, None] & (np.arange(t.item.shape[1]) == 0)
        accesses = tile.accessed * np.where(written, 2.0, 1.0)
        rounds = np.maximum(w.rounds, gpu.warp / gpu.load_units)
        shared = warps * np.where(t.scope == SHARED, accesses * rounds, 0.0).sum(axis=1)
        through = np.maximum(np.maximum(w.lookups, w.lines), w.sectors * gpu.sector / gpu.l1_bytes)
        through = np.maximum(through, w.bytes * gpu.warp / (gpu.l1_bytes * RETURNED))
        l1 = warps * np.where(t.scope == GLOBAL, accesses * through, 0.0).sum(axis=1)
        branches = np.where(t.guarded, tile.accessed, 0.0).sum(axis=1) + np.where(
            tile.sunk, tile.memory / 2, 0.0
        )
        l1 += warps * branches * gpu.branch_clocks
        spilled = SPILL * self.occupancy.spilled[t.kernel] * np.where(t.updates, warps, 0.0)
        l1 += spilled * gpu.warp * 4 / gpu.l1_bytes
        l2 = self.traffic.l2.sum(axis=1) / (gpu.l2_bandwidth / gpu.clock / gpu.multiprocessors)
        return [arithmetic, issue, shared, l1, l2]

    def overlap(self, latency: np.ndarray) -> np.ndarray:
        """Clocks of a warp, per kernel, where it does not wait for chunks that are fetched ahead until it is
        through with those before: `n` chunks of a warp that computes for `c` clocks and waits for `w`, with
        `a` of them under way, take n * max(c, w / a)."""
        if not self.gpu.asynchronous:
            return latency
        t = self.table
        waits = self.per_kernel(np.where(t.ahead > 0, self.waits, 0.0))
        left = self.per_kernel(np.where(t.ahead > 0, self.waits / np.maximum(1.0, t.ahead), 0.0))
        return np.maximum(latency - waits, left)

    def latency(self, t: GpuTable) -> np.ndarray:
        """Clocks that one warp takes for a store, were it alone. What of them it waits for memory is in
        `waits`."""
        gpu, tile, traffic = self.gpu, self.tile, self.traffic
        interval = max(1.0, gpu.warp * gpu.issues / gpu.rate("float32"))
        issue = tile.arithmetic * interval + tile.memory + tile.overhead
        chain = tile.rounds * gpu.latency_arithmetic
        of_global = np.where(t.scope == GLOBAL, tile.loads, 0.0).sum(axis=1)
        of_shared = np.where(t.scope == SHARED, tile.loads, 0.0).sum(axis=1)
        missed = (traffic.l2 / np.maximum(traffic.asked, 1e-9)).clip(0, 1)
        deep = traffic.dram / np.maximum(traffic.l2 * t.blocks[t.kernel][:, None], 1e-9)
        far = gpu.latency_l2 + deep.clip(0, 1) * (gpu.latency_dram - gpu.latency_l2)
        every = gpu.latency_shared + missed * far
        longest = np.where((t.scope == GLOBAL) & (tile.loads > 0), every, 0.0).max(axis=1, initial=0.0)
        alone = t.guarded.any(axis=1) & (gpu.branch_clocks > 0)
        wait = of_global * longest / np.where(alone, 1.0, IN_FLIGHT)
        wait = np.maximum(wait, of_shared * gpu.latency_shared / gpu.shared_ahead)
        first = np.where(of_global > 0, longest, 0.0) + np.where(of_shared > 0, gpu.latency_shared, 0.0)
        barrier = np.where(t.scope[:, 0] == SHARED, 2 * BARRIER, 0.0)
        busy = np.maximum(issue, chain)
        self.waits = tile.trips * (np.maximum(wait - busy, 0.0) + first / tile.together)
        return tile.trips * (np.maximum(busy, wait) + first / tile.together + barrier)

    def describe(self, kernel: int) -> dict[str, float]:
        """Milliseconds of each part, of one kernel."""
        return {
            name: float(1e3 * x[kernel] / self.gpu.clock) for name, x in zip(BOUNDS, self.clocks, strict=True)
        }


def predict_gpu(programs: Sequence[Program | Schedule], gpu: Gpu) -> GpuEstimate:
    return GpuEstimate(GpuTable(programs), gpu)
