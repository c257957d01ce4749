"""Nests of programs for GPUs as arrays: what `Table` has, and the axes that loops are bound to.

The loops of a store are its thread's own (serial, unrolled, vectorised, and virtual threads, which lowering
moves inside and writes out), those over threads and those over blocks. All stores of one statement of the
program's body are one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import ir
from ...ir import Program
from ...schedule import Schedule
from ..nest import ElementAccess, NestedStore
from ..table import VECTORIZED, Table

OWN, BLOCK, THREAD, VIRTUAL = range(4)
AXES = {"blockIdx": BLOCK, "threadIdx": THREAD, "vthread": VIRTUAL}
GLOBAL, SHARED, LOCAL, CONSTANT = range(4)  # where an element is
REGISTER_BYTES = 512  # of a thread, of a buffer without a scope: `codegen/gpu/storage.py`
SHARED_BYTES = 16 << 10


class GpuTable(Table):
    """`axis[s, l]` is what loop `l` of store `s` is bound to, `weight` by how much its digit counts in the
    linear number of the thread or block; `ahead[s]` how many chunks ahead a store fills shared memory.
    `kernel[s]` numbers the kernels of all programs, `owner_of_kernel` says whose each is, `threads` and
    `blocks` how many it has."""

    def __init__(self, programs: Sequence[Program | Schedule]) -> None:
        super().__init__(programs)
        stores, loops = self.extent.shape
        self.axis = np.zeros((stores, loops), dtype=np.int8)
        self.weight = np.ones((stores, loops))
        self.scope = np.full(self.item.shape, GLOBAL, dtype=np.int8)
        self.guarded = np.zeros(self.item.shape, dtype=bool)
        self.number_kernels()
        self.bind_loops()
        self.moving = self.coefficient > 0
        self.own = (self.axis == OWN) | (self.axis == VIRTUAL)
        self.place_buffers()
        self.align_rows()
        fetches = [max([loop.ahead for loop in row.nest.loops], default=0) for row in self.rows_of_stores]
        self.ahead = np.where(self.scope[:, 0] == SHARED, np.array(fetches, dtype=float), 0.0)

    def number_kernels(self) -> None:
        known: dict[tuple[int, int], int] = {}
        kernel: list[int] = []
        for owner, row in zip(self.owner.tolist(), self.rows_of_stores, strict=True):
            kernel.append(known.setdefault((owner, row.nest.root), len(known)))
        self.kernel = np.array(kernel, dtype=int)
        self.owner_of_kernel = np.array([owner for owner, _ in known], dtype=int)

    def bind_loops(self) -> None:
        count = len(self.owner_of_kernel)
        sizes: list[dict[str, int]] = [{} for _ in range(count)]
        for k, row in zip(self.kernel.tolist(), self.rows_of_stores, strict=True):
            for loop in row.nest.loops:
                if loop.kind in ir.GPU_AXES:
                    sizes[k][loop.kind] = max(loop.extent, sizes[k].get(loop.kind, 1))
        self.threads, self.blocks = np.ones(count), np.ones(count)
        starts: list[dict[str, int]] = []
        for k, found in enumerate(sizes):
            start: dict[str, int] = {}
            for unit, total in (("threadIdx", self.threads), ("blockIdx", self.blocks)):
                weight = 1
                for axis in "xyz":
                    start[f"{unit}.{axis}"] = weight
                    weight *= found.get(f"{unit}.{axis}", 1)
                total[k] = weight
            starts.append(start)
        for s, (k, row) in enumerate(zip(self.kernel.tolist(), self.rows_of_stores, strict=True)):
            first = self.extent.shape[1] - len(row.digits)
            for n, (loop, low) in enumerate(row.digits):
                if (axis := AXES.get(loop.kind.partition(".")[0])) is not None:
                    self.axis[s, first + n] = axis
                    self.weight[s, first + n] = low * starts[k].get(loop.kind, 1)

    def place_buffers(self) -> None:
        """Where each access finds its element: the buffer's scope, or what lowering makes of one without."""
        users: dict[ir.Buffer, set[int]] = {}
        for k, row in zip(self.kernel.tolist(), self.rows_of_stores, strict=True):
            for access in row.nest.accesses:
                users.setdefault(access.buffer, set()).add(k)
        own = np.where(self.own, self.extent, 1.0)
        boxes = self.box(own)
        for s, row in enumerate(self.rows_of_stores):
            for a, access in enumerate(row.nest.accesses):
                self.guarded[s, a] = access.guarded
                size = float(boxes[s, a] * self.item[s, a])
                whole = float(self.elements[s, a, 0] * self.item[s, a])
                self.scope[s, a] = scope_of(access, row.nest, len(users[access.buffer]) == 1, size, whole)

    def align_rows(self) -> None:
        """The strides of buffers in shared memory whose rows are padded, and what they take
        (`local_size`)."""
        self.local_size = self.local_shape.prod(axis=2) * self.item
        for s, row in enumerate(self.rows_of_stores):
            for a, access in enumerate(row.nest.accesses):
                rank = len(access.buffer.shape)
                if access.aligned and access.shared and rank > 1:
                    shape = tuple(int(n) for n in self.local_shape[s, a, -rank:])
                    strides = np.array(ir.aligned_strides(shape, access.aligned), dtype=float)
                    self.local_size[s, a] = strides[0] * shape[0] * self.item[s, a]
                    self.stride[s, a] = (self.coefficient[s, a, -rank:] * strides[:, None]).sum(axis=0)

    def box(self, extent: np.ndarray) -> np.ndarray:
        """How many different elements an access meets when its loops have these extents."""
        return self.widths(extent).prod(axis=2)

    def widths(self, extent: np.ndarray) -> np.ndarray:
        reach, points = 1 + (self.coefficient * (extent[:, None, None] - 1)).sum(axis=3), None
        points = np.where(self.moving, extent[:, None, None], 1.0).prod(axis=3)
        step = np.where(self.moving & (extent[:, None, None] > 1), self.coefficient, np.inf).min(axis=3)
        reach = 1 + (reach - 1) / np.where(np.isfinite(step), step, 1.0)
        return np.minimum(np.minimum(points, reach), self.shape)

    @property
    def vector(self) -> np.ndarray:
        """The loops whose iterations are lanes of a thread's vector."""
        return (self.kind == VECTORIZED) & (self.extent > 1) & self.own


def scope_of(access: ElementAccess, nest: NestedStore, alone: bool, of_thread: float, of_block: float) -> int:
    buffer = access.buffer
    if buffer.data is not None:
        return CONSTANT
    if buffer.scope != "global":
        return LOCAL if buffer.scope == "local" else SHARED
    if not alone or not access.shared:
        return GLOBAL
    inside = all(
        loop.kind.startswith("blockIdx") or n < access.shared
        for n, loop in enumerate(nest.loops)
        if loop.kind in ir.GPU_AXES
    )
    if inside and of_thread <= REGISTER_BYTES:
        return LOCAL
    return SHARED if of_block <= SHARED_BYTES else GLOBAL
