"""Operators and functions on values, with NumPy's meaning: `//` and `%` round down, min and max propagate
NaN, integers wrap round, nothing traps (integer division by zero is checked, see `checks`)."""

from __future__ import annotations

import math

from ...ir import Binary, as_int, is_float, is_integer
from .conversions import Conversions
from .values import BYTES, Operand, constant, intrinsic_suffix, register_type

SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc", "abs": "fabs",
}  # fmt: skip
INTEGER_OPS = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}


class Arithmetic(Conversions):
    def arithmetic(self, e: Binary, a: Operand, b: Operand) -> Operand:
        op, dtype = e.op, e.dtype
        if is_float(dtype):
            if op in FLOAT_OPS:
                text = f"{FLOAT_OPS[op]} {self.contracting(dtype)}{a.typed}, {b.text}"
                return self.round_narrow(self.operation(text, dtype, a))
            if op in ("min", "max"):
                return self.float_extreme(op, a, b)
            return self.round_narrow(self.float_division(op, a, b))
        if op in INTEGER_OPS:
            return self.operation(f"{INTEGER_OPS[op]} {a.typed}, {b.text}", dtype, a)
        if op in ("min", "max"):
            return self.intrinsic(("u" if dtype == "uint8" else "s") + op, dtype, a, b)
        if op in ("<<", ">>"):
            return self.shift(op, a, b, as_int(e.b))
        return self.integer_division(e, a, b)

    def compare(self, op: str, a: Operand, b: Operand) -> Operand:
        if is_float(a.dtype):
            return self.operation(f"fcmp {ORDERED[op]} {a.typed}, {b.text}", "bool", a)
        table = UNSIGNED if a.dtype in ("uint8", "bool") else SIGNED
        return self.operation(f"icmp {table[op]} {a.typed}, {b.text}", "bool", a)

    def unary(self, op: str, v: Operand) -> Operand:
        if op == "not":
            return self.negate(v)
        if op == "~":
            ones = constant(-1, v.dtype, v.lanes)
            return self.operation(f"xor {v.typed}, {ones.text}", v.dtype, v)
        if is_float(v.dtype):
            return self.operation(f"fneg {v.typed}", v.dtype, v)
        zero = constant(0, v.dtype, v.lanes)
        return self.operation(f"sub {zero.typed}, {v.text}", v.dtype, v)

    def call(self, name: str, args: list[Operand], dtype: str) -> Operand:
        args = self.level(*args)
        first = args[0]
        if is_integer(first.dtype):  # abs
            if first.dtype == "uint8":
                return first
            return self.intrinsic("abs", first.dtype, first, extra="i1 false")
        if name in INTRINSICS:
            return self.round_narrow(self.intrinsic(INTRINSICS[name], dtype, first))
        working = "float64" if first.dtype == "float64" else "float32"
        self.math_used.add((name, working, first.lanes))
        symbol = function_symbol(name, working, first.lanes)
        operands = ", ".join(a.typed for a in args)
        text = self.f.emit(f"call {register_type(dtype, first.lanes)} @{symbol}({operands})")
        return self.round_narrow(Operand(text, dtype, first.lanes))

    def float_extreme(self, op: str, a: Operand, b: Operand) -> Operand:
        """min or max that gives NaN if either is NaN.

        x86's minps/maxps give the second operand if either is NaN, which is what `select(a > b, a, b)`
        means; so only a NaN in `a` needs a look, and none where `a` is a constant. It gives another NaN: with
        `a` itself LLVM would take one select for two and no longer see the instruction.
        """
        if b.known is not None:
            a, b = b, a
        better = self.operation(f"fcmp {'olt' if op == 'min' else 'ogt'} {a.typed}, {b.text}", "bool", a)
        best = self.operation(f"select {better.typed}, {a.typed}, {b.typed}", a.dtype, a)
        if isinstance(a.known, float) and not math.isnan(a.known):
            return best
        nan = self.operation(f"fcmp uno {a.typed}, {a.text}", "bool", a)
        other = constant(float("nan"), a.dtype, a.lanes)
        return self.operation(f"select {nan.typed}, {other.typed}, {best.typed}", a.dtype, a)

    def float_division(self, op: str, a: Operand, b: Operand) -> Operand:
        """`//` and `%` of floats as Python and NumPy have them: the remainder has the divisor's sign."""
        zero = constant(0.0, a.dtype, a.lanes)
        self.externals |= {"fmod", "fmodf"}
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
        plain = self.operation(f"fdiv {a.typed}, {b.text}", a.dtype, a)
        none = self.operation(f"fcmp oeq {near.typed}, {zero.text}", "bool", a)
        signed = self.intrinsic("copysign", a.dtype, zero, plain)
        floor = self.operation(f"select {none.typed}, {signed.typed}, {near.typed}", a.dtype, a)
        by_zero = self.operation(f"fcmp oeq {b.typed}, {zero.text}", "bool", a)
        return self.operation(f"select {by_zero.typed}, {plain.typed}, {floor.typed}", a.dtype, a)

    def integer_division(self, e: Binary, a: Operand, b: Operand) -> Operand:
        """`//` and `%` rounding down."""
        dtype, divide, divisor = e.dtype, e.op == "//", as_int(e.b)
        if not divisor:
            self.check_divisor(e, b)
        zero = constant(0, dtype, a.lanes)
        unsigned = dtype == "uint8"
        if not unsigned and divisor is not None and divisor > 0 and dtype == "int64":
            low, _ = self.domain.bounds(e.a)
            unsigned = low is not None and low >= 0
        one = constant(1, dtype, a.lanes)
        if unsigned:
            if not divisor:
                b = self.select_where(b, self.operation(f"icmp eq {b.typed}, {zero.text}", "bool", b), one)
            return self.operation(f"{'udiv' if divide else 'urem'} {a.typed}, {b.text}", dtype, a)
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            if divide:
                by = constant(divisor.bit_length() - 1, dtype, a.lanes)
                return self.operation(f"ashr {a.typed}, {by.text}", dtype, a)
            low_bits = constant(divisor - 1, dtype, a.lanes)
            return self.operation(f"and {a.typed}, {low_bits.text}", dtype, a)
        # Idle lanes divide by anything, and the least number by -1 overflows: both would trap.
        opposite: Operand | None = None
        if not divisor or divisor == -1:
            next_up = self.operation(f"add {b.typed}, {one.text}", dtype, b)
            two = constant(2, dtype, a.lanes)
            odd = self.operation(f"icmp ult {next_up.typed}, {two.text}", "bool", b)  # 0 or -1
            opposite = self.operation(f"icmp slt {b.typed}, {zero.text}", "bool", b)
            opposite = self.operation(f"and {opposite.typed}, {odd.text}", "bool", b)
            b = self.select_where(b, odd, one)
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
            return self.select_where(whole, opposite, negative)
        moved = self.operation(f"add {rest.typed}, {b.text}", dtype, a)
        return self.operation(f"select {fix.typed}, {moved.typed}, {rest.typed}", dtype, a)

    def shift(self, op: str, a: Operand, b: Operand, by: int | None) -> Operand:
        """Shifts by the width or more give 0 (or the sign), as NumPy has it. `by`: how far, if known."""
        bits = BYTES[a.dtype] * 8
        arithmetic = op == ">>" and a.dtype != "uint8"
        name = "shl" if op == "<<" else "ashr" if arithmetic else "lshr"
        if by is not None and 0 <= by < bits:
            return self.operation(f"{name} {a.typed}, {b.text}", a.dtype, a)
        last = constant(bits - 1, a.dtype, a.lanes)
        inside = self.operation(f"icmp ule {b.typed}, {last.text}", "bool", a)
        amount = self.operation(f"select {inside.typed}, {b.typed}, {last.typed}", a.dtype, a)
        result = self.operation(f"{name} {a.typed}, {amount.text}", a.dtype, a)
        if arithmetic:
            return result
        zero = constant(0, a.dtype, a.lanes)
        return self.operation(f"select {inside.typed}, {result.typed}, {zero.typed}", a.dtype, a)


def function_symbol(name: str, dtype: str, lanes: int) -> str:
    """What a function of floats is called: see `functions`.

    >>> function_symbol("exp", "float32", 8)
    'ms.exp.v8f32'
    """
    return f"ms.{name}.{intrinsic_suffix(dtype, lanes)}"
