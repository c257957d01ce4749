"""Functions of floats as LLVM functions of so many lanes, of which a module has those that it calls.

Their bodies are expressions (`codegen.math`), compiled like all others but in one straight line, where a
subexpression that occurs twice is computed once. What only the C library has is called there: its function of
vectors (libmvec), else one for each lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ... import ir
from ...ir import Binary, Expr, Select, Var
from ...ir.visit import operands
from ...runtime.loader import find_symbol
from ...target import Target
from .. import math
from ..math.steps import LIBRARY, library
from .arithmetic import function_symbol
from .expressions import ExpressionEmitter
from .function import Function
from .values import BYTES, Operand, intrinsic_suffix, register_type

# libmvec's letters of instruction sets and the bytes of their vectors, widest first, with the feature needed.
LIBMVEC = (("e", 64, "avx512f"), ("d", 32, "avx2"), ("b", 16, "sse2"))
Libraries = tuple[tuple[str, int], ...]  # letters and bytes of those that a target has


@dataclass(frozen=True, slots=True)
class Defined:
    """The text of a function, the `declare` lines it needs, and the C library's symbols among them."""

    text: str
    declared: frozenset[str]
    externals: frozenset[str]


def vector_libraries(target: Target) -> Libraries:
    """libmvec's instruction sets that a target has; none where there is no libmvec.

    Not for wider vectors than the target's: those are not passed in one register.
    """
    if target.arch != "x86_64" or not target.triple.endswith("linux-gnu"):
        return ()
    return tuple([(x, size) for x, size, need in LIBMVEC if target.has(need) and size <= target.vector_bytes])


@cache
def define(name: str, dtype: str, lanes: int, libraries: Libraries = ()) -> Defined:
    """The function of this name: `define internal`, for sin, cos, tan of float32 with a cold helper."""
    params = [Var(arg, dtype) for arg in "xy"[: ir.FUNCTIONS[name]]]
    body = math.expression(name, *params)
    if dtype == "float32" and name in math.PERIODIC:
        return define_periodic(name, lanes, params[0], body)
    emitter = FunctionEmitter(function_symbol(name, dtype, lanes), params, body.dtype, lanes, libraries)
    return emitter.define(emitter.evaluate(body))


def define_periodic(name: str, lanes: int, x: Var, near: Expr) -> Defined:
    """The inline function, and the C library's in lanes past `FAR`, behind a branch.

    The other lanes keep their value, so that a result never depends on its neighbours.
    """
    symbol, kept, is_far = function_symbol(name, x.dtype, lanes), Var("near", x.dtype), abs(x) > math.FAR
    slow = FunctionEmitter(f"{symbol}.far", (x, kept), x.dtype, lanes, (), "noinline cold nounwind")
    chosen = slow.define(slow.evaluate(ir.select(is_far, library(name, x), kept)))
    fast = FunctionEmitter(symbol, (x,), x.dtype, lanes)
    value, far = fast.evaluate(near), fast.evaluate(is_far)
    some = far.text if lanes == 1 else fast.intrinsic_any(far)
    fast.declare("i1 @llvm.expect.i1(i1, i1)")
    unlikely = fast.f.emit(f"call i1 @llvm.expect.i1(i1 {some}, i1 false)")

    def call_slow() -> Operand:
        given = f"{fast.evaluate(x).typed}, {value.typed}"
        return fast.operation(f"call {value.type} @{symbol}.far({given})", x.dtype, value)

    whole = fast.define(fast.f.choose(unlikely, call_slow, lambda: value))
    return Defined(chosen.text + whole.text, chosen.declared | whole.declared, chosen.externals)


class FunctionEmitter(ExpressionEmitter):
    """A function of values in one straight line. Nothing in it reads memory or traps, so both sides of a
    `select` and of a condition are evaluated; nothing is contracted."""

    def __init__(
        self,
        symbol: str,
        params: Iterable[Var],
        result: str,
        lanes: int,
        libraries: Libraries = (),
        attributes: str = "alwaysinline nounwind",
    ) -> None:
        self.values: dict[Expr, Operand] = {p: Operand(f"%{p.name}", p.dtype, lanes) for p in params}
        listed = [value.typed for value in self.values.values()]
        self.result = register_type(result, lanes)
        super().__init__(Function(symbol, listed, attributes, self.result), vector_bytes=0, fma=False)
        self.lanes, self.libraries = lanes, libraries
        self.externals: set[str] = set()
        self.heights: dict[Expr, int] = {}

    def define(self, value: Operand) -> Defined:
        self.f.effect(f"ret {self.result} {self.spread(value).text}")
        return Defined(f"{self.f.text()}\n", frozenset(self.declared), frozenset(self.externals))

    def evaluate(self, e: Expr) -> Operand:
        """Once, and of its operands the highest first: what is computed early waits in a register."""
        if e not in self.values:
            for operand in sorted(operands(e), key=self.height, reverse=True):
                self.evaluate(operand)
            self.values[e] = self.compute(e)
        return self.values[e]

    def height(self, e: Expr) -> int:
        if e not in self.heights:
            self.heights[e] = 1 + max(map(self.height, operands(e)), default=0)
        return self.heights[e]

    def select(self, e: Select) -> Operand:
        cond, a, b = self.level(self.evaluate(e.cond), self.evaluate(e.a), self.evaluate(e.b))
        return self.operation(f"select {cond.typed}, {a.typed}, {b.typed}", e.dtype, a)

    def logical(self, e: Binary) -> Operand:
        a, b = self.level(self.evaluate(e.a), self.evaluate(e.b))
        return self.operation(f"{e.op} {a.typed}, {b.text}", "bool", a)

    def call(self, name: str, args: list[Operand], dtype: str) -> Operand:
        """Also those that no program has: `fma`, `bitcast`, and the C library's."""
        args = self.level(*args)
        if name == "fma":
            return self.intrinsic("fma", dtype, *args)
        if name == "bitcast":
            to = register_type(dtype, args[0].lanes)
            return self.operation(f"bitcast {args[0].typed} to {to}", dtype, args[0])
        if name.startswith(LIBRARY):
            return self.call_library(name.removeprefix(LIBRARY), args)
        return super().call(name, args, dtype)

    def call_library(self, name: str, args: list[Operand]) -> Operand:
        """The C library's function of vectors, the widest that divide the lanes; else one call for each."""
        size = BYTES[args[0].dtype]
        name += "f" if size == 4 else ""
        for letter, vector_bytes in self.libraries:
            lanes = vector_bytes // size
            symbol = f"_ZGV{letter}N{lanes}{'v' * len(args)}_{name}"
            if self.lanes % lanes == 0 and find_symbol(symbol):
                return self.call_pieces(symbol, args, lanes)
        return self.call_pieces(name, args, 1)

    def call_pieces(self, symbol: str, args: list[Operand], lanes: int) -> Operand:
        """A symbol of the C library called for so many lanes at a time."""
        dtype, of = args[0].dtype, register_type(args[0].dtype, lanes)
        self.externals.add(symbol)
        self.declare(f"{of} @{symbol}({', '.join([of] * len(args))}) nounwind willreturn memory(none)")
        result = Operand("poison", dtype, self.lanes)
        for start in range(0, self.lanes, lanes):
            given = ", ".join([f"{of} {self.piece(a, start, lanes)}" for a in args])
            called = Operand(self.f.emit(f"call {of} @{symbol}({given})"), dtype, lanes)
            if lanes == self.lanes:
                return called
            result = self.insert_piece(result, called, start)
        return result

    def piece(self, v: Operand, start: int, lanes: int) -> str:
        if lanes == v.lanes:
            return v.text
        if lanes == 1:
            return self.f.emit(f"extractelement {v.typed}, i64 {start}")
        whole, part = intrinsic_suffix(v.dtype, v.lanes), intrinsic_suffix(v.dtype, lanes)
        symbol = f"{register_type(v.dtype, lanes)} @llvm.vector.extract.{part}.{whole}"
        self.declare(f"{symbol}({v.type}, i64)")
        return self.f.emit(f"call {symbol}({v.typed}, i64 {start})")

    def insert_piece(self, v: Operand, piece: Operand, start: int) -> Operand:
        if piece.lanes == 1:
            return self.operation(f"insertelement {v.typed}, {piece.typed}, i64 {start}", v.dtype, v)
        whole, part = intrinsic_suffix(v.dtype, v.lanes), intrinsic_suffix(v.dtype, piece.lanes)
        symbol = f"{v.type} @llvm.vector.insert.{whole}.{part}"
        self.declare(f"{symbol}({v.type}, {piece.type}, i64)")
        return self.operation(f"call {symbol}({v.typed}, {piece.typed}, i64 {start})", v.dtype, v)
