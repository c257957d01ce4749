"""Data to verify and time a program with: legal for what is an index or an extent, telling for the rest.

`values_of(program)` says what each integer input may hold; `arrays` draws. Floats are integers where results
are then exact (see `numerics`), else normally distributed: never of one sign, with which a sum that lacks a
term looks right. Only where a program wants it (a root, an assertion) are they positive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..arith import Domain
from ..ir import (
    Binary,
    Buffer,
    Expr,
    For,
    Load,
    Program,
    Rewriter,
    Store,
    Var,
    as_int,
    blocks,
    expressions,
    free_vars,
    integer_limits,
    is_float,
    is_integer,
    numpy_dtype,
    operands,
    walk,
)

SMALL = 4  # the largest integer where nothing asks for others


@dataclass(frozen=True)
class Values:
    """`low` to `high`, both included. `ascending`: sorted, from the one to the other."""

    low: int
    high: int
    ascending: bool = False


def arrays(
    program: Program, magnitude: int | None, positive: bool, rng: np.random.Generator
) -> list[np.ndarray]:
    """One array per input. `magnitude` is that of exact inputs; None: floats need not be exact."""
    legal = values_of(program)

    def draw(b: Buffer) -> np.ndarray:
        if b in legal:
            values = rng.integers(legal[b].low, legal[b].high, b.shape, endpoint=True)
            if legal[b].ascending and b.size:
                values = np.sort(values, axis=-1)
                values[..., 0], values[..., -1] = legal[b].low, legal[b].high
        elif is_float(b.dtype) and magnitude is None:
            values = rng.standard_normal(b.shape, np.float32)
            values = np.abs(values) + 0.5 if positive else values
        elif b.dtype == "bool":
            values = rng.integers(0, 2, b.shape)
        else:  # no zeros: a product that lacks a factor would look right
            values = rng.integers(1, largest(b, magnitude), b.shape, endpoint=True)
            if not positive and not b.dtype.startswith("uint"):
                values *= rng.choice((-1, 1), b.shape)
        return np.asarray(values).astype(numpy_dtype(b.dtype))

    return [draw(b) for b in program.inputs]


def largest(b: Buffer, magnitude: int | None) -> int:
    """The largest value of an input that is no index."""
    if is_float(b.dtype):
        return magnitude or SMALL
    return min(magnitude or SMALL, integer_limits(b.dtype)[1])


def values_of(program: Program) -> dict[Buffer, Values]:
    """What integer inputs may hold that are indices, bounds of loops, divisors or widths of shifts.

    An index lies in the dimension it selects from. An input that bounds a loop is ascending, as the row
    pointers of a sparse matrix are, and ends with the size of what the loop runs over.
    """
    inputs = [b for b in program.inputs if is_integer(b.dtype)]
    extents = loop_extents(program)
    bounding = {b for extent in extents.values() for b in loaded(extent)}
    found: dict[Buffer, Values] = {}
    for index, size in indices(program):
        over = {b for var in free_vars(index) if var in extents for b in loaded(extents[var])}
        for b in inputs:
            known = found[b].high if b in found else integer_limits(b.dtype)[1]
            if b in bounding and b in over | loaded(index):
                found[b] = Values(0, min(known, size), ascending=True)
            elif b in loaded(index):
                found[b] = Values(0, fitting(index, b, min(known, size - 1), size, extents))
    for b in inputs:
        if b not in found and b in bounding:
            found[b] = Values(0, SMALL, ascending=True)
    for e in expressions(program):
        if isinstance(e, Binary) and e.op in ("//", "%", "<<", ">>"):
            low = 1 if e.op in ("//", "%") else 0
            found.update({b: Values(low, SMALL) for b in loaded(e.b) if b in inputs and b not in found})
    return found


def loop_extents(program: Program) -> dict[Var, Expr]:
    """The extent of every loop and iterator."""
    loops = {s.var: s.extent for s in walk(program) if isinstance(s, For)}
    return loops | {it.var: it.extent for block in blocks(program) for it in block.iters}


def indices(program: Program) -> Iterator[tuple[Expr, int]]:
    """Every index of an access, with the size of the dimension it selects from."""
    for e in expressions(program):
        if isinstance(e, Load):
            yield from zip(e.indices, e.buffer.shape)
    for s in walk(program):
        if isinstance(s, Store):
            yield from zip(s.indices, s.buffer.shape)


def loaded(e: Expr) -> set[Buffer]:
    """The buffers whose elements are part of the value of `e`, not those that only say which element."""
    if isinstance(e, Load):
        return {e.buffer}
    return {b for x in operands(e) for b in loaded(x)}


def fitting(index: Expr, b: Buffer, high: int, size: int, extents: dict[Var, Expr]) -> int:
    """The largest value of `b`, from `high` down by halves, with which `index` stays below `size`."""
    stand_in = Var("value", b.dtype)

    class Replace(Rewriter):
        def expr(self, e: Expr) -> Expr:
            return stand_in if isinstance(e, Load) and e.buffer is b else super().expr(e)

    replaced = Replace().expr(index)
    loops = {v: n for v in free_vars(replaced) if v in extents and (n := as_int(extents[v])) is not None}
    while high > 0:
        upper = Domain({**loops, stand_in: high + 1}).bounds(replaced)[1]
        if upper is None or upper < size:
            break
        high //= 2
    return max(high, 0)
