"""Nests of many programs as arrays, and how much memory each touches at every loop level.

Axes: store, access (the written element first), dimension, loop. The last loop is the innermost; where a
nest has fewer loops, or a buffer fewer dimensions, ones of extent 1 come first. A loop of which an index uses
several digits (`i // 4`, `i % 4`: a fused loop) is one per digit. Level `l` of an array with one more entry
than loops means "everything inside the loops before `l`": level 0 is the whole nest, the last level a single
instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Buffer, Program, Var, numpy_dtype
from ..ir.dtypes import DTYPES
from ..schedule import Schedule
from .arithmetic import KINDS
from .guards import GuardEffect, effect_of_guards
from .nest import Loop, NestedStore, common_prefix, nests

SERIAL, PARALLEL, VECTORIZED, UNROLLED = range(4)
NONE: frozenset[Var] = frozenset()
ITEM_BYTES = {name: numpy_dtype(name).itemsize for name in DTYPES}
KIND = {"parallel": PARALLEL, "vectorized": VECTORIZED, "unrolled": UNROLLED}


@dataclass(slots=True, eq=False)
class StoreRow:
    """A nest with its loops cut into digits. `entries` are (access, dimension, loop, coefficient), the last
    dimension and the innermost loop being -1; `shared` counts the outer loops that the store before has, too.
    """

    nest: NestedStore
    extents: list[int]
    kinds: list[int]
    fused: list[bool]  # a digit of a loop that has several
    digits: list[tuple[Loop, int]]  # the loop of each, and where in it the digit begins
    shared: int
    private: list[int]  # for each access, the outer loops that every use of its buffer is in
    entries: list[tuple[int, int, int, int]]
    guards: GuardEffect


def rows_of(found: list[NestedStore]) -> list[StoreRow]:
    rows: list[StoreRow] = []
    before: list[Loop] = []
    for nest in found:
        shared = common_prefix(before, nest.loops)
        before = nest.loops
        cuts = cuts_of(nest)
        total = len(nest.loops) + sum(len(found) - 2 for found in cuts.values())
        extents, kinds, fused, entries = [], [], [], []
        digits: list[tuple[Loop, int]] = []
        starts: list[int] = []
        whole: dict[Var, int] = {}  # of loops that are not cut, mostly: their place in the row
        place: dict[Var, list[tuple[int, int]]] = {}  # of each digit: where it begins, its loop in the row
        for loop in nest.loops:
            starts.append(len(extents))
            if loop.var not in cuts:
                whole[loop.var] = len(extents) - total
                extents.append(loop.extent)
                kinds.append(KIND.get(loop.kind, SERIAL))
                fused.append(False)
                digits.append((loop, 1))
                continue
            bounds = cuts[loop.var]
            place[loop.var] = []
            for low, high in zip(bounds[-2::-1], bounds[:0:-1]):
                place[loop.var].append((low, len(extents) - total))
                extents.append(-(-high // low))
                kinds.append(KIND.get(loop.kind, SERIAL))
                fused.append(len(bounds) > 2)
                digits.append((loop, low))
        for a, access in enumerate(nest.accesses):
            outer = {loop.var for loop in nest.loops[: access.shared]} if access.shared else NONE
            for d, form in enumerate(access.forms, -len(access.forms)):
                for (var, start, stop), k in form.items():
                    if var in outer:
                        continue
                    if var in whole:
                        entries.append((a, d, whole[var], abs(k)))
                        continue
                    for low, at in place.get(var, ()):
                        if start <= low < stop:
                            entries.append((a, d, at, abs(k) * (low // start)))
        starts.append(total)
        private = [starts[access.shared] for access in nest.accesses]
        rows.append(
            StoreRow(
                nest, extents, kinds, fused, digits, starts[shared], private, entries, effect_of_guards(nest)
            )
        )
    return rows


def cuts_of(nest: NestedStore) -> dict[Var, list[int]]:
    """Of the loops of which indices use digits, where these begin: 1, ..., extent."""
    extents = {loop.var: loop.extent for loop in nest.loops}
    cuts: dict[Var, set[int]] = {}
    for access in nest.accesses:
        for form in access.forms:
            for var, low, high in form:
                if (low != 1 or high != extents.get(var)) and var in extents:
                    cuts.setdefault(var, {1, extents[var]}).update((low, high))
    return {var: sorted(found) for var, found in cuts.items()}


class Table:
    """Stores of a batch of programs; `owner[s]` is the number of the program that store `s` belongs to."""

    def __init__(self, programs: Sequence[Program | Schedule]) -> None:
        rows: list[StoreRow] = []
        owner: list[int] = []
        for number, program in enumerate(programs):
            found = rows_of(nests(program))
            rows += found
            owner += [number] * len(found)
        stores, loops = len(rows), max((len(row.extents) for row in rows), default=0) + 1
        most = max((len(row.nest.accesses) for row in rows), default=1)
        ranks = [len(a.buffer.shape) for row in rows for a in row.nest.accesses]
        box = (stores, most, max(ranks, default=1) or 1)
        self.rows_of_stores = rows
        self.count, self.owner = len(programs), np.array(owner, dtype=int)
        self.extent = np.ones((stores, loops))
        self.kind = np.zeros((stores, loops), dtype=np.int8)
        self.fused = np.zeros((stores, loops), dtype=bool)
        self.shared = np.zeros(stores, dtype=int)
        self.coefficient = np.zeros((*box, loops))
        self.shape = np.ones(box)
        self.item = np.zeros(box[:2])  # bytes of an element; 0 where a store has fewer accesses
        self.local = np.zeros(box[:2], dtype=bool)  # an intermediate of which one iteration is kept
        self.private = np.zeros(box[:2], dtype=int)  # the first loop that is not around all uses of it
        self.updates = np.array([row.nest.accesses[0].updates for row in rows], dtype=bool)
        self.operations = np.array([row.nest.operations for row in rows]).reshape(stores, len(KINDS))
        effects = np.array([row.guards for row in rows]).reshape(stores, len(GuardEffect._fields))
        self.executed, self.cut, self.masked, self.rest, self.tests, self.lane_tests = effects.T
        laid_out: list[tuple[int, int, Buffer]] = []  # stores and accesses of buffers that are not dense
        entries: list[tuple[int, int, int, int, int]] = []
        for s, row in enumerate(rows):
            if depth := len(row.extents):
                self.extent[s, -depth:] = row.extents
                self.kind[s, -depth:] = row.kinds
                self.fused[s, -depth:] = row.fused
            self.shared[s] = loops - depth + row.shared
            for a, access in enumerate(row.nest.accesses):
                buffer = access.buffer
                if buffer.shape:
                    # A store that runs may name an empty buffer where a condition does not let it read.
                    self.shape[s, a, -len(buffer.shape) :] = [max(n, 1) for n in buffer.shape]
                    self.shape[s, a, -1] = -(-self.shape[s, a, -1] // access.group)
                self.item[s, a] = ITEM_BYTES[buffer.dtype] * access.group
                self.local[s, a] = access.shared > 0
                if buffer.layout is not None and buffer.shape and not access.shared:
                    laid_out.append((s, a, buffer))
                if access.shared:
                    self.private[s, a] = loops - depth + row.private[a]
            entries += [(s, *entry) for entry in row.entries]
        if entries:
            *where, value = np.array(entries).T
            np.add.at(self.coefficient, tuple(where), value)
        self.measure_boxes(laid_out)

    def measure_boxes(self, laid_out: list[tuple[int, int, Buffer]]) -> None:
        """What an access touches at every level: `elements`, of which `run` are next to each other in each of
        so many `rows` per dimension; and by how many elements it moves with every loop: `stride`. `pitch` is
        the distance in bytes of neighbours in a dimension."""
        for s, a, buffer in laid_out:  # dimensions in the order of memory
            first = self.shape.shape[2] - len(buffer.shape)
            order = [*range(first), *[first + d for d in by_stride(buffer)]]
            self.shape[s, a], self.coefficient[s, a] = self.shape[s, a, order], self.coefficient[s, a, order]
        moves = self.coefficient > 0
        steps = self.extent[:, None, None, :] - 1
        span = 1 + inward(self.coefficient * steps, np.add)
        points = inward(np.where(moves, self.extent[:, None, None, :], 1), np.multiply, 1)
        width = np.minimum(np.minimum(span, points), self.shape[..., None])
        self.elements = width.prod(axis=2)
        # The box of an intermediate buffer is its storage.
        shape = np.where(self.local[..., None], width[..., 0], self.shape)
        self.local_shape = shape
        inner = np.concatenate([np.ones_like(shape[..., :1]), shape[..., :0:-1]], axis=-1)
        strides = np.cumprod(inner, axis=-1)[..., ::-1]
        packed = np.ones_like(strides, dtype=bool)  # a row begins where the one before ends
        for s, a, buffer in laid_out:
            steps = np.array([buffer.strides[d] for d in by_stride(buffer)], dtype=float)
            ends = np.append(np.abs(steps) * self.shape[s, a, -len(steps) :], 1)[1:]
            strides[s, a, -len(steps) :], packed[s, a, -len(steps) :] = steps, np.abs(steps) == ends
        self.stride = (self.coefficient * strides[..., None]).sum(axis=2)
        self.pitch = np.abs(strides) * self.item[..., None]
        whole = np.logical_and.accumulate((width >= shape[..., None])[:, :, :0:-1], axis=2)[:, :, ::-1]
        joined = np.concatenate([whole, np.ones_like(width[:, :, :1], dtype=bool)], axis=2)
        if laid_out:
            joined &= np.logical_and.accumulate(packed[:, :, ::-1], axis=2)[:, :, ::-1][..., None]
        self.run = np.where(joined, width, 1).prod(axis=2)
        self.rows = np.where(joined, 1, width)


def by_stride(buffer: Buffer) -> list[int]:
    """The dimensions, those first along which elements are far apart: rows of memory are the last."""
    return sorted(range(len(buffer.shape)), key=lambda d: abs(buffer.strides[d]), reverse=True)


def inward(values: np.ndarray, operation: np.ufunc, empty: float = 0) -> np.ndarray:
    """Values of loops accumulated over all loops inside each level; `empty` at the innermost level."""
    inside = operation.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([inside, np.full((*values.shape[:-1], 1), float(empty))], axis=-1)
