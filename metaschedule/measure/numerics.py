"""What may be asked of a program's results: equality, or a tolerance.

Sums and products of small integers are exact in floating point, in any order, fused or not, as long as no
intermediate result outgrows the significand. `exact_magnitude` finds how large inputs may be for that; of a
program that rounds (divides, calls exp) `tolerance` says how far two orders of its operations may differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from .. import ir
from ..ir.annotations import ROUNDING

DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # bits of the significand
LARGEST = 20  # bits of the largest inputs tried
UNKNOWN = 1 << 12  # iterations assumed of a loop whose extent is data
SAFETY = 8  # times the error expected of K random roundings
FEWEST = 16  # roundings assumed of any program
MANY = 1 << 16  # terms, from which on errors of a sum grow with their number
EXACT_CALLS = ("abs", "floor", "ceil", "round", "trunc", "isnan", "isinf")
INFINITE = 2.0**100  # the start of a minimum or maximum: no operand of a sum

Scope = tuple[tuple[ir.Var, int], ...]


class Inexact(Exception):
    """Somewhere the program rounds."""


def exact_magnitude(program: ir.Program, integers: Mapping[ir.Buffer, int]) -> int | None:
    """The largest absolute value of inputs with which every result is exact; None if there is none.

    `integers` has the largest values of inputs that are not free to choose, such as indices.
    """
    for bits in range(LARGEST, -1, -1):
        try:
            Magnitudes(program, 1 << bits, integers)
            return 1 << bits
        except Inexact:
            continue
    return None


def tolerance(program: ir.Program) -> float:
    """How far results may differ, relative to the largest: K roundings add up as their square root, and more
    where one accumulator outgrows its terms so that they are always rounded the same way. Where large terms
    cancel it is more, which a program, or a candidate's block, has to say (`ROUNDING`)."""
    terms = sum(
        trips(stmt, scope)
        for stmt, scope in statements(program.body)
        if isinstance(stmt, ir.Store) and accumulates(stmt)
    )
    floats = {e.dtype for e in ir.expressions(program) if ir.is_float(e.dtype)}
    rounding = max((2.0 ** -DIGITS[dtype] for dtype in floats), default=0.0)
    roundings = max(math.sqrt(max(FEWEST, terms)), terms / math.sqrt(MANY))
    return SAFETY * rounding * roundings * (ROUNDING.get(program) or 1)


def amplification(candidate: ir.Program) -> float:
    """How many times as far as others a candidate may be off, by what its blocks say."""
    return max([ROUNDING.get(block) or 1 for block in ir.blocks(candidate)], default=1)


def statements(body: ir.Body, scope: Scope = ()) -> Iterator[tuple[ir.Stmt, Scope]]:
    """Every statement with the loops around it; inside a block with iterators those are the loops."""
    for s in body:
        yield s, scope
        if isinstance(s, ir.For):
            yield from statements(s.body, (*scope, (s.var, count(s.extent))))
        elif isinstance(s, ir.Block):
            inner = tuple((it.var, count(it.extent)) for it in s.iters) or scope
            yield from statements(s.init, inner)
            yield from statements(s.body, inner)
        elif isinstance(s, ir.If):
            yield from statements(s.then, scope)
            yield from statements(s.orelse, scope)
        elif isinstance(s, ir.While):
            yield from statements(s.body, scope)
        elif isinstance(s, ir.TupleStore):
            yield from statements(s.stores, scope)


def count(extent: ir.Expr) -> int:
    known = ir.as_int(extent)
    return UNKNOWN if known is None else known


def accumulates(store: ir.Store) -> bool:
    return any(isinstance(e, ir.Load) and e.buffer is store.buffer for e in ir.subexpressions(store.value))


def trips(store: ir.Store, scope: Scope) -> int:
    """How often one element is stored to: iterations of the loops that the indices do not use."""
    used = {var for index in store.indices for var in ir.free_vars(index)}
    return math.prod(extent for var, extent in scope if var not in used)


class Magnitudes:
    """The largest absolute value that each buffer can hold, worst case; raises Inexact where a float may
    not be an integer that its type holds exactly."""

    def __init__(self, program: ir.Program, magnitude: int, integers: Mapping[ir.Buffer, int]) -> None:
        self.of: dict[ir.Buffer, float] = {}
        self._extents: dict[ir.Var, int] = {}
        for b in program.inputs:
            largest = 1 if b.dtype == "bool" else integers.get(b, magnitude)
            self.of[b] = self._clip(largest, b.dtype)
        for b in program.allocs:
            if b.data is not None:
                self.of[b] = max((self._constant(float(x)) for x in b.data.flat), default=0.0)
        for stmt, scope in statements(program.body):
            self._extents.update(scope)
            if isinstance(stmt, ir.Store):
                self._store(stmt, trips(stmt, scope))
            elif isinstance(stmt, (ir.If, ir.Assert)):
                self.expr(stmt.cond)
            elif isinstance(stmt, ir.While) and any(ir.is_float(e.dtype) for e in ir.expressions(stmt)):
                raise Inexact  # who knows how often

    def _store(self, store: ir.Store, trips: int) -> None:
        b = store.buffer
        before = self.of.get(b, 0.0)
        if not accumulates(store):
            self.of[b] = max(before, self.expr(store.value))
            return
        self.of[b] = 0.0
        term = self.expr(store.value)
        self.of[b] = 1.0
        if self.expr(store.value) > term + 1 and ir.is_float(b.dtype):
            raise Inexact  # grows by more than a sum does
        self.of[b] = self._clip(before + trips * term, b.dtype)

    def _clip(self, magnitude: float, dtype: str) -> float:
        if ir.is_float(dtype):
            if magnitude > 1 << DIGITS[dtype]:
                raise Inexact
        elif ir.is_integer(dtype):  # which wraps, in any order to the same
            return min(magnitude, -ir.integer_limits(dtype)[0] or ir.integer_limits(dtype)[1])
        return magnitude

    def _constant(self, value: float) -> float:
        if abs(value) >= INFINITE:
            return 0.0
        if value != np.floor(value):
            raise Inexact
        return abs(value)

    def expr(self, e: ir.Expr) -> float:
        return self._clip(self._value(e), e.dtype)

    def _value(self, e: ir.Expr) -> float:
        if isinstance(e, ir.Const):
            return self._constant(float(e.value))
        if isinstance(e, ir.Load):
            return self.of.get(e.buffer, math.inf)  # one that is stored to later, around a loop
        if isinstance(e, ir.Var):
            return self._extents.get(e, UNKNOWN)
        if isinstance(e, (ir.Unary, ir.Cast)):
            return self.expr(e.a)
        if isinstance(e, ir.Select):
            return max(self.expr(e.cond), self.expr(e.a), self.expr(e.b))
        if isinstance(e, ir.Call) and (known := ir.INSTRUCTIONS.get(e.name)) is not None:
            return self.expr(known.expand(e.args))
        if isinstance(e, ir.Call) and e.name in EXACT_CALLS:
            return self.expr(e.args[0])
        if isinstance(e, ir.Binary) and not (e.op in ("/", "//", "%") and ir.is_float(e.dtype)):
            a, b = self.expr(e.a), self.expr(e.b)
            if e.dtype == "bool":
                return 1.0
            if e.op in ("+", "-"):
                return a + b
            if e.op == "*":
                return a * b
            if e.op in ("min", "max"):
                return max(a, b)
            return a if e.op == "//" else b if e.op == "%" else math.inf
        raise Inexact
