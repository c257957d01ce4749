"""Features of programs for GPUs, for the learned model: per store what its threads do and how they are
bound, pooled as on the CPU: those of the heaviest store and the average, weighted by the estimate of each."""

from __future__ import annotations

import numpy as np

from ..pooling import INNERMOST, log, pool_stores
from ..table import SERIAL, UNROLLED, VECTORIZED
from .estimate import BOUNDS, GpuEstimate
from .table import BLOCK, CONSTANT, GLOBAL, LOCAL, SHARED, THREAD, VIRTUAL

ACCESSES = 4  # the written one and the reads that touch most


def gpu_features(estimate: GpuEstimate) -> np.ndarray:
    """One row per program."""
    t = estimate.table
    share = estimate.store_clocks[:4].sum(axis=0) + estimate.store_clocks[6]
    total = np.maximum(estimate.per_kernel(share), 1e-9)
    seconds = share / total[t.kernel] * estimate.kernel_seconds[t.kernel]
    return pool_stores(store_features(estimate), seconds, estimate.seconds, t.owner, t.count)


def store_features(estimate: GpuEstimate) -> np.ndarray:
    t, tile, o, k = estimate.table, estimate.tile, estimate.occupancy, estimate.table.kernel
    bound = [np.where(t.axis == axis, t.extent, 1.0).prod(axis=1) for axis in (BLOCK, THREAD, VIRTUAL)]
    own = [
        np.where((t.kind == kind) & t.own, t.extent, 1.0).prod(axis=1)
        for kind in (SERIAL, UNROLLED, VECTORIZED)
    ]
    deep = np.pad(t.extent, ((0, 0), (INNERMOST, 0)), constant_values=1.0)[:, -INNERMOST:]
    deep_axes = np.pad(t.axis, ((0, 0), (INNERMOST, 0)))[:, -INNERMOST:]
    magnitudes = [
        *(t.operations * t.extent.prod(axis=1)[:, None]).T, *bound, *own, *deep.T, t.threads[k], t.blocks[k],
        tile.trips, tile.size, tile.warps, tile.arithmetic, tile.special, tile.memory, tile.instructions,
        tile.rounds, o.registers[k], o.spilled[k], o.shared[k], o.values[k], *estimate.store_clocks,
        *estimate.clocks[:, k], estimate.kernel_seconds[k] * 1e9, *access_features(estimate).T,
    ]  # fmt: skip
    plain = [
        o.resident[k], o.warps[k], o.occupancy[k], o.limit[k], estimate.bound[k], tile.sunk, t.executed,
        t.cut, t.updates, *deep_axes.T, *[estimate.bound[k] == n for n in range(len(BOUNDS))],
        *[(t.scope == scope).sum(axis=1) for scope in (GLOBAL, SHARED, LOCAL, CONSTANT)],
    ]  # fmt: skip
    return np.column_stack([*map(log, magnitudes), *plain])


def access_features(estimate: GpuEstimate) -> np.ndarray:
    """For each of a few accesses how a warp reaches it, and what comes from where."""
    t, w, tile, traffic = estimate.table, estimate.warp, estimate.tile, estimate.traffic
    touched = t.elements[..., 0] * t.item
    touched[:, 0] = np.inf
    order = np.argsort(-touched, axis=1, kind="stable")[:, :ACCESSES]
    missing = ACCESSES - order.shape[1]
    row = np.arange(len(order))[:, None]
    there = t.item[row, order] > 0
    figures = (
        w.sectors, w.lines, w.rounds, w.lookups, w.bytes, tile.accessed, traffic.l2, traffic.dram,
        traffic.asked, t.elements[..., 0] * t.item, t.scope == SHARED, t.guarded,
    )  # fmt: skip
    found = np.stack([np.asarray(x, dtype=float)[row, order] * there for x in figures], axis=-1)
    return np.pad(found, ((0, 0), (0, missing), (0, 0))).reshape(len(order), ACCESSES * len(figures))
