"""What integer inputs of a program may hold, where not every number is legal.

Data to measure or time a program with are drawn accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import ir
from ..arith import Domain
from ..runtime import Values

SMALL = 4  # the largest integer where nothing asks for others


def values_of(program: ir.Program) -> dict[ir.Buffer, Values]:
    """What integer inputs may hold that are indices, bounds of loops, divisors or widths of shifts.

    An index lies in the dimension it selects from. An input that bounds a loop is ascending, as the row
    pointers of a sparse matrix are, and ends with the size of what the loop runs over.
    """
    inputs = {b for b in program.inputs if ir.is_integer(b.dtype)}
    if not inputs:
        return {}
    extents = loop_extents(program)
    bounding = {b for extent in extents.values() for b in buffers_loaded(extent)}
    found = {b: Values(0, SMALL, ascending=True) for b in inputs & bounding}
    highest: dict[ir.Buffer, int] = {}
    for index, size in indices(program):
        over = {
            b
            for e in parts(index)
            if isinstance(e, ir.Var) and e in extents
            for b in buffers_loaded(extents[e])
        }
        for b in inputs & (over | buffers_loaded(index)):
            high = size if b in bounding else find_fitting(index, b, size, extents)
            highest[b] = min(high, highest.get(b, ir.integer_limits(b.dtype)[1]))
            found[b] = Values(0, highest[b], ascending=b in bounding)
    for e in ir.expressions(program):
        if isinstance(e, ir.Binary) and e.op in ("//", "%", "<<", ">>"):
            low = 1 if e.op in ("//", "%") else 0
            for b in inputs & buffers_loaded(e.b):
                values = found.get(b, Values(low, SMALL))
                found[b] = replace(values, low=low, high=max(low, values.high))
    return found


def loop_extents(program: ir.Program) -> dict[ir.Var, ir.Expr]:
    """The extent of every loop and iterator."""
    loops = {s.var: s.extent for s in ir.walk(program) if isinstance(s, ir.For)}
    return loops | {it.var: it.extent for block in ir.blocks(program) for it in block.iters}


def indices(program: ir.Program) -> Iterator[tuple[ir.Expr, int]]:
    """Every index of an access, with the size of the dimension it selects from."""
    for e in ir.expressions(program):
        if isinstance(e, ir.Load):
            yield from zip(e.indices, e.buffer.shape)
    for s in ir.walk(program):
        if isinstance(s, ir.Store):
            yield from zip(s.indices, s.buffer.shape)


def parts(e: ir.Expr) -> Iterator[ir.Expr]:
    """What the value of `e` is computed from; not what only says which element is loaded."""
    yield e
    if not isinstance(e, ir.Load):
        for x in ir.operands(e):
            yield from parts(x)


def buffers_loaded(e: ir.Expr) -> set[ir.Buffer]:
    return {x.buffer for x in parts(e) if isinstance(x, ir.Load)}


def find_fitting(index: ir.Expr, b: ir.Buffer, size: int, extents: dict[ir.Var, ir.Expr]) -> int:
    """The largest value of `b`, by halves, with which `index` stays below `size`; others' loads are 1."""
    value = ir.Var("value", b.dtype)

    class OnlyOne(ir.Rewriter):
        def expr(self, e: ir.Expr) -> ir.Expr:
            if isinstance(e, ir.Load):
                return value if e.buffer is b else ir.const(1, e.dtype)
            return super().expr(e)

    alone = OnlyOne().expr(index)
    loops = {v: n for v in ir.free_vars(alone) if v in extents and (n := ir.as_int(extents[v])) is not None}
    high = max(0, size - 1)
    while high:
        upper = Domain({**loops, value: high + 1}).bounds(alone)[1]
        if upper is None or upper < size:
            break
        high //= 2
    return high
