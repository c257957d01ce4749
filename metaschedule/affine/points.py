"""Expressions over loops as linear terms of a `System`: the exact, slow answer behind the quick ones.

A `Point` is one evaluation of the variables of a schedule. Splits are sums, digits of fused loops solve
`whole = d0 * n1 * n2 + d1 * n2 + d2`, and quotients, remainders, minima and maxima get variables of their own; so every index that
loads nothing is exact. What loads is some value within its buffer.

    i = f // 10 and j = f % 10 of a loop f = g * 16 + h over 64 values, 16 at a time:
        16 * g + h = 10 * i + j,  0 <= g < 4, 0 <= h < 16, 0 <= j < 10
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..ir import Binary, Cast, Const, Expr, Load, Unary, Var, as_int
from .system import System, Terms

WIDE = 1 << 40  # bound of what nothing is known of


class Point:
    """The variables of one instance. `shared` says which of them are those of another point."""

    def __init__(
        self,
        system: System,
        definitions: Mapping[Var, Any],
        extents: Mapping[Var, Expr],
        shared: Mapping[Var, tuple[Terms, int]] | None = None,
    ) -> None:
        self.system, self.definitions, self.extents = system, definitions, extents
        self.known: dict[Var, tuple[Terms, int]] = dict(shared or {})
        self.iters: Mapping[Var, Expr] = {}

    def bind(self, iters: Mapping[Var, Expr]) -> None:
        self.iters = iters

    # --- variables ---

    def variable(self, var: Var) -> tuple[Terms, int]:
        found = self.known.get(var)
        if found is None:
            if var in self.iters:
                found = self.value(self.iters[var])
            else:
                known = self.definitions.get(var)
                if known is None:
                    found = self.loop(var)
                elif hasattr(known, "whole"):
                    return self.digit(var, known)
                else:
                    found = self.number(known.digits)
            self.known[var] = found
        return found

    def loop(self, var: Var) -> tuple[Terms, int]:
        extent = self.extents.get(var)
        count = None if extent is None else as_int(extent)
        new = self.system.variable(0, (WIDE if count is None else count) - 1)
        if count is None and extent is not None:
            terms, constant = self.value(extent)
            self.system.require(combined({new: 1}, terms, -1), -math.inf, constant - 1)
        return {new: 1}, 0

    def number(self, digits: Iterable[Var]) -> tuple[Terms, int]:
        total: Terms = {}
        constant, stride = 0, 1
        for digit in reversed(list(digits)):
            terms, offset = self.variable(digit)
            total, constant = combined(total, terms, stride), constant + stride * offset
            stride *= as_int(self.extents[digit]) or 0
        return total, constant

    def digit(self, var: Var, known: Any) -> tuple[Terms, int]:
        """All digits of a fused loop at once."""
        terms, constant = self.variable(known.whole)
        rest, stride = dict[int, int](), 1
        for n, digit in reversed(list(enumerate(known.digits))):
            size = as_int(self.extents[digit]) or 1
            new = self.system.variable(0, (size if n else WIDE) - 1)
            rest[new] = stride
            stride *= size
            self.known[digit] = {new: 1}, 0
        self.system.require(combined(rest, terms, -1), constant, constant)
        return self.known[var]

    # --- expressions ---

    def value(self, e: Expr) -> tuple[Terms, int]:
        if isinstance(e, Var):
            return self.variable(e)
        if isinstance(e, Const):
            return {}, int(e.value)
        if isinstance(e, Binary):
            return self.binary(e)
        if isinstance(e, Unary) and e.op == "-":
            terms, constant = self.value(e.a)
            return scaled(terms, -1), -constant
        if isinstance(e, Load):
            return {self.system.variable(-WIDE, WIDE): 1}, 0
        return {self.system.variable(-WIDE, WIDE): 1}, 0

    def binary(self, e: Binary) -> tuple[Terms, int]:
        if e.op in ("+", "-"):
            sign = 1 if e.op == "+" else -1
            (a, m), (b, n) = self.value(e.a), self.value(e.b)
            return combined(a, b, sign), m + sign * n
        if e.op == "*":
            for one, other in ((e.a, e.b), (e.b, e.a)):
                if (factor := as_int(other)) is not None:
                    terms, constant = self.value(one)
                    return scaled(terms, factor), constant * factor
        divisor = as_int(e.b)
        if e.op in ("//", "%") and divisor is not None and divisor > 0:
            terms, constant = self.value(e.a)
            quotient, remainder = self.system.variable(-WIDE, WIDE), self.system.variable(0, divisor - 1)
            self.system.require(combined({quotient: divisor, remainder: 1}, terms, -1), constant, constant)
            return {quotient if e.op == "//" else remainder: 1}, 0
        if e.op in ("min", "max"):
            return self.least(e) if e.op == "min" else self.greatest(e)
        return {self.system.variable(-WIDE, WIDE): 1}, 0

    def least(self, e: Binary, sign: int = 1) -> tuple[Terms, int]:
        """m <= a, m <= b, and m >= a - M * t, m >= b - M * (1 - t) with t either 0 or 1."""
        new, which = self.system.variable(-WIDE, WIDE), self.system.variable(0, 1)
        for n, part in enumerate((e.a, e.b)):
            terms, constant = self.value(part)
            difference = combined({new: sign}, terms, -sign)  # <= sign * constant
            self.system.require(difference, -math.inf, sign * constant)
            big = self.reach(difference) + abs(constant)
            self.system.require(
                combined(difference, {which: big if n == 0 else -big}, 1),
                sign * constant - (0 if n == 0 else big), math.inf,
            )  # fmt: skip
        return {new: 1}, 0

    def greatest(self, e: Binary) -> tuple[Terms, int]:
        return self.least(e, -1)

    def reach(self, terms: Terms) -> int:
        return sum(abs(c) * max(abs(n) for n in self.system.bounds[v]) for v, c in terms.items()) + 1

    # --- conditions ---

    def assume(self, test: Expr) -> None:
        """Require a condition, as far as it is a comparison of sums; what else it is only rules out more."""
        if isinstance(test, Binary) and test.op == "and":
            self.assume(test.a)
            self.assume(test.b)
        elif isinstance(test, Binary) and test.op in ("<", "<=", ">", ">=", "=="):
            (a, m), (b, n) = self.value(test.a), self.value(test.b)
            difference, constant = combined(a, b, -1), n - m  # difference ? constant
            low, high = {
                "<": (-math.inf, constant - 1), "<=": (-math.inf, constant), ">": (constant + 1, math.inf),
                ">=": (constant, math.inf), "==": (constant, constant),
            }[test.op]  # fmt: skip
            self.system.require(difference, low, high)


def combined(a: Mapping[int, int], b: Mapping[int, int], factor: int) -> Terms:
    """a + factor * b"""
    out = dict(a)
    for v, c in b.items():
        out[v] = out.get(v, 0) + factor * c
    return out


def scaled(terms: Terms, factor: int) -> Terms:
    return {v: c * factor for v, c in terms.items()} if factor else {}
