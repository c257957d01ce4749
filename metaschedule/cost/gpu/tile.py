"""What one thread does: the innermost tile that is written out, how often it runs, its instructions."""

from __future__ import annotations

import numpy as np

from ...target.gpu import Gpu
from ..arithmetic import ADD, CAST, COMPARE, DIVIDE, EXTREME, FUNCTION, INDEX, MULTIPLY, SELECT
from ..table import SERIAL, VECTORIZED
from ..tile import innermost_run
from .table import CONSTANT, GLOBAL, LOCAL, SHARED, THREAD, VIRTUAL, GpuTable
from .warp import WarpAccess

LOOP = 3.0  # instructions per iteration of a loop
WRITTEN_OUT = 4  # iterations of a short serial loop that compilers write out by themselves
ADDRESS = 2.0  # instructions per access that moves with a loop that is not written out
TEST = 1.0  # instructions per tested load
HELD = 64  # values that may stay in registers while a loop runs
DIVISION = 10.0


class ThreadTile:
    """Per store: `trips` of the tile by a thread, `warps` of a block that run it, `size` of the tile in
    instances; per access, `accessed` instructions of a tile (0 of registers and constants)."""

    def __init__(self, t: GpuTable, w: WarpAccess, gpu: Gpu) -> None:
        position = np.arange(t.extent.shape[1])
        virtual = t.axis == VIRTUAL
        serial = t.own & ~virtual & (t.kind == SERIAL) & (t.extent > 1)
        innermost = np.where(serial, position, -1).max(axis=1)
        self.inside = t.own & ((position > innermost[:, None]) | virtual | (t.kind == VECTORIZED))
        self.written = np.where(self.inside, t.extent, 1.0)
        self.outer = np.where(t.own & ~self.inside, t.extent, 1.0)
        self.trips = self.outer.prod(axis=1) * t.executed
        self.size = self.written.prod(axis=1)
        threads = np.where(t.axis == THREAD, t.extent, 1.0).prod(axis=1)
        self.warps = np.ceil(threads / gpu.warp)
        self.filled = threads / (self.warps * gpu.warp)
        lanes = np.where(t.vector, t.extent, 1.0)
        copies = np.where(t.vector, 1.0, self.written)
        distinct = t.box(copies)
        self.sunk = find_sunk(t) & (gpu.branch_clocks > 0)
        points = np.where(t.stride != 0, copies[:, None], 1.0).prod(axis=2)
        values = np.where(t.guarded | self.sunk[:, None], np.maximum(points, distinct), distinct)
        still = t.stride == 0
        kept = innermost_run((still | (self.outer == 1)[:, None]) & ~t.guarded[..., None])
        repeats = np.where(kept, self.outer[:, None], 1.0).prod(axis=2)
        repeats = np.where(values * w.bytes / 4 <= HELD, repeats, 1.0)
        memory = ((t.scope == GLOBAL) | (t.scope == SHARED)) & (t.item > 0)
        self.accessed = np.where(memory, values * w.pieces / repeats, 0.0)
        constants = np.where((t.scope == CONSTANT) & (t.item > 0), values, 0.0).sum(axis=1)
        self.constants = constants
        self.lanes = lanes.prod(axis=1)
        last = np.take_along_axis(t.extent, np.maximum(innermost, 0)[:, None], 1)[:, 0]
        alone = (self.size <= 4) & (innermost >= 0)
        self.together = np.where(alone, np.clip(last, 1, WRITTEN_OUT), 1.0)
        self.count_instructions(t)

    def count_instructions(self, t: GpuTable) -> None:
        ops = t.operations
        fused = np.maximum(ops[:, ADD], ops[:, MULTIPLY])
        tests = np.where(t.guarded.any(axis=1), 0.0, ops[:, COMPARE] + ops[:, SELECT])
        plain = fused + ops[:, EXTREME] + tests + ops[:, CAST]
        self.arithmetic = self.size * (plain + DIVISION * ops[:, DIVIDE])
        self.special = self.size * ops[:, FUNCTION] / 8
        self.integer = self.size * np.where(t.guarded.any(axis=1), 0.0, ops[:, INDEX])
        loads = self.accessed.copy()
        loads[:, 0] = np.where(t.updates, loads[:, 0], 0.0)
        self.loads = loads
        self.stores = self.accessed[:, 0]
        moved = (self.accessed > 0).sum(axis=1)
        self.tested = np.where(t.guarded, self.accessed, 0.0).sum(axis=1)
        self.overhead = LOOP / WRITTEN_OUT + ADDRESS * moved + TEST * self.tested
        self.memory = self.accessed.sum(axis=1) + np.where(t.updates, self.stores, 0.0)
        self.instructions = self.arithmetic + self.special + self.integer + self.memory + self.overhead
        distinct = np.maximum(1.0, t.box(self.written)[:, 0])
        self.rounds = self.size / distinct  # updates of one accumulator, one after the other


def find_sunk(t: GpuTable) -> np.ndarray:
    """The stores to registers from where, for each of them, a condition decides whether it is stored:
    compilers that do not predicate compute each in the branch that stores it, one after the other."""
    buffers: set[tuple[int, object]] = set()
    for s, row in enumerate(t.rows_of_stores):
        if t.scope[s, 0] == GLOBAL and t.cut[s] > 0:
            for a, access in enumerate(row.nest.accesses):
                if t.scope[s, a] == LOCAL:
                    buffers.add((int(t.kernel[s]), access.buffer))
    found = [
        (int(k), row.nest.accesses[0].buffer) in buffers
        for k, row in zip(t.kernel, t.rows_of_stores, strict=True)
    ]
    return np.array(found, dtype=bool) & t.updates
