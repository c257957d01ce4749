"""Expressions to LLVM: scalars outside vectorised loops, vectors of lanes inside.

Read `affine` and `evaluate` first. Integer index expressions are kept as `Affine` (a constant, multiples
of SSA values, a multiple of the lane number) as long as possible: constants of unrolled loops fold into
it, addresses that differ by a constant share a base, and the multiple of the lane number says at once
whether an access is a broadcast, contiguous, reversed or a gather.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...arith import Domain, simplify
from ...ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    as_int,
    cast,
    const,
    integer_limits,
    is_float,
    is_integer,
    subexpressions,
)
from .. import math as vector_math
from ..lower.scope import has_load
from .function import Function
from .values import (
    BYTES,
    NARROW_FLOATS,
    Value,
    constant,
    intrinsic_suffix,
    memory_type,
    register_type,
    vector_literal,
    widened,
)

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
INTEGER_OPS = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
TRUE, FALSE = Value("true", "bool"), Value("false", "bool")


@dataclass
class Affine:
    """const + sum(coefficient * SSA value) + lane * (lane number) + sum(coefficient * vector)"""

    const: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    lane: int = 0
    vectors: tuple[tuple[int, Value], ...] = ()

    def plus(self, other: Affine, factor: int) -> Affine:
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            total = terms.get(name, 0) + factor * coefficient
            if total:
                terms[name] = total
            else:
                terms.pop(name, None)
        vectors = self.vectors + tuple((c * factor, v) for c, v in other.vectors)
        return Affine(
            self.const + factor * other.const, terms, self.lane + factor * other.lane, vectors
        )

    @property
    def key(self) -> Hashable:
        return self.const, frozenset(self.terms.items()), self.lane, self.vectors

    @property
    def is_constant(self) -> bool:
        return not self.terms and not self.vectors and not self.lane

    @property
    def is_fixed(self) -> bool:
        """Known now, but for the lane."""
        return not self.terms and not self.vectors

    @property
    def is_uniform(self) -> bool:
        """The same in every lane."""
        return not self.lane and not self.vectors


class ExpressionEmitter:
    """State shared by expressions and statements of one function."""

    def __init__(self, function: Function, fma: bool = True) -> None:
        self.f = function
        self.flags = "contract " if fma else ""
        self.env: dict[Var, Affine] = {}
        self.domain = Domain()
        self.lanes = 1  # lanes of the vectorised loop around, 1 outside
        self.mask: Value | None = None  # which lanes are active; None: all
        self.flat: dict[int, tuple[tuple[Expr, ...], Expr]] = {}
        self.known: list[dict[Hashable, Any]] = [{}]  # addresses and divisions, by scope
        self.declared: set[str] = set()  # `declare` lines of the module
        self.math_used: set[tuple[str, str, int]] = set()

    # --- to be provided by the statement emitter ---

    def base(self, buffer: Buffer) -> str:
        """The pointer to the first element of a buffer."""
        raise NotImplementedError

    # --- scopes ---

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not dominate what follows."""
        self.known.append({})
        yield
        self.known.pop()

    @contextmanager
    def masked(self, mask: Value | None) -> Iterator[None]:
        saved, self.mask = self.mask, mask
        with self.scope():
            yield
        self.mask = saved

    def declare(self, line: str) -> None:
        self.declared.add(f"declare {line}")

    # --- integer index expressions ---

    def affine(self, e: Expr) -> Affine:
        """An int64 expression as an affine form."""
        if isinstance(e, Const):
            return Affine(int(e.value))
        if isinstance(e, Var):
            return self.env[e]
        if isinstance(e, Binary):
            if e.op in ("+", "-"):
                return self.affine(e.a).plus(self.affine(e.b), 1 if e.op == "+" else -1)
            if e.op == "*":
                a, b = self.affine(e.a), self.affine(e.b)
                if b.is_constant or a.is_constant:
                    a, b = (a, b) if b.is_constant else (b, a)
                    return Affine().plus(a, b.const) if b.const else Affine()
            elif e.op in ("//", "%", "min", "max"):
                a, b = self.affine(e.a), self.affine(e.b)
                if a.is_constant and b.is_constant and (b.const or e.op in ("min", "max")):
                    fold = {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}
                    return Affine(fold[e.op](wrapped(a.const), wrapped(b.const)))
                return self.once(e, a, b)
        return self.as_affine(self.compute(e))

    def once(self, e: Binary, a: Affine, b: Affine) -> Affine:
        """A division, remainder, minimum or maximum, computed where it is first met."""
        key = (e.op, a.key, b.key)
        for known in reversed(self.known):
            if key in known:
                return known[key]
        left, right = self.level(self.materialise(a), self.materialise(b))
        result = self.as_affine(self.arithmetic(e, left, right))
        self.known[-1][key] = result
        return result

    def as_affine(self, value: Value) -> Affine:
        if value.lanes > 1:
            return Affine(vectors=((1, value),))
        known = known_integer(value)
        return Affine(known) if known is not None else Affine(0, {value.text: 1})

    def uniform_part(self, a: Affine, flags: str = "") -> str:
        """The scalar const + terms of an affine form, as an i64 operand. Addresses do not overflow
        (`flags` is "nsw "), but values of an int64 tensor may, and then wrap round."""
        total = None
        for name, coefficient in a.terms.items():
            if coefficient != 1:
                name = self.f.emit(f"mul {flags}i64 {name}, {wrapped(coefficient)}")
            total = name if total is None else self.f.emit(f"add {flags}i64 {total}, {name}")
        if total is None:
            return str(wrapped(a.const))
        return self.f.emit(f"add {flags}i64 {total}, {wrapped(a.const)}") if a.const else total

    def materialise(self, a: Affine) -> Value:
        """An affine form as a value; a vector if it differs between lanes."""
        scalar = Value(self.uniform_part(a), "int64")
        if a.is_uniform:
            return scalar
        total = self.spread(scalar)
        if a.lane:
            steps = vector_literal([wrapped(a.lane * n) for n in range(self.lanes)], "int64")
            total = Value(self.f.emit(f"add {total.typed}, {steps.text}"), "int64", self.lanes)
        for coefficient, vector in a.vectors:
            if coefficient != 1:
                by = constant(wrapped(coefficient), "int64", self.lanes)
                vector = vector._replace(text=self.f.emit(f"mul {vector.typed}, {by.text}"))
            total = total._replace(text=self.f.emit(f"add {total.typed}, {vector.text}"))
        return total

    # --- values ---

    def evaluate(self, e: Expr) -> Value:
        """The value of any expression: a scalar if it is the same in every lane."""
        if e.dtype == "int64" and isinstance(e, (Var, Const, Binary)):
            return self.materialise(self.affine(e))
        return self.compute(e)

    def compute(self, e: Expr) -> Value:
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        if isinstance(e, Load):
            return self.load(e)
        if isinstance(e, Binary):
            if e.op in ("and", "or"):
                return self.logical(e)
            if e.op in COMPARE and e.a.dtype == "int64":
                return self.compare_indices(e)
            a, b = self.level(self.evaluate(e.a), self.evaluate(e.b))
            if e.op in COMPARE:
                return self.compare(e.op, a, b)
            return self.arithmetic(e, a, b)
        if isinstance(e, Select):
            return self.select(e)
        if isinstance(e, Cast):
            return self.cast(self.evaluate(e.a), e.dtype)
        if isinstance(e, Unary):
            return self.unary(e.op, self.evaluate(e.a))
        if isinstance(e, Call):
            return self.call(e.name, [self.evaluate(arg) for arg in e.args], e.dtype)
        raise TypeError(f"cannot compile {type(e).__name__}")

    def spread(self, v: Value) -> Value:
        """A scalar in every lane of the vectorised loop."""
        if v.lanes == self.lanes:
            return v
        if v.text[0] != "%":
            return Value(f"splat ({v.typed})", v.dtype, self.lanes)
        element, vector = v.type, register_type(v.dtype, self.lanes)
        one = self.f.emit(f"insertelement {vector} poison, {element} {v.text}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        text = self.f.emit(f"shufflevector {vector} {one}, {vector} poison, {zeros}")
        return Value(text, v.dtype, self.lanes)

    def level(self, *values: Value) -> list[Value]:
        """All scalars, or all vectors."""
        if all(v.lanes == 1 for v in values):
            return list(values)
        return [self.spread(v) for v in values]

    def operation(self, text: str, dtype: str, like: Value) -> Value:
        return Value(self.f.emit(text), dtype, like.lanes)

    def intrinsic(self, name: str, dtype: str, *args: Value, extra: str = "") -> Value:
        """A call of an intrinsic overloaded on the type of its first argument."""
        lanes = args[0].lanes
        symbol = f"@llvm.{name}.{intrinsic_suffix(args[0].dtype, lanes)}"
        result = register_type(dtype, lanes)
        types = ", ".join(a.type for a in args) + (", i1" if extra else "")
        self.declare(f"{result} {symbol}({types})")
        operands = ", ".join(a.typed for a in args) + (f", {extra}" if extra else "")
        return Value(self.f.emit(f"call {result} {symbol}({operands})"), dtype, lanes)

    # --- conditions ---

    def compare_indices(self, e: Binary) -> Value:
        """A comparison of int64s, folded where only constants and the lane number take part."""
        a, b = self.affine(e.a), self.affine(e.b)
        difference = a.plus(b, -1)
        if difference.terms or difference.vectors:
            known = False
        else:  # x + 1 > x holds for indices, but not for values in memory, which wrap round
            known = (a.is_fixed and b.is_fixed) or not (has_load(e.a) or has_load(e.b))
        if known:
            lanes = range(self.lanes) if difference.lane else range(1)
            results = [COMPARE[e.op](difference.const + difference.lane * n, 0) for n in lanes]
            if all(results):
                return TRUE
            return vector_literal(results, "bool") if any(results) else FALSE
        left, right = self.level(self.materialise(a), self.materialise(b))
        return self.compare(e.op, left, right)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        if is_float(a.dtype):
            return self.operation(f"fcmp {ORDERED[op]} {a.typed}, {b.text}", "bool", a)
        table = UNSIGNED if a.dtype in ("uint8", "bool") else SIGNED
        return self.operation(f"icmp {table[op]} {a.typed}, {b.text}", "bool", a)

    def logical(self, e: Binary) -> Value:
        """`and` / `or`; the second condition is evaluated only where the first leaves it open."""
        a = self.evaluate(e.a)
        decisive = "false" if e.op == "and" else "true"
        if a.text in ("true", "false"):
            return a if a.text == decisive else self.evaluate(e.b)
        if is_harmless(e.b):
            b = self.evaluate(e.b)
        elif a.lanes == 1 and self.lanes == 1:
            here = Value(decisive, "bool")

            def second() -> Value:
                with self.scope():
                    return self.evaluate(e.b)

            if e.op == "and":
                return self.f.choose(a.text, second, lambda: here)
            return self.f.choose(a.text, lambda: here, second)
        else:
            with self.masked(self.mask_and(a if e.op == "and" else self.negate(a))):
                b = self.evaluate(e.b)
        if b.text in ("true", "false"):
            return b if b.text == decisive else a
        a, b = self.level(a, b)
        return self.operation(f"{e.op} {a.typed}, {b.text}", "bool", a)

    def negate(self, v: Value) -> Value:
        if v.text in ("true", "false"):
            return FALSE if v.text == "true" else TRUE
        return self.operation(f"xor {v.typed}, {constant(True, 'bool', v.lanes).text}", "bool", v)

    def mask_and(self, v: Value) -> Value:
        """The active lanes in which `v` holds."""
        v = self.spread(v)
        if self.mask is None:
            return v
        return self.operation(f"and {self.mask.typed}, {v.text}", "bool", v)

    def select(self, e: Select) -> Value:
        cond = self.evaluate(e.cond)
        if cond.text in ("true", "false"):
            return self.evaluate(e.a if cond.text == "true" else e.b)
        harmless = is_harmless(e.a) and is_harmless(e.b)
        uniform = self.lanes == 1 or (self.is_uniform(e.a) and self.is_uniform(e.b))
        if cond.lanes == 1 and not harmless and uniform:

            def branch(part: Expr) -> Callable[[], Value]:
                def inside() -> Value:
                    with self.scope():
                        return self.evaluate(part)

                return inside

            return self.f.choose(cond.text, branch(e.a), branch(e.b))
        if cond.lanes == 1 and not harmless:  # lanes agree: still a branch, but on vectors

            def wide(part: Expr) -> Callable[[], Value]:
                def inside() -> Value:
                    with self.scope():
                        return self.spread(self.evaluate(part))

                return inside

            return self.f.choose(cond.text, wide(e.a), wide(e.b))
        if cond.lanes == 1 or harmless:
            a, b = self.evaluate(e.a), self.evaluate(e.b)
        else:
            with self.masked(self.mask_and(cond)):
                a = self.evaluate(e.a)
            with self.masked(self.mask_and(self.negate(cond))):
                b = self.evaluate(e.b)
        if cond.lanes > 1:
            a, b = self.spread(a), self.spread(b)
        else:
            a, b = self.level(a, b)
        return self.operation(f"select {cond.typed}, {a.typed}, {b.typed}", e.dtype, a)

    def is_uniform(self, e: Expr) -> bool:
        """Whether an expression is evaluated to a scalar, the same in every lane."""
        return all(self.env[x].is_uniform for x in subexpressions(e) if isinstance(x, Var))

    # --- arithmetic ---

    def arithmetic(self, e: Binary, a: Value, b: Value) -> Value:
        op, dtype = e.op, e.dtype
        if is_float(dtype):
            if op in FLOAT_OPS:
                text = f"{FLOAT_OPS[op]} {self.flags}{a.typed}, {b.text}"
                return self.rounded(self.operation(text, dtype, a))
            if op in ("min", "max"):
                return self.float_extreme(op, a, b)
            return self.rounded(self.float_division(op, a, b))
        if op in INTEGER_OPS:
            return self.operation(f"{INTEGER_OPS[op]} {a.typed}, {b.text}", dtype, a)
        if op in ("min", "max"):
            return self.intrinsic(("u" if dtype == "uint8" else "s") + op, dtype, a, b)
        if op in ("<<", ">>"):
            return self.shift(op, a, b)
        return self.integer_division(e, a, b)

    def float_extreme(self, op: str, a: Value, b: Value) -> Value:
        """min or max that gives NaN if either is NaN.

        x86's minps/maxps give the second operand if either is NaN, which is what `select(a > b, a, b)`
        means; so only a NaN in `a` needs a look, and none where `a` is a constant.
        """
        if is_literal(b):
            a, b = b, a
        better = self.operation(f"fcmp {'olt' if op == 'min' else 'ogt'} {a.typed}, {b.text}", "bool", a)
        best = self.operation(f"select {better.typed}, {a.typed}, {b.typed}", a.dtype, a)
        if is_literal(a) and "0x7FF8" not in a.text:  # NaN
            return best
        nan = self.operation(f"fcmp uno {a.typed}, {a.text}", "bool", a)
        return self.operation(f"select {nan.typed}, {a.typed}, {best.typed}", a.dtype, a)

    def float_division(self, op: str, a: Value, b: Value) -> Value:
        """`//` and `%` of floats as Python and NumPy have them: the remainder has the divisor's sign."""
        zero = constant(0.0, a.dtype, a.lanes)
        rest = self.operation(f"frem {a.typed}, {b.text}", a.dtype, a)
        nonzero = self.operation(f"fcmp une {rest.typed}, {zero.text}", "bool", a)
        low = self.operation(f"fcmp olt {rest.typed}, {zero.text}", "bool", a)
        down = self.operation(f"fcmp olt {b.typed}, {zero.text}", "bool", a)
        differ = self.operation(f"xor {low.typed}, {down.text}", "bool", a)
        fix = self.operation(f"and {nonzero.typed}, {differ.text}", "bool", a)
        if op == "%":
            moved = self.operation(f"fadd {rest.typed}, {b.text}", a.dtype, a)
            signed = self.intrinsic("copysign", a.dtype, zero, b)
            still = self.operation(f"select {nonzero.typed}, {rest.typed}, {signed.typed}", a.dtype, a)
            return self.operation(f"select {fix.typed}, {moved.typed}, {still.typed}", a.dtype, a)
        whole = self.operation(f"fsub {a.typed}, {rest.text}", a.dtype, a)
        quotient = self.operation(f"fdiv {whole.typed}, {b.text}", a.dtype, a)
        one = constant(1.0, a.dtype, a.lanes)
        less = self.operation(f"fsub {quotient.typed}, {one.text}", a.dtype, a)
        exact = self.operation(f"select {fix.typed}, {less.typed}, {quotient.typed}", a.dtype, a)
        near = self.intrinsic("rint", a.dtype, exact)  # exact but for rounding of the quotient
        by_zero = self.operation(f"fcmp oeq {b.typed}, {zero.text}", "bool", a)
        plain = self.operation(f"fdiv {a.typed}, {b.text}", a.dtype, a)
        return self.operation(f"select {by_zero.typed}, {plain.typed}, {near.typed}", a.dtype, a)

    def integer_division(self, e: Binary, a: Value, b: Value) -> Value:
        """`//` and `%` rounding down."""
        dtype, divide, divisor = e.dtype, e.op == "//", as_int(e.b)
        zero = constant(0, dtype, a.lanes)
        unsigned = dtype == "uint8"
        if not unsigned and divisor is not None and divisor > 0 and dtype == "int64":
            low, _ = self.domain.bounds(e.a)
            unsigned = low is not None and low >= 0
        one = constant(1, dtype, a.lanes)
        if unsigned:
            if not divisor:
                b = self.replaced(b, self.operation(f"icmp eq {b.typed}, {zero.text}", "bool", b), one)
            return self.operation(f"{'udiv' if divide else 'urem'} {a.typed}, {b.text}", dtype, a)
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            if divide:
                by = constant(divisor.bit_length() - 1, dtype, a.lanes)
                return self.operation(f"ashr {a.typed}, {by.text}", dtype, a)
            low_bits = constant(divisor - 1, dtype, a.lanes)
            return self.operation(f"and {a.typed}, {low_bits.text}", dtype, a)
        # Idle lanes divide by anything, and the least number by -1 overflows: both would trap.
        opposite: Value | None = None
        if not divisor or divisor == -1:
            next_up = self.operation(f"add {b.typed}, {one.text}", dtype, b)
            two = constant(2, dtype, a.lanes)
            odd = self.operation(f"icmp ult {next_up.typed}, {two.text}", "bool", b)  # 0 or -1
            opposite = self.operation(f"icmp slt {b.typed}, {zero.text}", "bool", b)
            opposite = self.operation(f"and {opposite.typed}, {odd.text}", "bool", b)
            b = self.replaced(b, odd, one)
        rest = self.operation(f"srem {a.typed}, {b.text}", dtype, a)
        nonzero = self.operation(f"icmp ne {rest.typed}, {zero.text}", "bool", a)
        signs = self.operation(f"xor {rest.typed}, {b.text}", dtype, a)
        differ = self.operation(f"icmp slt {signs.typed}, {zero.text}", "bool", a)
        fix = self.operation(f"and {nonzero.typed}, {differ.text}", "bool", a)
        if divide:
            quotient = self.operation(f"sdiv {a.typed}, {b.text}", dtype, a)
            down = self.operation(f"sext {fix.typed} to {a.type}", dtype, a)
            whole = self.operation(f"add {quotient.typed}, {down.text}", dtype, a)
            if opposite is None:
                return whole
            negative = self.operation(f"sub {zero.typed}, {whole.text}", dtype, a)
            return self.replaced(whole, opposite, negative)
        moved = self.operation(f"add {rest.typed}, {b.text}", dtype, a)
        return self.operation(f"select {fix.typed}, {moved.typed}, {rest.typed}", dtype, a)

    def replaced(self, v: Value, where: Value, by: Value) -> Value:
        return self.operation(f"select {where.typed}, {by.typed}, {v.typed}", v.dtype, v)

    def shift(self, op: str, a: Value, b: Value) -> Value:
        """Shifts by the width or more give 0 (or the sign), as NumPy has it."""
        bits = BYTES[a.dtype] * 8
        arithmetic = op == ">>" and a.dtype != "uint8"
        last = constant(bits - 1, a.dtype, a.lanes)
        inside = self.operation(f"icmp ule {b.typed}, {last.text}", "bool", a)
        amount = self.operation(f"select {inside.typed}, {b.typed}, {last.typed}", a.dtype, a)
        name = "shl" if op == "<<" else "ashr" if arithmetic else "lshr"
        result = self.operation(f"{name} {a.typed}, {amount.text}", a.dtype, a)
        if arithmetic:
            return result
        zero = constant(0, a.dtype, a.lanes)
        return self.operation(f"select {inside.typed}, {result.typed}, {zero.typed}", a.dtype, a)

    def unary(self, op: str, v: Value) -> Value:
        if op == "not":
            return self.negate(v)
        if op == "~":
            ones = constant(-1, v.dtype, v.lanes)
            return self.operation(f"xor {v.typed}, {ones.text}", v.dtype, v)
        if is_float(v.dtype):
            return self.operation(f"fneg {v.typed}", v.dtype, v)
        zero = constant(0, v.dtype, v.lanes)
        return self.operation(f"sub {zero.typed}, {v.text}", v.dtype, v)

    def call(self, name: str, args: list[Value], dtype: str) -> Value:
        args = self.level(*args)
        first = args[0]
        if is_integer(first.dtype):  # abs
            if first.dtype == "uint8":
                return first
            return self.intrinsic("abs", first.dtype, first, extra="i1 false")
        working = "float64" if first.dtype == "float64" else "float32"
        self.math_used.add((name, working, first.lanes))
        symbol = vector_math.symbol(name, working, first.lanes)
        operands = ", ".join(a.typed for a in args)
        text = self.f.emit(f"call {register_type(dtype, first.lanes)} @{symbol}({operands})")
        return self.rounded(Value(text, dtype, first.lanes))

    # --- conversions ---

    def rounded(self, v: Value) -> Value:
        """A narrow float, computed in float32, rounded to the precision of its dtype."""
        if v.dtype == "float16":
            half = self.f.emit(f"fptrunc {v.typed} to {widened('half', v.lanes)}")
            return self.operation(f"fpext {widened('half', v.lanes)} {half} to {v.type}", v.dtype, v)
        if v.dtype == "bfloat16":
            high = self.bfloat_bits(v)
            return self.operation(f"bitcast {widened('i32', v.lanes)} {high} to {v.type}", v.dtype, v)
        return v

    def bfloat_bits(self, v: Value) -> str:
        """The bits of a float32 rounded to nearest even at bit 16, as an i32 with zeros below."""
        i32 = widened("i32", v.lanes)

        def splat(n: int) -> str:
            return str(n) if v.lanes == 1 else f"splat (i32 {n})"

        bits = self.f.emit(f"bitcast {v.typed} to {i32}")
        top = self.f.emit(f"lshr {i32} {bits}, {splat(16)}")
        odd = self.f.emit(f"and {i32} {top}, {splat(1)}")
        bias = self.f.emit(f"add {i32} {odd}, {splat(0x7FFF)}")
        up = self.f.emit(f"add {i32} {bits}, {bias}")
        quiet = self.f.emit(f"or {i32} {bits}, {splat(0x400000)}")
        nan = self.f.emit(f"fcmp uno {v.typed}, {v.text}")
        cond = widened("i1", v.lanes)
        chosen = self.f.emit(f"select {cond} {nan}, {i32} {quiet}, {i32} {up}")
        return self.f.emit(f"and {i32} {chosen}, {splat(-65536)}")

    def cast(self, v: Value, dtype: str) -> Value:
        source = v.dtype
        target = register_type(dtype, v.lanes)
        if source == dtype:
            return v
        if is_float(source) and is_float(dtype):
            if v.type == target:
                return self.rounded(v._replace(dtype=dtype))
            op = "fpext" if dtype == "float64" else "fptrunc"
            if (source, dtype) == ("float64", "float16"):
                return self.rounded(self.rounded_to_odd(v))
            return self.rounded(self.operation(f"{op} {v.typed} to {target}", dtype, v))
        if is_float(source):
            if dtype == "bool":
                zero = constant(0.0, source, v.lanes)
                return self.operation(f"fcmp une {v.typed}, {zero.text}", "bool", v)
            return self.float_to_integer(v, dtype)
        if is_float(dtype):
            op = "uitofp" if source in ("uint8", "bool") else "sitofp"
            return self.rounded(self.operation(f"{op} {v.typed} to {target}", dtype, v))
        if dtype == "bool":
            zero = constant(0, source, v.lanes)
            return self.operation(f"icmp ne {v.typed}, {zero.text}", "bool", v)
        if BYTES[dtype] == BYTES[source] and source != "bool":
            return v._replace(dtype=dtype)
        if source == "bool" or BYTES[dtype] > BYTES[source]:
            op = "zext" if source in ("uint8", "bool") else "sext"
        else:
            op = "trunc"
        return self.operation(f"{op} {v.typed} to {target}", dtype, v)

    def rounded_to_odd(self, v: Value) -> Value:
        """A float64 on its way to float16: cut to 24 bits of which the last is 1 if any was lost, so
        that the next rounding is the only one."""
        single, i32 = widened("float", v.lanes), widened("i32", v.lanes)
        near = self.operation(f"fptrunc {v.typed} to {single}", "float32", v)
        back = self.operation(f"fpext {near.typed} to {v.type}", "float64", v)
        inexact = self.f.emit(f"fcmp one {v.typed}, {back.text}")
        sizes = [self.intrinsic("fabs", "float64", x) for x in (v, back)]
        above = self.f.emit(f"fcmp olt {sizes[0].typed}, {sizes[1].text}")
        bits = self.f.emit(f"bitcast {near.typed} to {i32}")
        down = self.f.emit(f"sext {widened('i1', v.lanes)} {above} to {i32}")
        cut = self.f.emit(f"add {i32} {bits}, {down}")
        odd = self.f.emit(f"or {i32} {cut}, {constant(1, 'int32', v.lanes).text}")
        mask = widened("i1", v.lanes)
        chosen = self.f.emit(f"select {mask} {inexact}, {i32} {odd}, {i32} {bits}")
        return self.operation(f"bitcast {i32} {chosen} to {single}", "float16", v)

    def float_to_integer(self, v: Value, dtype: str) -> Value:
        """Towards zero; out of range saturates (32 and 64 bits) instead of being undefined. The 8 and
        16-bit types go through 32 bits and wrap, as x86 and NumPy on it do."""
        through = "int64" if dtype == "int64" else "int32"
        symbol = (
            f"@llvm.fptosi.sat.{intrinsic_suffix(through, v.lanes)}."
            f"{intrinsic_suffix(v.dtype, v.lanes)}"
        )
        wide = register_type(through, v.lanes)
        self.declare(f"{wide} {symbol}({v.type})")
        number = self.operation(f"call {wide} {symbol}({v.typed})", through, v)
        return self.cast(number, dtype)

    # --- memory ---

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Affine:
        """The flat offset of an element, in elements."""
        if any(has_division(index) for index in indices):
            return self.affine(self.flat_index(buffer, indices))
        total, stride = Affine(), 1
        for index, extent in zip(reversed(indices), reversed(buffer.shape), strict=True):
            total = total.plus(self.affine(cast(index, "int64")), stride)
            stride *= extent
        return total

    def flat_index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The flat offset as one expression: `(q // 3) * 3 + q % 3` is `q`, and contiguous."""
        known = self.flat.get(id(indices))
        if known is None:
            total: Expr = const(0, "int64")
            for index, extent in zip(indices, buffer.shape, strict=True):
                total = total * extent + cast(index, "int64")
            known = self.flat[id(indices)] = indices, simplify(total, self.domain)
        return known[1]

    def pointer(self, buffer: Buffer, at: Affine) -> str:
        """The address of the uniform part of an offset (lane 0 of a contiguous access)."""
        element = memory_type(buffer.dtype)
        key = (buffer, frozenset(at.terms.items()))
        base = next((known[key] for known in reversed(self.known) if key in known), None)
        if base is None:
            base = self.base(buffer)
            if at.terms:
                offset = self.uniform_part(Affine(0, at.terms), "nsw ")
                base = self.f.emit(f"getelementptr {element}, ptr {base}, i64 {offset}")
            self.known[-1][key] = base
        if not at.const:
            return base
        return self.f.emit(f"getelementptr {element}, ptr {base}, i64 {at.const}")

    def lane_pointers(self, buffer: Buffer, at: Affine) -> Value:
        """A vector of addresses, one per lane."""
        base = self.pointer(buffer, Affine(at.const, at.terms))
        offsets = self.materialise(Affine(0, {}, at.lane, at.vectors))
        element = memory_type(buffer.dtype)
        text = self.f.emit(f"getelementptr {element}, ptr {base}, {offsets.typed}")
        return Value(text, "int64", self.lanes)

    def active(self) -> Value:
        return self.mask or constant(True, "bool", self.lanes)

    def load(self, e: Load) -> Value:
        at, dtype = self.address(e.buffer, e.indices), e.buffer.dtype
        if at.is_uniform:
            if self.mask is None or "true" in self.mask.text:
                return self.scalar_load(e.buffer, at)

            def read() -> Value:
                with self.scope():
                    return self.scalar_load(e.buffer, at)

            some = self.intrinsic_any(self.mask)
            return self.f.choose(some, read, lambda: constant(0, dtype))
        element, align = memory_type(dtype, self.lanes), BYTES[dtype]
        if at.vectors or at.lane not in (1, -1) or (at.lane == -1 and self.mask is not None):
            return self.gather(e.buffer, at)
        if at.lane == -1:
            at = Affine(at.const - self.lanes + 1, at.terms, 1)
            forward = self.f.emit(f"load {element}, ptr {self.pointer(e.buffer, at)}, align {align}")
            order = ", ".join(f"i32 {n}" for n in reversed(range(self.lanes)))
            raw = self.f.emit(
                f"shufflevector {element} {forward}, {element} poison, <{self.lanes} x i32> <{order}>"
            )
        elif self.mask is None:
            raw = self.f.emit(f"load {element}, ptr {self.pointer(e.buffer, at)}, align {align}")
        else:
            suffix = memory_suffix(dtype, self.lanes)
            symbol = f"@llvm.masked.load.{suffix}.p0"
            mask = f"<{self.lanes} x i1>"
            self.declare(f"{element} {symbol}(ptr, i32 immarg, {mask}, {element})")
            pointer = self.pointer(e.buffer, at)
            raw = self.f.emit(
                f"call {element} {symbol}(ptr {pointer}, i32 {align}, {self.mask.typed}, "
                f"{element} zeroinitializer)"
            )
        return self.from_memory(raw, dtype, self.lanes)

    def intrinsic_any(self, mask: Value) -> str:
        symbol = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declare(f"i1 {symbol}({mask.type})")
        return self.f.emit(f"call i1 {symbol}({mask.typed})")

    def scalar_load(self, buffer: Buffer, at: Affine) -> Value:
        element = memory_type(buffer.dtype)
        pointer = self.pointer(buffer, at)
        raw = self.f.emit(f"load {element}, ptr {pointer}, align {BYTES[buffer.dtype]}")
        return self.from_memory(raw, buffer.dtype, 1)

    def gather(self, buffer: Buffer, at: Affine) -> Value:
        element, align = memory_type(buffer.dtype, self.lanes), BYTES[buffer.dtype]
        symbol = f"@llvm.masked.gather.{memory_suffix(buffer.dtype, self.lanes)}.v{self.lanes}p0"
        pointers, mask = f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        self.declare(f"{element} {symbol}({pointers}, i32 immarg, {mask}, {element})")
        where = self.lane_pointers(buffer, at)
        raw = self.f.emit(
            f"call {element} {symbol}({pointers} {where.text}, i32 {align}, {self.active().typed}, "
            f"{element} zeroinitializer)"
        )
        return self.from_memory(raw, buffer.dtype, self.lanes)

    def from_memory(self, raw: str, dtype: str, lanes: int) -> Value:
        """What was loaded, as it is in registers."""
        memory, register = memory_type(dtype, lanes), register_type(dtype, lanes)
        if dtype == "bool":
            zero = "0" if lanes == 1 else "zeroinitializer"
            return Value(self.f.emit(f"icmp ne {memory} {raw}, {zero}"), dtype, lanes)
        if dtype == "float16":
            return Value(self.f.emit(f"fpext {memory} {raw} to {register}"), dtype, lanes)
        if dtype == "bfloat16":
            i32 = widened("i32", lanes)
            wide = self.f.emit(f"zext {memory} {raw} to {i32}")
            sixteen = "16" if lanes == 1 else "splat (i32 16)"
            high = self.f.emit(f"shl {i32} {wide}, {sixteen}")
            return Value(self.f.emit(f"bitcast {i32} {high} to {register}"), dtype, lanes)
        return Value(raw, dtype, lanes)

    def to_memory(self, v: Value) -> str:
        """A value as it is stored: typed operand text."""
        memory = memory_type(v.dtype, v.lanes)
        if v.dtype == "bool":
            return f"{memory} {self.f.emit(f'zext {v.typed} to {memory}')}"
        if v.dtype == "float16":
            return f"{memory} {self.f.emit(f'fptrunc {v.typed} to {memory}')}"
        if v.dtype == "bfloat16":
            i32 = widened("i32", v.lanes)
            bits = self.f.emit(f"bitcast {v.typed} to {i32}")
            sixteen = "16" if v.lanes == 1 else "splat (i32 16)"
            high = self.f.emit(f"lshr {i32} {bits}, {sixteen}")
            return f"{memory} {self.f.emit(f'trunc {i32} {high} to {memory}')}"
        return v.typed


def is_literal(v: Value) -> bool:
    return v.text[0] != "%"


def wrapped(n: int) -> int:
    """`n` as 64 bits hold it."""
    return n if -(2**63) <= n < 2**63 else (n + 2**63) % 2**64 - 2**63


def known_integer(v: Value) -> int | None:
    """The value of a literal scalar integer."""
    text = v.text.removeprefix("-")
    return int(v.text) if v.lanes == 1 and text.isdigit() else None


def is_harmless(e: Expr) -> bool:
    """Whether an expression may be evaluated where the program would not: no reads, no traps."""
    for x in subexpressions(e):
        if isinstance(x, Load):
            return False
        if isinstance(x, Binary) and x.op in ("//", "%") and is_integer(x.dtype) and not as_int(x.b):
            return False
    return True


def has_division(e: Expr) -> bool:
    return any(isinstance(x, Binary) and x.op in ("//", "%") for x in subexpressions(e))


def memory_suffix(dtype: str, lanes: int) -> str:
    element = memory_type(dtype).replace("float", "f32").replace("double", "f64")
    element = element.replace("half", "f16")
    return f"v{lanes}{element}"


__all__ = ["FALSE", "NARROW_FLOATS", "TRUE", "Affine", "ExpressionEmitter", "integer_limits"]
