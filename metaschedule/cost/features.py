"""Features of a program for the learned model: those of its stores, pooled.

A store has its operations, loops by kind, guards, the figures of the analytical model, for its first accesses
how they move and what they touch, and for boxes of iterations of growing size the memory touched and the
arithmetic per byte. Everything that spans magnitudes is a logarithm. A program has those of its heaviest
store, by the analytical estimate, and the average over all of them, weighted by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Program
from ..schedule import Schedule
from ..target import Target
from .analytical import Estimate
from .pooling import INNERMOST, log, pool_stores
from .table import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Table, inward

ACCESSES = 4  # the written one and the reads that touch most
BOXES = tuple(1 << n for n in range(4, 25, 4))  # iterations


def features(programs: Sequence[Program | Schedule], target: Target) -> np.ndarray:
    """One row per program.

    >>> from metaschedule import workloads
    >>> from metaschedule.target import resolve
    >>> rows = features([workloads.create("GMM"), workloads.create("CBR")], resolve("x86-64-v3"))
    >>> len(rows), bool(np.isfinite(rows).all())
    (2, True)
    """
    table = Table(programs)
    return pool_features(table, Estimate(table, target), target)


def pool_features(table: Table, estimate: Estimate, target: Target) -> np.ndarray:
    """Features of the programs of a table."""
    stores = store_features(table, estimate, target)
    total = np.bincount(table.owner, weights=estimate.seconds, minlength=table.count)
    return pool_stores(stores, estimate.seconds, total, table.owner, table.count)


def store_features(t: Table, estimate: Estimate, target: Target) -> np.ndarray:
    tiles = estimate.tiles
    trips = t.extent.prod(axis=1)
    kinds = [np.where(t.kind == kind, t.extent, 1.0) for kind in (SERIAL, PARALLEL, VECTORIZED, UNROLLED)]
    deep = np.pad(t.extent, ((0, 0), (INNERMOST, 0)), constant_values=1.0)[:, -INNERMOST:]
    deep_kinds = np.pad(t.kind, ((0, 0), (INNERMOST, 0)))[:, -INNERMOST:]
    magnitudes = [
        trips, *(t.operations * trips[:, None]).T, *(k.prod(axis=1) for k in kinds), *deep.T,
        tiles.cycles, tiles.trips, tiles.arithmetic, tiles.chain, tiles.memory, tiles.issue, tiles.spills,
        tiles.size, tiles.vectors, tiles.accumulators, tiles.working, tiles.gathers,
        estimate.compute, estimate.traffic, estimate.overhead, estimate.forks, estimate.seconds * 1e9,
        *estimate.missing.T, *access_features(t, target).T, *intensity(t).T,
        np.where(t.local[:, 0], t.elements[:, 0, 0] * t.item[:, 0], 0.0),
    ]  # fmt: skip
    plain = [
        estimate.cores, t.executed, t.cut, t.masked, t.tests, t.lane_tests, t.updates,
        *(t.operations > 0).T, *deep_kinds.T, *((k > 1).sum(axis=1) for k in kinds),
    ]  # fmt: skip
    return np.column_stack([*map(log, magnitudes), *plain])


def access_features(t: Table, target: Target) -> np.ndarray:
    """For each of a few accesses: strides of the innermost loops, elements, lines, run, reuse."""
    bytes_touched = t.elements[..., 0] * t.item
    bytes_touched[:, 0] = np.inf
    order = np.argsort(-bytes_touched, axis=1, kind="stable")[:, :ACCESSES]
    if order.shape[1] < ACCESSES:
        order = np.pad(order, ((0, 0), (0, ACCESSES - order.shape[1])), constant_values=-1)
    row = np.arange(len(order))[:, None]
    present = np.where(order >= 0, t.item[row, order], 0) > 0
    strides = np.pad(t.stride[row, order], ((0, 0), (0, 0), (2, 0)))[..., -2:]
    elements, run, item = t.elements[row, order, 0], t.run[row, order, 0], t.item[row, order]
    lines = elements / run * np.maximum(1, run * item / target.line)
    reuse = t.extent.prod(axis=1)[:, None] / elements
    table = np.stack([strides[..., 0], strides[..., 1], elements * item, lines, run, reuse], axis=-1)
    return (table * present[..., None]).reshape(len(order), ACCESSES * table.shape[-1])


def intensity(t: Table) -> np.ndarray:
    """For boxes of iterations of growing size: bytes touched, and operations per byte."""
    iterations = inward(t.extent, np.multiply, 1)
    bytes_touched = (t.elements * t.item[..., None]).sum(axis=1)
    operations = 1 + t.operations.sum(axis=1)
    found: list[np.ndarray] = []
    for box in BOXES:
        level = (iterations <= box).argmax(axis=1)[:, None]
        size = np.take_along_axis(bytes_touched, level, 1)[:, 0]
        count = np.take_along_axis(iterations, level, 1)[:, 0]
        found += [size, count * operations / np.maximum(size, 1)]
    return np.column_stack(found)
