"""One function of straight-line LLVM text, written with Python operators.

`Value` stands for an SSA value or a constant; `+ - * /`, shifts and bit operations on it append an
instruction to its `Text` and give the result. A Python number beside a value becomes a constant of
its type in every lane. No fast-math flags: an error-free step here must stay error-free, so a fused
multiply-add is always asked for by name (`Text.fma`).
"""

from __future__ import annotations

import struct

FLOATS = {"float": "f32", "double": "f64"}
BITS = {"float": "i32", "double": "i64"}


class Value:
    __slots__ = ("kind", "text", "to")

    def __init__(self, to: Text, text: str, kind: str):
        self.to = to
        self.text = text
        self.kind = kind  # the LLVM type of one lane: float, double, i32, i64, i1

    def _arith(self, op: str, other: Value | float, swap: bool = False) -> Value:
        if self.kind in FLOATS and op in ("add", "sub", "mul", "div"):
            op = "f" + op
        left, right = self.text, self.to.operand(other, self.kind)
        if swap:
            left, right = right, left
        return self.to.emit(f"{op} {self.to.type(self.kind)} {left}, {right}", self.kind)

    def _compare(self, op: str, other: Value | float) -> Value:
        right = self.to.operand(other, self.kind)
        return self.to.emit(f"fcmp {op} {self.to.type(self.kind)} {self.text}, {right}", "i1")

    def __add__(self, other: Value | float) -> Value:
        return self._arith("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._arith("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._arith("sub", other, swap=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._arith("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._arith("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._arith("div", other, swap=True)

    def __neg__(self) -> Value:
        return self.to.emit(f"fneg {self.to.type(self.kind)} {self.text}", self.kind)

    def __and__(self, other: Value | int) -> Value:
        return self._arith("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._arith("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._arith("xor", other)

    def __lshift__(self, count: int) -> Value:
        return self._arith("shl", count)

    def __rshift__(self, count: int) -> Value:
        """Arithmetic: the sign is shifted in."""
        return self._arith("ashr", count)

    # Comparisons are false for NaN, except `differs` and `unordered`.
    def __lt__(self, other: Value | float) -> Value:
        return self._compare("olt", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare("ogt", other)

    def equals(self, other: Value | float) -> Value:
        return self._compare("oeq", other)

    def differs(self, other: Value | float) -> Value:
        return self._compare("une", other)

    def unordered(self, other: Value | float) -> Value:
        return self._compare("uno", other)


class Text:
    """The body under construction, and what it needs declared."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.externals: set[str] = set()

    def type(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    def suffix(self, kind: str) -> str:
        short = FLOATS.get(kind, kind)
        return short if self.lanes == 1 else f"v{self.lanes}{short}"

    def operand(self, value: Value | float, kind: str) -> str:
        if isinstance(value, Value):
            assert value.kind == kind, f"{value.kind} beside {kind}"
            return value.text
        if kind == "float":  # LLVM writes a float as the double of the same value
            value = struct.unpack("f", struct.pack("f", value))[0]
        if kind in FLOATS:
            text = "0x" + struct.pack(">d", value).hex().upper()
        else:
            text = str(int(value))
        return text if self.lanes == 1 else f"splat ({kind} {text})"

    def emit(self, instruction: str, kind: str) -> Value:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Value(self, name, kind)

    def const(self, value: float, kind: str = "float") -> Value:
        return Value(self, self.operand(value, kind), kind)

    def cast(self, op: str, value: Value, kind: str) -> Value:
        """`op` is LLVM's: bitcast, fpext, fptrunc, sitofp, trunc."""
        return self.emit(f"{op} {self.type(value.kind)} {value.text} to {self.type(kind)}", kind)

    def bits(self, value: Value) -> Value:
        return self.cast("bitcast", value, BITS[value.kind])

    def floats(self, value: Value) -> Value:
        return self.cast("bitcast", value, "float" if value.kind == "i32" else "double")

    def select(self, condition: Value, then: Value | float, other: Value | float) -> Value:
        typed = then if isinstance(then, Value) else other
        assert isinstance(typed, Value), "two numbers have no type"
        of, kind = self.type(typed.kind), typed.kind
        left, right = self.operand(then, kind), self.operand(other, kind)
        return self.emit(f"select {self.type('i1')} {condition.text}, {of} {left}, {of} {right}", kind)

    def at_most(self, value: Value, bound: float) -> Value:
        """min(value, bound), NaN if value is (one instruction on x86, which this order decides)."""
        return self.select(self.const(bound, value.kind) < value, bound, value)

    def at_least(self, value: Value, bound: float) -> Value:
        return self.select(self.const(bound, value.kind) > value, bound, value)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """An LLVM intrinsic whose arguments and result are all of one type."""
        kind = args[0].kind
        of, symbol = self.type(kind), f"@llvm.{name}.{self.suffix(kind)}"
        self.declared.add(f"declare {of} {symbol}({', '.join(of for _ in args)})")
        listed = ", ".join(f"{of} {arg.text}" for arg in args)
        return self.emit(f"call {of} {symbol}({listed})", kind)

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once."""
        factor, addend = (v if isinstance(v, Value) else self.const(v, a.kind) for v in (b, c))
        return self.intrinsic("fma", a, factor, addend)

    def polynomial(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """The constant term comes first. Horner's rule, or for long ones Estrin's scheme.

        Horner has the fewest instructions and the least rounding, but each waits for the last.
        Estrin pairs neighbours, then pairs, and so on. Measured in loops on Zen 3: Horner is 15%
        faster for the five coefficients of exp, Estrin 15% faster for the eight of log.
        """
        terms: list[Value] = [self.const(c, x.kind) for c in coefficients]
        if len(terms) <= 6:
            result = terms.pop()
            for term in reversed(terms):
                result = self.fma(result, x, term)
            return result
        while len(terms) > 1:
            pairs = [self.fma(b, x, a) for a, b in zip(terms[::2], terms[1::2])]
            terms = pairs + terms[len(terms) & ~1 :]
            if len(terms) > 1:
                x = x * x
        return terms[0]

    def magnitude(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def toggle_sign(self, result: Value, sign: Value) -> Value:
        """`result`, negated where the top bit of the integer `sign` is set."""
        top = -(2**31) if sign.kind == "i32" else -(2**63)
        return self.floats(self.bits(result) ^ (sign & top))

    def with_sign_of(self, result: Value, x: Value) -> Value:
        """`result`, which is positive, with the sign of `x`."""
        return self.toggle_sign(result, self.bits(x))

    def library(self, name: str, *args: Value) -> Value:
        """The C library's scalar function lane by lane; `name` is the double's: exp, not expf."""
        kind = args[0].kind
        name += "f" if kind == "float" else ""
        self.externals.add(name)
        params = ", ".join(kind for _ in args)
        self.declared.add(f"declare {kind} @{name}({params}) nounwind willreturn memory(none)")
        if self.lanes == 1:
            listed = ", ".join(f"{kind} {arg.text}" for arg in args)
            return self.emit(f"call {kind} @{name}({listed})", kind)
        of = self.type(kind)
        result = Value(self, "poison", kind)
        for lane in range(self.lanes):
            scalars = [self.emit(f"extractelement {of} {a.text}, i32 {lane}", kind) for a in args]
            listed = ", ".join(f"{kind} {scalar.text}" for scalar in scalars)
            called = self.emit(f"call {kind} @{name}({listed})", kind)
            result = self.emit(f"insertelement {of} {result.text}, {kind} {called.text}, i32 {lane}", kind)
        return result
