"""Bytes that a kernel moves from the second cache and from memory.

The threads of a block run side by side, and so do as many blocks as the device holds: what they touch
together is loaded once. Of a thread's own loops the outermost is found whose data, of all threads of a
block, fits the share that the block has of the first cache; the loop around it still finds what its previous
iteration used.
"""

from __future__ import annotations

import numpy as np

from ...target.gpu import Gpu
from .occupancy import Occupancy
from .table import BLOCK, GLOBAL, THREAD, GpuTable
from .tile import ThreadTile
from .warp import WarpAccess

LEAST_L1 = 0.1  # of the first cache that shared memory leaves alone


class Traffic:
    """Per store and access: `l2` bytes of a block, `dram` bytes of the whole kernel."""

    def __init__(self, t: GpuTable, gpu: Gpu, o: Occupancy, w: WarpAccess, tile: ThreadTile) -> None:
        present = (t.scope == GLOBAL) & (t.item > 0)
        k = t.kernel
        free = gpu.l1 - (o.shared * o.resident if gpu.unified else 0.0)
        room = np.maximum(LEAST_L1 * gpu.l1, free) / o.resident
        asked = w.sectors * gpu.sector * tile.accessed * tile.trips[:, None] * tile.warps[:, None]
        # Order: blocks, the thread's loops from outside, threads.
        rank = np.where(t.axis == BLOCK, 0, np.where(t.axis == THREAD, 2, 1))
        order = np.argsort(rank, axis=1, kind="stable")
        extent = np.take_along_axis(t.extent, order, 1)
        coefficient = np.take_along_axis(t.coefficient, order[:, None, None], 3)
        sorted_rank = np.take_along_axis(rank, order, 1)
        first = (sorted_rank == 0).sum(axis=1)
        bytes_at = footprint(t, gpu, extent, coefficient) * present[..., None]
        total = bytes_at.sum(axis=1)
        levels = np.arange(total.shape[1])
        last = (sorted_rank < 2).sum(axis=1)
        fits = (total <= room[k][:, None]) & (levels >= first[:, None]) & (levels <= last[:, None])
        found = np.where(fits.any(axis=1), fits.argmax(axis=1), last)
        level = np.maximum(found - 1, first)
        outside = np.cumprod(np.concatenate([np.ones((len(extent), 1)), extent], axis=1), axis=1)
        blocks = np.take_along_axis(outside, first[:, None], 1)[:, 0]
        times = np.take_along_axis(outside, level[:, None], 1)[:, 0] / blocks * t.executed
        missed = np.take_along_axis(bytes_at, level[:, None, None], 2)[..., 0] * times[:, None]
        self.l2 = np.where(fits.any(axis=1)[:, None], np.minimum(missed, asked), asked) * present
        self.asked = asked * present
        whole = bytes_at[..., 0]
        together = np.minimum(t.blocks, o.resident * gpu.multiprocessors)[k]
        covered = np.where(
            t.axis == BLOCK, np.clip(np.ceil(together[:, None] / t.weight), 1, t.extent), t.extent
        )
        wave = footprint(t, gpu, covered, t.coefficient)[..., 0] * present
        waves = (t.blocks[k] / together)[:, None]
        every = np.minimum(np.maximum(wave * waves, whole), np.maximum(self.l2 * t.blocks[k][:, None], 1.0))
        kept = whole.sum(axis=1) <= gpu.l2
        self.dram = np.where(kept[:, None], np.minimum(whole, every), every)


def footprint(t: GpuTable, gpu: Gpu, extent: np.ndarray, coefficient: np.ndarray) -> np.ndarray:
    """Bytes, in whole sectors, that each access touches at every level of loops in an order."""
    moving = coefficient > 0
    extent = extent[:, None, None]
    span = 1 + inward(coefficient * (extent - 1), np.add, 0.0)
    points = inward(np.where(moving, extent, 1.0), np.multiply, 1.0)
    width = np.minimum(np.minimum(span, points), t.shape[..., None])
    dense = np.minimum(span, t.shape[..., None])
    row, others = width[:, :, -1], width[:, :, :-1].prod(axis=2)
    sectors = np.minimum(dense[:, :, -1] * t.item[..., None] / gpu.sector + 1, row)
    return others * sectors * gpu.sector


def inward(values: np.ndarray, operation: np.ufunc, empty: float) -> np.ndarray:
    inside = operation.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([inside, np.full((*values.shape[:-1], 1), empty)], axis=-1)
