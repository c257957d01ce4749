"""Expressions to LLVM: scalars outside vectorised loops, vectors of lanes inside.

Read `affine` and `evaluate` first. `select`, `and` and `or` evaluate only what they need: by a branch where
all lanes agree, by a mask where they do not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from ... import ir
from ..lower.scope import is_harmless
from .affine import Affine, wrap_int64
from .emitter import FALSE, TRUE
from .instructions import Instructions
from .values import Operand, constant, vector_literal

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class ExpressionEmitter(Instructions):
    """Evaluates any expression."""

    def affine(self, e: ir.Expr) -> Affine:
        """An int64 expression as an affine form."""
        if isinstance(e, ir.Const):
            return Affine(int(e.value))
        if isinstance(e, ir.Var):
            return self.env[e]
        if isinstance(e, ir.Binary):
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
                    return Affine(fold[e.op](wrap_int64(a.const), wrap_int64(b.const)))
                return self.once(e, a, b)
        return self.as_affine(self.compute(e))

    def once(self, e: ir.Binary, a: Affine, b: Affine) -> Affine:
        """A division, remainder, minimum or maximum, computed where it is first met."""
        key = (e.op, a.key, b.key, 1 if a.is_uniform and b.is_uniform else self.lanes)
        for known in reversed(self.known):
            if key in known:
                return known[key]
        left, right = self.level(self.materialise(a), self.materialise(b))
        result = self.as_affine(self.arithmetic(e, left, right))
        self.known[-1][key] = result
        return result

    def as_affine(self, value: Operand) -> Affine:
        if value.lanes > 1:
            return Affine(vectors=((1, value),))
        known = value.integer
        return Affine(known) if known is not None else Affine(0, {value.text: 1})

    def evaluate(self, e: ir.Expr) -> Operand:
        """The value of any expression: a scalar if it is the same in every lane."""
        if e.dtype == "int64" and isinstance(e, (ir.Var, ir.Const, ir.Binary)):
            return self.materialise(self.affine(e))
        return self.compute(e)

    def compute(self, e: ir.Expr) -> Operand:
        if isinstance(e, ir.Const):
            return constant(e.value, e.dtype)
        if isinstance(e, ir.Load):
            return self.load(e)
        if isinstance(e, ir.Binary):
            if e.op in ("and", "or"):
                return self.logical(e)
            if e.op in COMPARE and e.a.dtype == "int64":
                return self.compare_indices(e)
            a, b = self.level(self.evaluate(e.a), self.evaluate(e.b))
            if e.op in COMPARE:
                return self.compare(e.op, a, b)
            return self.arithmetic(e, a, b)
        if isinstance(e, ir.Select):
            return self.select(e)
        if isinstance(e, ir.Cast):
            return self.cast(self.evaluate(e.a), e.dtype)
        if isinstance(e, ir.Unary):
            return self.unary(e.op, self.evaluate(e.a))
        if isinstance(e, ir.Call) and (known := ir.INSTRUCTIONS.get(e.name)) is not None:
            return self.instruct(e, known)
        if isinstance(e, ir.Call):
            return self.call(e.name, [self.evaluate(arg) for arg in e.args], e.dtype)
        raise TypeError(f"cannot compile {type(e).__name__}")

    def compare_indices(self, e: ir.Binary) -> Operand:
        """A comparison of int64s, folded where only constants and the lane number take part."""
        a, b = self.affine(e.a), self.affine(e.b)
        difference = a.plus(b, -1)
        if difference.terms or difference.vectors:
            known = False
        else:  # x + 1 > x holds for indices, but not for values in memory, which wrap round
            known = (a.is_fixed and b.is_fixed) or not (ir.has_load(e.a) or ir.has_load(e.b))
        if known:
            lanes = range(self.lanes) if difference.lane else range(1)
            results = [COMPARE[e.op](difference.const + difference.lane * n, 0) for n in lanes]
            if all(results):
                return TRUE
            return vector_literal(results, "bool") if any(results) else FALSE
        left, right = self.level(self.materialise(a), self.materialise(b))
        return self.compare(e.op, left, right)

    def logical(self, e: ir.Binary) -> Operand:
        """`and` / `or`; the second condition is evaluated only where the first leaves it open."""
        a = self.evaluate(e.a)
        decisive = e.op == "or"
        if a.truth is not None:
            return a if a.truth is decisive else self.evaluate(e.b)
        if is_harmless(e.b):
            b = self.evaluate(e.b)
        elif a.lanes == 1 and self.lanes == 1:
            here = constant(decisive, "bool")

            def second() -> Operand:
                with self.scope():
                    return self.evaluate(e.b)

            if e.op == "and":
                return self.f.choose(a.text, second, lambda: here)
            return self.f.choose(a.text, lambda: here, second)
        else:
            with self.under_mask(self.mask_and(a if e.op == "and" else self.negate(a))):
                b = self.evaluate(e.b)
        if b.truth is not None:
            return b if b.truth is decisive else a
        a, b = self.level(a, b)
        return self.operation(f"{e.op} {a.typed}, {b.text}", "bool", a)

    def select(self, e: ir.Select) -> Operand:
        cond = self.evaluate(e.cond)
        if cond.truth is not None:
            return self.evaluate(e.a if cond.truth else e.b)
        harmless = is_harmless(e.a) and is_harmless(e.b)
        uniform = self.lanes == 1 or (self.is_uniform(e.a) and self.is_uniform(e.b))
        if cond.lanes == 1 and not harmless:  # lanes agree, so a branch

            def branch(part: ir.Expr) -> Callable[[], Operand]:
                def inside() -> Operand:
                    with self.scope():
                        value = self.select(part) if isinstance(part, ir.Select) else self.evaluate(part)
                        return value if uniform else self.spread(value)

                return inside

            return self.f.choose(cond.text, branch(e.a), branch(e.b))
        if cond.lanes == 1 or harmless:
            a, b = self.evaluate(e.a), self.evaluate(e.b)
        else:
            with self.under_mask(self.mask_and(cond)):
                a = self.evaluate(e.a)
            with self.under_mask(self.mask_and(self.negate(cond))):
                b = self.evaluate(e.b)
        if cond.lanes > 1:
            a, b = self.spread(a), self.spread(b)
        else:
            a, b = self.level(a, b)
        return self.operation(f"select {cond.typed}, {a.typed}, {b.typed}", e.dtype, a)

    def is_uniform(self, e: ir.Expr) -> bool:
        """Whether an expression is evaluated to a scalar, the same in every lane."""
        return all(self.env[x].is_uniform for x in ir.subexpressions(e) if isinstance(x, ir.Var))
