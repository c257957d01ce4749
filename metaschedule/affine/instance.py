"""`Instance`: the variables of one run of a block, as linear terms of a `System`.

Splits are sums, digits of fused loops solve `whole = d0 * n1 * n2 + d1 * n2 + d2`, and quotients,
remainders, minima and maxima get variables of their own; so every index that loads nothing is exact. What is
loaded may be anything.

    i = f // 10 and j = f % 10 of a fused loop that was split again, f = g * 16 + h:
        16 * g + h = 10 * i + j,  0 <= h < 16,  0 <= j < 10
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from .. import ir
from .constraint import constraints_of
from .definitions import FusedDigit, digit_strides
from .form import Form, variables
from .nest import Variables
from .system import System, Terms

WIDE = 1 << 63  # bound of what nothing is known of


class Linear(NamedTuple):
    """A sum of variables of a system, and a constant."""

    terms: Terms
    const: int = 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        return Linear(combine(self.terms, other.terms, factor), self.const + factor * other.const)

    def times(self, factor: int) -> Linear:
        return Linear({v: c * factor for v, c in self.terms.items()} if factor else {}, self.const * factor)


class Instance:
    """One evaluation of the variables of a nest. `known` are those that it has in common with another one,
    `iters` what the iterators of its block are bound to.

    The variables of a `twin` are written as those of the other instance plus a distance: what both do alike
    then cancels, and bounds alone see that 30 * (h' - h) + (w' - w) = 0 with -29 <= w' - w <= 29 leaves
    h' = h.
    """

    def __init__(
        self,
        system: System,
        nest: Variables,
        known: Mapping[ir.Var, Linear] | None = None,
        iters: Mapping[ir.Var, ir.Expr] | None = None,
        twin: Instance | None = None,
    ) -> None:
        self.system, self.nest = system, nest
        self.known: dict[ir.Var, Linear] = dict(known or {})
        self.iters = iters or {}
        self.twin = twin
        self.named: dict[Hashable, Linear] = {}  # what a twin may be written by
        self.opaques: dict[Hashable, tuple[list[Linear], Linear]] = {}

    def extent(self, var: ir.Var) -> int | None:
        extent = self.nest.extents.get(var)
        return None if extent is None else ir.as_int(extent)

    # --- variables ---

    def variable(self, var: ir.Var) -> Linear:
        found = self.known.get(var)
        if found is not None:
            return found
        if var in self.iters:
            found = self.value(self.iters[var])
        else:
            definition = self.nest.definitions.get(var)
            if definition is None:
                found = self.loop(var)
            elif isinstance(definition, FusedDigit):
                self.cut(definition)
                return self.known[var]
            else:
                found = self.number(definition.digits)
        self.known[var] = found
        return found

    def loop(self, var: ir.Var) -> Linear:
        extent = self.nest.extents.get(var)
        count = None if extent is None else ir.as_int(extent)
        new = self.fresh(0, (WIDE if count is None else count) - 1, var)
        if count is None and extent is not None:
            self.require(new.plus(self.value(extent), -1), -math.inf, -1)
        return new

    def number(self, digits: Sequence[ir.Var]) -> Linear:
        """The number with these digits."""
        strides = digit_strides(self.nest, digits)
        if strides is None:
            return self.fresh(0, WIDE)
        total = Linear({})
        for digit, stride in zip(digits, strides, strict=True):
            total = total.plus(self.variable(digit), stride)
        return total

    def cut(self, definition: FusedDigit) -> None:
        """All digits of a fused loop, from the loop."""
        whole, rest = self.variable(definition.whole), Linear({})
        strides = digit_strides(self.nest, definition.digits)
        if strides is None:
            for digit in definition.digits:
                self.known[digit] = self.loop(digit)
            return
        for n, (digit, stride) in enumerate(zip(definition.digits, strides, strict=True)):
            last = (self.extent(digit) or 1) - 1 if n else self.interval(whole)[1] // max(stride, 1)
            self.known[digit] = self.fresh(0, last, digit)
            rest = rest.plus(self.known[digit], stride)
        self.require(rest.plus(whole, -1), 0, 0)

    # --- expressions ---

    def value(self, e: ir.Expr) -> Linear:
        if isinstance(e, ir.Var):
            return self.variable(e)
        if e.dtype != ir.INDEX:
            return self.fresh(-WIDE, WIDE)  # narrower integers wrap round
        if isinstance(e, ir.Const):
            return Linear({}, int(e.value))
        if isinstance(e, ir.Unary) and e.op == "-":
            return self.value(e.a).times(-1)
        if isinstance(e, ir.Binary):
            return self.binary(e)
        return self.fresh(-WIDE, WIDE)

    def binary(self, e: ir.Binary) -> Linear:
        if e.op in ("+", "-"):
            return self.value(e.a).plus(self.value(e.b), 1 if e.op == "+" else -1)
        if e.op == "*":
            for one, other in ((e.a, e.b), (e.b, e.a)):
                if (factor := ir.as_int(other)) is not None:
                    return self.value(one).times(factor)
        divisor = ir.as_int(e.b)
        if e.op in ("//", "%") and divisor is not None and divisor > 0:
            return self.divide(self.value(e.a), divisor, id(e))[e.op == "%"]
        if e.op in ("min", "max"):
            return self.least(self.value(e.a), self.value(e.b), 1 if e.op == "min" else -1, id(e))
        return self.opaque(e)

    def opaque(self, e: ir.Expr) -> Linear:
        """What is not linear may be anything; but the same if all it depends on is."""
        if ir.loads(e):
            return self.fresh(-WIDE, WIDE)
        name = ir.expr_key(e)
        inputs = [self.variable(v) for v in variables(e)]
        known = self.twin.opaques.get(name) if self.twin is not None else None
        if known is not None and known[0] == inputs:
            return known[1]
        value = self.fresh(-WIDE, WIDE)
        self.opaques[name] = inputs, value
        return value

    def divide(self, value: Linear, divisor: int, name: Hashable = None) -> tuple[Linear, Linear]:
        """Quotient and remainder."""
        if divisor == 1:
            return value, Linear({})
        low, high = self.interval(value)
        quotient = self.fresh(low // divisor, high // divisor, name)
        # The remainder's distance follows from the quotient's and the value's.
        remainder = self.fresh(0, divisor - 1)
        self.require(quotient.times(divisor).plus(remainder).plus(value, -1), 0, 0)
        return quotient, remainder

    def least(self, a: Linear, b: Linear, sign: int = 1, name: Hashable = None) -> Linear:
        """The lesser of two values, or with sign -1 the greater.

        m <= a, m <= b, and with t either 0 or 1:  m >= a - M * t,  m >= b - M * (1 - t)
        """
        (low, high), (first, last) = self.interval(a), self.interval(b)
        bounds = (min(low, first), min(high, last)) if sign > 0 else (max(low, first), max(high, last))
        new, which, large = self.fresh(*bounds, name), self.fresh(0, 1), max(high, last) - min(low, first)
        for part, slack in ((a, which.times(large)), (b, Linear({}, large).plus(which, -large))):
            above = new.plus(part, -1).times(sign)
            self.require(above, -math.inf, 0)
            self.require(above.plus(slack), 0, math.inf)
        return new

    def interval(self, value: Linear) -> tuple[int, int]:
        """Least and greatest value that bounds alone leave possible."""
        low = high = value.const
        for v, c in value.terms.items():
            first, last = self.system.bounds[v]
            low, high = (low + c * first, high + c * last) if c > 0 else (low + c * last, high + c * first)
        return low, high

    # --- constraints ---

    def fresh(self, low: int, high: int, name: Hashable = None) -> Linear:
        """A new variable. One with a name is some distance away from its counterpart in the twin."""
        other = self.twin.named.get(name) if self.twin is not None and name is not None else None
        if other is None:
            new = Linear({self.system.variable(low, high): 1})
        else:
            first, last = self.interval(other)
            new = other.plus(Linear({self.system.variable(low - last, high - first): 1}))
            self.require(new, low, high)
        if name is not None:
            self.named[name] = new
        return new

    def require(self, value: Linear, low: float, high: float) -> None:
        self.system.require(value.terms, low - value.const, high - value.const)

    def assume(self, test: ir.Expr) -> None:
        """Require a condition as far as it compares sums; without the rest of it more is possible."""
        for value, low, high in self.comparisons(test) or ():
            self.require(value, low, high)

    def comparisons(self, test: ir.Expr) -> list[tuple[Linear, float, float]] | None:
        """A conjunction as sums and the bounds they must lie in; None if there is more to it."""
        found = constraints_of(test)
        return None if found is None else [(self.total(c.form), c.low, c.high) for c in found]

    def total(self, form: Form) -> Linear:
        value = Linear({}, form.const)
        for x, c in form.terms:
            value = value.plus(self.value(x), c)
        return value


def combine(a: Mapping[int, int], b: Mapping[int, int], factor: int) -> Terms:
    """a + factor * b"""
    out = dict(a)
    for v, c in b.items():
        out[v] = out.get(v, 0) + factor * c
    return out
