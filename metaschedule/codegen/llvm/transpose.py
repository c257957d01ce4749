"""Transposing copies in registers.

An unrolled loop over r around a vectorised loop over v that stores rows of v and reads along r,

    for r in unrolled(8): for v in vectorized(8): dst[.., r, v] = src[.., v, r]

would gather with a stride for every r. Loaded along r instead and transposed with shuffles, the same copy
takes as many loads as there are rows. Only square tiles (`model.TRANSPOSED`); anything else is not matched.

4 x 4, src row-major:  loads  a = src[0, 0:4] = 00 01 02 03, b = 10 11 12 13, c = 20 21 22 23, d = 30 31 32 33
pairs of neighbours:   ab = 00 10 01 11 and 02 12 03 13, cd = 20 30 21 31 and 22 32 23 33
pairs of pairs:        00 10 20 30, 01 11 21 31, 02 12 22 32, 03 13 23 33 = dst[0:4, 0:4], four stores
so 4 loads, 8 shuffles and 4 stores instead of 16 loads of single elements

Results that lie side by side along the unrolled loop,

    for r in unrolled(2): for v in vectorized(8): dst[.., 2 * v + r] = f(v, r)

as those of a channel shuffle, would be scattered. All are computed first, then interleaved with shuffles and
stored as whole vectors (`Interleaving`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import ir
from ...arith import simplify
from ...ir import For, Load, Store
from ..lower.model import INTERLEAVED, TRANSPOSED
from .affine import Affine
from .values import BYTES, Operand

if TYPE_CHECKING:
    from .statements import StatementEmitter

LANE_BYTES = 16  # shuffles within 128 bits are the cheap ones


@dataclass
class CopyNest:
    """A store in two loops of a tile."""

    emitter: StatementEmitter
    rows: For  # over r
    columns: For  # over v
    store: Store


class Transposition(CopyNest):
    def emit(self) -> None:
        e, n = self.emitter, self.rows.fixed_extent
        assert n is not None
        e.lanes = n
        e.env[self.rows.var] = Affine(0, {}, 1)
        loaded: list[Operand] = []
        for row in range(n):
            e.env[self.columns.var] = Affine(row)
            loaded.append(e.evaluate(self.store.value))
        e.env[self.columns.var] = Affine(0, {}, 1)
        for column, value in enumerate(transpose(e, loaded)):
            e.env[self.rows.var] = Affine(column)
            e.store(self.store, value)
        e.lanes = 1
        del e.env[self.rows.var], e.env[self.columns.var]


def find_transposition(emitter: StatementEmitter, rows: For) -> Transposition | None:
    """The pattern above, with `rows` as its outer loop; None where it is something else."""
    n = rows.fixed_extent
    if emitter.lanes > 1 or n is None or n not in TRANSPOSED or len(rows.body) != 1:
        return None
    columns = rows.body[0]
    if not isinstance(columns, For) or columns.kind != "vectorized" or columns.fixed_extent != n:
        return None
    store = columns.body[0]
    if len(columns.body) != 1 or not isinstance(store, Store) or not isinstance(store.value, Load):
        return None
    source = store.value
    if source.buffer is store.buffer or any(ir.has_load(i) for i in source.indices + store.indices):
        return None
    emitter.lanes = n

    def steps(over: For, other: For) -> tuple[Affine, Affine]:
        emitter.env[over.var], emitter.env[other.var] = Affine(0, {}, 1), Affine(0)
        read = emitter.address(source.buffer, source.indices)
        return read, emitter.address(store.buffer, store.indices)

    along_rows, _ = steps(rows, columns)
    strided, written = steps(columns, rows)
    emitter.lanes = 1
    del emitter.env[rows.var], emitter.env[columns.var]
    contiguous = along_rows.lane == 1 and written.lane == 1
    affine = not (along_rows.vectors or strided.vectors or written.vectors)
    if contiguous and affine and strided.lane not in (-1, 0, 1):
        return Transposition(emitter, rows, columns, store)
    return None


class Interleaving(CopyNest):
    def emit(self) -> None:
        e, lanes = self.emitter, self.columns.fixed_extent
        assert lanes is not None
        outside = e.domain
        e.domain = outside.with_loop(self.columns.var, lanes)
        e.lanes = lanes
        e.env[self.columns.var] = Affine(0, {}, 1)
        values: list[Operand] = []
        for row in range(self.rows.fixed_extent or 0):
            e.env[self.rows.var] = Affine(row)
            chosen = ir.substitute(self.store.value, {self.rows.var: ir.const(row, self.rows.var.dtype)})
            values.append(e.spread(e.evaluate(simplify(chosen, e.domain))))
        e.env[self.rows.var] = Affine(0)
        at = e.place(self.store)
        e.lanes, e.domain = 1, outside
        del e.env[self.rows.var], e.env[self.columns.var]
        raw = e.to_memory(interleave(e, values))
        where = f"ptr {e.pointer(self.store.buffer, Affine(at.const, at.terms))}"
        e.f.effect(f"store {raw}, {where}, align {BYTES[self.store.buffer.dtype]}")


def find_interleaving(emitter: StatementEmitter, rows: For) -> Interleaving | None:
    """The second pattern above, with `rows` as its outer loop; None where it is something else."""
    n = rows.fixed_extent
    if emitter.lanes > 1 or emitter.mask is not None or n not in INTERLEAVED or len(rows.body) != 1:
        return None
    columns = rows.body[0]
    if not isinstance(columns, For) or columns.kind != "vectorized" or len(columns.body) != 1:
        return None
    lanes, store = columns.fixed_extent or 0, columns.body[0]
    if not isinstance(store, Store) or lanes < 2 or lanes & (lanes - 1):
        return None
    if BYTES[store.buffer.dtype] * lanes > emitter.vector_bytes or store.buffer.dtype == "bool":
        return None
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    if any(e.buffer is store.buffer for e in loads) or any(ir.has_load(i) for i in store.indices):
        return None
    emitter.lanes = lanes
    emitter.env[columns.var] = Affine(0, {}, 1)
    places: list[Affine] = []
    for row in range(n):
        emitter.env[rows.var] = Affine(row)
        places.append(emitter.address(store.buffer, store.indices))
    emitter.lanes = 1
    del emitter.env[rows.var], emitter.env[columns.var]
    first = places[0]
    beside = all(
        (at.const, at.terms, at.lane) == (first.const + row, first.terms, n) and not at.vectors
        for row, at in enumerate(places)
    )
    return Interleaving(emitter, rows, columns, store) if beside else None


def interleave(e: StatementEmitter, values: list[Operand]) -> Operand:
    """The first lanes of all values, then the second ones, and so on."""
    lanes, count = values[0].lanes, len(values)
    joined = values[0]
    for n, value in enumerate(values[1:], 1):  # one behind the other
        widened = shuffle(e, value, value, [min(i, lanes - 1) for i in range(n * lanes)]) if n > 1 else value
        joined = shuffle(e, joined, widened, list(range((n + 1) * lanes)))
    return shuffle(e, joined, joined, [r * lanes + v for v in range(lanes) for r in range(count)])


def transpose(e: StatementEmitter, rows: list[Operand]) -> list[Operand]:
    """The transpose of n vectors of n lanes: first within 128-bit lanes, then between them."""
    n = len(rows)
    unit = min(n, max(1, LANE_BYTES // BYTES[rows[0].dtype]))
    if unit == 4:
        rows = [v for g in range(0, n, 4) for v in transpose_lanes(e, rows[g : g + 4])]
    elif unit > 1:
        rows = exchange(e, rows, 1, unit)
    return exchange(e, rows, unit, n)


def transpose_lanes(e: StatementEmitter, r: list[Operand]) -> list[Operand]:
    """Four vectors of 32-bit elements, each 128-bit lane transposed as a 4x4 matrix of its own."""
    n = r[0].lanes
    low, high = [0, n, 1, n + 1], [2, n + 2, 3, n + 3]
    first, second = [0, 1, n, n + 1], [2, 3, n + 2, n + 3]

    def pick(a: Operand, b: Operand, pattern: list[int]) -> Operand:
        return shuffle(e, a, b, [p + lane for lane in range(0, n, 4) for p in pattern])

    t0, t1 = pick(r[0], r[1], low), pick(r[0], r[1], high)
    t2, t3 = pick(r[2], r[3], low), pick(r[2], r[3], high)
    return [pick(t0, t2, first), pick(t0, t2, second), pick(t1, t3, first), pick(t1, t3, second)]


def exchange(e: StatementEmitter, rows: list[Operand], unit: int, n: int) -> list[Operand]:
    """Swap bit by bit the bits of the row number with those of the position, from `unit` up to `n`."""
    lanes = rows[0].lanes
    while unit < n:
        new = list(rows)
        for i in range(len(rows)):
            if i & unit:
                continue
            j = i | unit
            keep = [c if not c & unit else lanes + (c ^ unit) for c in range(lanes)]
            take = [(c ^ unit) if not c & unit else lanes + c for c in range(lanes)]
            new[i], new[j] = shuffle(e, rows[i], rows[j], keep), shuffle(e, rows[i], rows[j], take)
        rows, unit = new, unit * 2
    return rows


def shuffle(e: StatementEmitter, a: Operand, b: Operand, order: list[int]) -> Operand:
    mask = ", ".join(f"i32 {n}" for n in order)
    text = e.f.emit(f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{mask}>")
    return Operand(text, a.dtype, len(order))
