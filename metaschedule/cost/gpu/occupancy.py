"""Registers of a thread, shared memory of a block, and how many blocks a multiprocessor then holds."""

from __future__ import annotations

import numpy as np

from ...target.gpu import Gpu
from .table import GLOBAL, LOCAL, SHARED, GpuTable

BASE = 20  # registers that a kernel takes before anything else: counters, bases, what is on its way
POINTER = 2  # more for every buffer in global memory


class Occupancy:
    """Per kernel: `registers` of a thread, those beyond the limit `spilled`, `shared` bytes of a block,
    `warps` of a block, `resident` blocks of a multiprocessor."""

    def __init__(self, t: GpuTable, gpu: Gpu, loaded: np.ndarray) -> None:
        count = len(t.owner_of_kernel)
        own = np.where(t.own, t.extent, 1.0)
        private = np.where(np.arange(t.extent.shape[1]) < t.private[..., None], 1.0, own[:, None])
        held = per_access_box(t, private) * np.maximum(1.0, t.item / 4)
        boxes: dict[tuple[int, object], tuple[float, float]] = {}
        pointers = np.zeros(count)
        seen: set[tuple[int, object]] = set()
        for s, row in enumerate(t.rows_of_stores):
            k = int(t.kernel[s])
            for a, access in enumerate(row.nest.accesses):
                key = (k, access.buffer)
                if t.scope[s, a] == LOCAL:
                    before = boxes.get(key, (0.0, 0.0))
                    boxes[key] = (max(before[0], float(held[s, a])), 0.0)
                elif t.scope[s, a] == SHARED:
                    size = float(t.local_size[s, a]) * (1 + float(t.ahead[s]) if a == 0 else 1.0)
                    boxes[key] = (0.0, max(boxes.get(key, (0.0, 0.0))[1], size))
                elif t.scope[s, a] == GLOBAL and key not in seen:
                    seen.add(key)
                    pointers[k] += 1
        self.values, self.shared = np.zeros(count), np.zeros(count)
        for (k, _), (registers, size) in boxes.items():
            self.values[k] += registers
            self.shared[k] += size
        batch = np.zeros(count)
        np.maximum.at(batch, t.kernel, np.minimum(loaded, gpu.load_ahead))
        wanted = BASE + POINTER * pointers + self.values + batch
        self.warps = np.ceil(t.threads / gpu.warp)
        most = np.minimum(gpu.max_registers, gpu.registers // np.maximum(1, self.warps * gpu.warp))
        self.registers = np.minimum(wanted, most)
        self.spilled = np.maximum(0.0, wanted - most)
        limits = hold_blocks(gpu, self.warps, self.registers, self.shared)
        self.limit = limits.argmin(axis=0) if count else np.zeros(0, dtype=int)  # which of LIMITS
        self.resident = np.maximum(1.0, limits.min(axis=0))
        self.occupancy = self.resident * self.warps * gpu.warp / gpu.resident_threads


def hold_blocks(gpu: Gpu, warps: np.ndarray, registers: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """How many blocks a multiprocessor holds by each of LIMITS.

    >>> from metaschedule.target import resolve
    >>> gpu = resolve("cuda:sm_80").gpu
    >>> hold_blocks(gpu, np.array([8.0]), np.array([64.0]), np.array([32768.0]))[:, 0].tolist()
    [4.0, 4.0, 8.0, 32.0]
    """
    per_warp = np.ceil(registers * gpu.warp / gpu.register_unit) * gpu.register_unit
    by_registers = np.floor(gpu.registers / np.maximum(1.0, per_warp) / warps)
    of_block = np.ceil((shared + gpu.reserved_shared) / gpu.shared_unit) * gpu.shared_unit
    by_shared = np.floor(gpu.shared / np.maximum(1.0, of_block))
    by_threads = np.floor(gpu.resident_threads / (warps * gpu.warp))
    return np.stack([by_registers, by_shared, by_threads, np.full(len(warps), float(gpu.resident_blocks))])


LIMITS = ("registers", "shared memory", "threads", "blocks")


def per_access_box(t: GpuTable, extent: np.ndarray) -> np.ndarray:
    """`GpuTable.box` with extents of its own for each access."""
    extent = extent[:, :, None]
    points = np.where(t.moving, extent, 1.0).prod(axis=3)
    step = np.where(t.moving & (extent > 1), t.coefficient, np.inf).min(axis=3)
    reach = 1 + (t.coefficient * (extent - 1)).sum(axis=3) / np.where(np.isfinite(step), step, 1.0)
    return np.minimum(np.minimum(points, reach), t.shape).prod(axis=2)
