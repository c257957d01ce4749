"""Random well-formed programs with every kind of node, for round trips and anything else that must
hold for all programs.

`programs()` is the strategy. Indices are always in bounds (reduced modulo the length where needed),
so `verify` accepts each; values are arbitrary, and `while` loops need not end: these programs are
for reading, not for running.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metaschedule import ir

NAMES = [
    "i",
    "j",
    "k",
    "A",
    "B",
    "i_1",
    "T",
    "ms",
    "range",
    "min",
    "for",
    "é",
    "3d",
    "",
    "a b",
    "_",
]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
KINDS = ["serial", "serial", "serial", *ir.LOOP_KINDS]
ARITHMETIC = ["+", "-", "*", "//", "%", "min", "max"]
BITWISE = ["&", "|", "^", "<<", ">>"]
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


def plain_data(depth: int = 2) -> st.SearchStrategy[Any]:
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(TEXTS, inner, max_size=2),
        max_leaves=depth + 1,
    )


ANNOTATIONS = st.just({}) | st.just({}) | st.dictionaries(TEXTS, plain_data(), max_size=2)


def constants(dtype: str) -> st.SearchStrategy[ir.Const]:
    if dtype == "bool":
        return st.booleans().map(ir.const)
    if ir.is_integer(dtype):
        low, high = ir.integer_limits(dtype)
        small = st.integers(max(low, -3), 9)
        return (small | st.integers(low, high)).map(lambda v: ir.const(v, dtype))
    special = st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e-45, 6e-8])
    return (special | st.floats()).map(lambda v: ir.const(v, dtype))


class Maker:
    """Draws a program top down, knowing what is in scope."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.variables: list[ir.Var] = []
        self.readable: list[ir.Buffer] = []
        self.writable: list[ir.Buffer] = []

    def below(self, n: int) -> int:
        return self.draw(st.integers(0, n - 1))

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == 0

    def var(self) -> ir.Var:
        return ir.Var(self.pick(NAMES))

    # --- buffers ---

    def buffer(self, writable: bool = True, **flags: Any) -> ir.Buffer:
        shape = tuple(self.draw(st.lists(st.integers(1, 5), max_size=3)))
        if self.chance(12):
            shape = (*shape, 0)
        b = ir.Buffer(self.pick(NAMES), shape, self.pick(ir.DTYPES), **flags)
        if b.size:
            self.readable.append(b)
            self.writable += [b] if writable else []
        return b

    def alloc(self) -> ir.Buffer:
        if self.chance(3):
            b = self.buffer(writable=False)
            values = [self.draw(constants(b.dtype)).value for _ in range(b.size)]
            b.data = np.array(values, ir.numpy_dtype(b.dtype)).reshape(b.shape)
            b.constant, b.scope = self.chance(5), self.pick(["global", "global", "shared"])
            return b
        return self.buffer(scope=self.pick(["global", "local", "shared", "warp"]))

    def allocs(self) -> tuple[ir.Buffer, ...]:
        return tuple([self.alloc() for _ in range(self.below(3))])

    # --- expressions ---

    def expr(self, dtype: str, depth: int = 3) -> ir.Expr:
        if depth == 0 or self.chance(4):
            return self.leaf(dtype, depth)
        kind = self.below(8)
        if kind == 0:
            cond = self.expr("bool", depth - 1)
            return ir.Select(cond, self.expr(dtype, depth - 1), self.expr(dtype, depth - 1), dtype)
        if kind == 1:
            return ir.Cast(self.expr(self.pick(ir.DTYPES), depth - 1), dtype)
        if dtype == "bool":
            return self.condition(depth)
        a = self.expr(dtype, depth - 1)
        if kind == 2:
            return ir.Unary("-", a, dtype)
        if ir.is_float(dtype) and kind <= 4:
            name = self.pick([f for f in ir.FUNCTIONS if f not in ("isnan", "isinf")])
            args = (a, self.expr(dtype, depth - 1))[: ir.FUNCTIONS[name]]
            return ir.Call(name, args, dtype)
        if kind == 3:
            return ir.Unary("~", a, dtype)
        if kind == 4:
            return ir.Call("abs", (a,), dtype)
        ops = [*ARITHMETIC, "/"] if ir.is_float(dtype) else ARITHMETIC + BITWISE
        return ir.Binary(self.pick(ops), a, self.expr(dtype, depth - 1), dtype)

    def condition(self, depth: int) -> ir.Expr:
        kind = self.below(6)
        if kind == 0:
            return ir.Unary("not", self.expr("bool", depth - 1), "bool")
        if kind == 1:
            op = self.pick(["and", "or"])
            return ir.Binary(op, self.expr("bool", depth - 1), self.expr("bool", depth - 1), "bool")
        if kind == 2:
            a = self.expr(self.pick(ir.FLOATS), depth - 1)
            return ir.Call(self.pick(["isnan", "isinf"]), (a,), "bool")
        dtype = self.pick(ir.DTYPES)
        op = self.pick(COMPARISONS)
        return ir.Binary(op, self.expr(dtype, depth - 1), self.expr(dtype, depth - 1), "bool")

    def leaf(self, dtype: str, depth: int) -> ir.Expr:
        if dtype == ir.INDEX and self.variables and not self.chance(3):
            return self.pick(self.variables)
        held = [b for b in self.readable if b.dtype == dtype]
        if held and not self.chance(3):
            b = self.pick(held)
            return ir.Load(b, self.indices(b, max(0, depth - 1)))
        return self.draw(constants(dtype))

    def indices(self, b: ir.Buffer, depth: int = 1) -> tuple[ir.Expr, ...]:
        return tuple([self.index(length, depth) for length in b.shape])

    def index(self, length: int, depth: int) -> ir.Expr:
        if self.chance(3):
            return ir.const(self.below(length), self.pick([ir.INDEX, ir.INDEX, "int32"]))
        dtype = self.pick([ir.INDEX, ir.INDEX, "int32"])
        return ir.Binary("%", self.expr(dtype, depth), ir.const(length, dtype), dtype)

    def region(self, b: ir.Buffer) -> ir.Region:
        ranges: list[tuple[ir.Expr, ir.Expr]] = []
        for length in b.shape:
            size = ir.const(length + self.below(2), self.pick([ir.INDEX, "int32"]))
            if self.chance(4):
                start = ir.Binary("-", ir.const(0), ir.const(self.below(3)), ir.INDEX)
                size = ir.const(length + 2)
            else:
                start = ir.const(0)
            ranges.append((start, size))
        return ir.Region(b, tuple(ranges))

    # --- statements ---

    def body(self, depth: int, least: int = 0) -> ir.Body:
        return tuple([self.stmt(depth) for _ in range(least + self.below(3))])

    def stmt(self, depth: int) -> ir.Stmt:
        kind = self.below(10)
        if depth == 0 or kind == 0:
            return self.store()
        if kind <= 3:
            return self.loop(depth)
        if kind <= 6:
            return self.block(depth)
        if kind == 7:
            orelse = self.body(depth - 1) if self.chance(2) else ()
            return ir.If(self.expr("bool", 2), self.body(depth - 1), orelse)
        if kind == 8:
            return ir.While(self.expr("bool", 2), self.body(depth - 1))
        if self.chance(2):
            return ir.Assert(self.expr("bool", 2), self.draw(TEXTS))
        return ir.TupleStore(tuple([self.store() for _ in range(2 + self.below(2))]))

    def store(self) -> ir.Store:
        b = self.pick(self.writable)
        return ir.Store(b, self.indices(b), self.expr(b.dtype))

    def loop(self, depth: int) -> ir.For:
        var, kind = self.var(), self.pick(KINDS)
        extent: ir.Expr = ir.const(self.below(5), self.pick([ir.INDEX, ir.INDEX, "int32"]))
        if kind in ir.GPU_AXES:
            extent = ir.const(2 + ir.GPU_AXES.index(kind))
        elif self.chance(4):
            extent = self.expr(self.pick([ir.INDEX, "int32", "uint8"]), 2)
            if isinstance(extent, ir.Const):
                extent = ir.const(3)
        self.variables.append(var)
        body = self.body(depth - 1)
        self.variables.pop()
        return ir.For(var, extent, body, kind, self.draw(ANNOTATIONS))

    def block(self, depth: int) -> ir.Block:
        iters: list[ir.Iter] = []
        bindings: list[ir.Expr] = []
        for _ in range(self.below(4)):
            n = 1 + self.below(4)
            extent = ir.const(n) if not self.chance(5) else self.expr(ir.INDEX, 1)
            if isinstance(extent, ir.Const):
                extent = ir.const(n)
            iters.append(ir.Iter(self.var(), extent, self.pick(ir.ITER_KINDS)))
            bindings.append(self.index(n, 1))
        predicate = tuple([self.expr("bool", 2) for _ in range(self.below(3) // 2)])
        outer = self.variables, list(self.readable), list(self.writable)
        self.variables = [it.var for it in iters]
        outside = list(self.readable)
        reads = tuple([self.region(b) for b in outside])
        writes = tuple([self.region(b) for b in self.writable])
        allocs = self.allocs()
        reduces = any(it.kind == "reduce" for it in iters)
        init = (self.store(),) if reduces and self.chance(2) else ()
        body = self.body(depth - 1)
        self.variables, self.readable, self.writable = outer
        return ir.Block(
            self.draw(TEXTS),
            tuple(iters),
            tuple(bindings),
            reads,
            writes,
            body,
            init,
            predicate,
            allocs,
            self.draw(ANNOTATIONS),
        )

    def program(self) -> ir.Program:
        inputs = tuple([self.buffer(writable=False, constant=self.chance(3)) for _ in range(self.below(4))])
        outputs = tuple([self.buffer() for _ in range(1 + self.below(2))])
        if not self.writable:
            b = ir.Buffer("out", (2,), "float32")
            self.writable.append(b)
            outputs = (*outputs, b)
        allocs = self.allocs()
        body = self.body(3, least=1)
        for b in outputs:
            if b.size:
                zero = tuple([ir.const(0) for _ in b.shape])
                body += (ir.Store(b, zero, self.expr(b.dtype)),)
        name = self.pick(NAMES)
        return ir.Program(name, inputs, outputs, body, allocs, self.draw(ANNOTATIONS))


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> ir.Program:
    return Maker(draw).program()
