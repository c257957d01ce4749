"""What every part of the emitter stands on: the function being written, the lanes and masks of the
vectorised loop around, what is known where, and single operations."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from ...arith import Domain
from ...ir import Buffer, Expr, Var
from .affine import Affine, wrap_int64
from .function import Function
from .values import Operand, constant, intrinsic_suffix, register_type, vector_literal

TRUE, FALSE = constant(True, "bool"), constant(False, "bool")


class Emitter:
    """State of one function. `ExpressionEmitter` and `StatementEmitter` are what it grows into."""

    def __init__(self, function: Function, vector_bytes: int, fma: bool) -> None:
        self.f = function
        self.vector_bytes = vector_bytes  # of the target
        self.fma = fma
        self.env: dict[Var, Affine] = {}
        self.stack: dict[Buffer, str] = {}  # memory of this call
        self.domain = Domain()
        self.hide_masks = False  # of stores (`MemoryAccess.hide_mask` says why)
        self.lanes = 1  # lanes of the vectorised loop around, 1 outside
        self.mask: Operand | None = None  # which lanes are active; None: all
        self.flat: dict[tuple[Buffer, int], tuple[tuple[Expr, ...], Expr]] = {}
        self.known: list[dict[Hashable, Any]] = [{}]  # addresses and divisions, by scope
        self.declared: set[str] = set()  # `declare` lines of the module
        self.math_used: set[tuple[str, str, int]] = set()
        self.externals: set[str] = set()  # functions of the C library that LLVM may call

    # --- provided by those above ---

    def evaluate(self, e: Expr) -> Operand:
        """The value of any expression: a scalar if it is the same in every lane."""
        raise NotImplementedError

    def affine(self, e: Expr) -> Affine:
        """An int64 expression as an affine form."""
        raise NotImplementedError

    def base(self, buffer: Buffer) -> str:
        """The pointer to the first element of a buffer."""
        raise NotImplementedError

    def contracting(self, dtype: str) -> str:
        """The flag of an operation that may become one with its neighbour, without rounding between them.

        A narrow float is rounded after each: where a CPU computes in float16 (AVX-512 FP16), LLVM drops the
        way through float32, and with the flag it would join a product and a sum of such numbers as well.
        """
        return "contract " if self.fma and dtype in ("float32", "float64") else ""

    # --- scopes and masks ---

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not dominate what follows."""
        self.known.append({})
        yield
        self.known.pop()

    @contextmanager
    def under_mask(self, mask: Operand | None) -> Iterator[None]:
        saved, self.mask = self.mask, mask
        with self.scope():
            yield
        self.mask = saved

    def mask_and(self, v: Operand) -> Operand:
        """The active lanes in which `v` holds."""
        v = self.spread(v)
        if self.mask is None:
            return v
        return self.operation(f"and {self.mask.typed}, {v.text}", "bool", v)

    def active(self) -> Operand:
        return self.mask or constant(True, "bool", self.lanes)

    def intrinsic_any(self, mask: Operand) -> str:
        symbol = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declare(f"i1 {symbol}({mask.type})")
        return self.f.emit(f"call i1 {symbol}({mask.typed})")

    def declare(self, line: str) -> None:
        self.declared.add(f"declare {line}")

    # --- values ---

    def spread(self, v: Operand) -> Operand:
        """A scalar in every lane of the vectorised loop."""
        if v.lanes == self.lanes:
            return v
        if v.known is not None:
            return Operand(f"splat ({v.typed})", v.dtype, self.lanes, v.known)
        element, vector = v.type, register_type(v.dtype, self.lanes)
        one = self.f.emit(f"insertelement {vector} poison, {element} {v.text}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        text = self.f.emit(f"shufflevector {vector} {one}, {vector} poison, {zeros}")
        return Operand(text, v.dtype, self.lanes)

    def level(self, *values: Operand) -> list[Operand]:
        """All scalars, or all vectors."""
        if all(v.lanes == 1 for v in values):
            return list(values)
        return [self.spread(v) for v in values]

    def operation(self, text: str, dtype: str, like: Operand) -> Operand:
        return Operand(self.f.emit(text), dtype, like.lanes)

    def select_where(self, v: Operand, where: Operand, by: Operand) -> Operand:
        return self.operation(f"select {where.typed}, {by.typed}, {v.typed}", v.dtype, v)

    def negate(self, v: Operand) -> Operand:
        if v.truth is not None:
            return FALSE if v.truth else TRUE
        return self.operation(f"xor {v.typed}, {constant(True, 'bool', v.lanes).text}", "bool", v)

    def intrinsic(self, name: str, dtype: str, *args: Operand, extra: str = "") -> Operand:
        """A call of an intrinsic overloaded on the type of its first argument."""
        lanes = args[0].lanes
        symbol = f"@llvm.{name}.{intrinsic_suffix(args[0].dtype, lanes)}"
        result = register_type(dtype, lanes)
        types = ", ".join(a.type for a in args) + (", i1" if extra else "")
        self.declare(f"{result} {symbol}({types})")
        operands = ", ".join(a.typed for a in args) + (f", {extra}" if extra else "")
        return Operand(self.f.emit(f"call {result} {symbol}({operands})"), dtype, lanes)

    def uniform_part(self, a: Affine, flags: str = "") -> str:
        """The scalar const + terms of an affine form, as an i64 operand. Addresses do not overflow
        (`flags` is "nsw "), but values of an int64 tensor may, and then wrap round."""
        total = None
        for name, coefficient in a.terms.items():
            if coefficient != 1:
                name = self.f.emit(f"mul {flags}i64 {name}, {wrap_int64(coefficient)}")
            total = name if total is None else self.f.emit(f"add {flags}i64 {total}, {name}")
        if total is None:
            return str(wrap_int64(a.const))
        return self.f.emit(f"add {flags}i64 {total}, {wrap_int64(a.const)}") if a.const else total

    def materialise(self, a: Affine) -> Operand:
        """An affine form as a value; a vector if it differs between lanes."""
        scalar = Operand(self.uniform_part(a), "int64") if a.terms else constant(wrap_int64(a.const), "int64")
        if a.is_uniform:
            return scalar
        total = self.spread(scalar)
        if a.lane:
            steps = vector_literal([wrap_int64(a.lane * n) for n in range(self.lanes)], "int64")
            total = Operand(self.f.emit(f"add {total.typed}, {steps.text}"), "int64", self.lanes)
        for coefficient, vector in a.vectors:
            if coefficient != 1:
                by = constant(wrap_int64(coefficient), "int64", self.lanes)
                vector = self.operation(f"mul {vector.typed}, {by.text}", vector.dtype, vector)
            total = self.operation(f"add {total.typed}, {vector.text}", total.dtype, total)
        return total
