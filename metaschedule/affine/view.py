"""Indices as sums over loops, seen from a place in the tree.

A `View` is a place: the loops around it are *outside* and stand still, the loops below are *inside* and
range. Variables that have a definition are kept whole where all their loops are on one side: then a tile
whose loops were split again, fused or guarded is still one number, and nothing is expanded. `interval` is
what an index covers as the loops inside range.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..arith import Domain, relax
from .constraint import upper_limits
from .definitions import FusedDigit, Split, digit_strides
from .form import Iteration, bound_form
from .interned import plus, times
from .nest import ROOT, Key, Nest

OUTSIDE, INSIDE, MOVING, MIXED = 1, -1, 2, 0  # where the loops of a variable are


@dataclass(slots=True)
class Interval:
    """`extent` values, from `other` + the sum of `terms` + `offset` on; of variables outside of a view."""

    terms: dict[ir.Var, int]
    offset: int
    extent: int
    other: ir.Expr | None = None  # what is not linear

    @property
    def start(self) -> ir.Expr:
        value: ir.Expr | None = self.other
        for var, factor in self.terms.items():
            value = plus(value, times(var, factor))
        return plus(value, self.offset)

    @property
    def is_fixed(self) -> bool:
        return not self.terms and self.other is None

    def start_plus(self, by: ir.Expr) -> ir.Expr:
        """`start + by`."""
        return by if self.is_fixed and not self.offset else plus(self.start, by)

    def move(self, offset: int) -> Interval:
        return Interval(self.terms, self.offset + offset, self.extent, self.other)

    @property
    def end(self) -> int:
        """`offset` of what comes after the last value."""
        return self.offset + self.extent


class View:
    """A place: a loop, or the body of a block or of the program. A loop there may be *moving*: it is neither
    outside nor inside, and questions are about its different iterations."""

    __slots__ = ("definitions", "key", "moving", "outside", "s", "sides")

    def __init__(self, s: Nest, key: Key, moving: ir.Var | None = None) -> None:
        self.s, self.key, self.moving = s, key, moving
        self.definitions = s.definitions
        self.outside: set[ir.Var] = set()
        if not isinstance(key, str):
            self.outside.update(s.loops_around(key))
            if isinstance(key, ir.Var):
                self.outside.add(key)
        self.sides: dict[ir.Var, int] = {} if moving is None else {moving: MOVING}

    # --- which side ---

    def is_outer(self, var: ir.Var) -> bool:
        """Whether all of a variable is fixed here. An iterator of the block around is."""
        return self.side(var) == OUTSIDE

    def is_inner(self, var: ir.Var) -> bool:
        return self.side(var) == INSIDE

    def side(self, var: ir.Var) -> int:
        """Where all loops of a variable are."""
        found = self.sides.get(var)
        if found is None:
            known = self.definitions.get(var)
            if known is None:
                found = OUTSIDE if var in self.outside or var not in self.s.nodes else INSIDE
            elif type(known) is FusedDigit:
                found = self.side(known.whole)
            else:
                found = self.side(known.digits[-1])
                for digit in known.digits[:-1]:
                    if self.side(digit) != found:
                        found = MIXED
                        break
            self.sides[var] = found
        return found

    # --- sums ---

    def linear(self, e: ir.Expr, iters: Iteration) -> tuple[dict[ir.Var, int], dict[ir.Var, int], int] | None:
        """`e`, with bindings for iterators, as a sum over variables outside, one over variables inside, and a
        constant; None if it is none."""
        found = bound_form(e, iters)
        if found is None:
            return None
        outer: dict[ir.Var, int] = {}
        inner: dict[ir.Var, int] = {}
        for var, c in found[0]:
            if type(var) is not ir.Var or not self.add(var, c, outer, inner):
                return None
        if 0 in outer.values() or 0 in inner.values():
            outer, inner = ({v: c for v, c in terms.items() if c} for terms in (outer, inner))
        return outer, inner, found[1]

    def add(self, var: ir.Var, factor: int, outer: dict[ir.Var, int], inner: dict[ir.Var, int]) -> bool:
        if side := self.side(var):
            terms = outer if side == OUTSIDE else inner
            terms[var] = terms.get(var, 0) + factor
            return True
        known = self.definitions[var]
        if type(known) is FusedDigit:
            return False
        for digit in reversed(known.digits):
            size = self.s.fixed_extent(digit)
            if size is None or not self.add(digit, factor, outer, inner):
                return False
            factor *= size
        return True

    # --- intervals ---

    def values(self, var: ir.Var, block: ir.Block | None) -> int | None:
        """How many values from 0 on a variable takes, in the instances of a block that its tests let run."""
        s = self.s
        known = s.definitions.get(var)
        tested = None if block is None or not block.predicate else upper_limits(block.predicate).get(var)
        if known is None:
            extent = s.extents.get(var)
            count = ir.as_int(extent) if extent is not None else iterator_extent(s, self.key, var)
            return count if tested is None or count is None else min(count, tested)
        extent = s.fixed_extent(var)
        if extent is None or tested is not None:
            return tested
        if isinstance(known, FusedDigit):
            if known.index:
                return extent
            whole, strides = self.values(known.whole, block), digit_strides(s, known.digits)
            return None if whole is None or not strides or not strides[0] else -(-whole // strides[0])
        reach = stride = 1
        for digit in reversed(known.digits):
            count, size = self.values(digit, block), s.fixed_extent(digit)
            if count is None or size is None:
                return None
            # A digit without a test of its own may run over: the number then ends later.
            reach += (max(count, 1) - 1) * stride
            stride *= size
        return reach

    def interval(
        self, start: ir.Expr, extent: ir.Expr, block: ir.Block, iters: Iteration, size: int
    ) -> Interval:
        """What `start` (and `extent` values from there) covers as the loops inside range; all of the `size`
        values that there are if not known."""
        width = ir.as_int(extent)
        found = None if width is None else self.linear(start, iters)
        if found is None or width is None:
            return self.relax_interval(start, extent, block, iters, size)
        terms, inner, low = found
        high = low + width - 1
        for var, c in inner.items():
            count = self.values(var, block)
            if count is None:
                return self.relax_interval(start, extent, block, iters, size)
            reach = c * (count - 1) if count > 1 else 0
            if reach < 0:
                low += reach
            else:
                high += reach
        return Interval(terms, low, high - low + 1)

    def relax_interval(
        self, start: ir.Expr, extent: ir.Expr, block: ir.Block, iters: Iteration, size: int
    ) -> Interval:
        """What is no sum, by the general analysis."""
        s, whole = self.s, Interval({}, 0, size)
        first, width = s.resolve(ir.substitute(start, iters)), s.resolve(ir.substitute(extent, iters))
        outer, inner = Domain(), {}
        for var in s.loops_around(block.name):
            count = s.resolve(s.extents[var])
            if ir.loads(count):
                return whole
            if var in self.outside:
                outer = outer.with_loop(var, count)
            else:
                inner[var] = count
        if ir.loads(first, width):
            return whole
        low, high = relax(first, inner, outer), relax(first + width - 1, inner, outer)
        if low is None or high is None:
            return whole
        most = outer.bounds(high[0] + high[1] - low[0])[1]
        if most is None:
            return whole
        number = ir.as_int(low[0])
        if number is not None:
            return Interval({}, number, max(most, 0))
        return Interval({}, 0, max(most, 0), other=low[0])

    def bounds(self, x: Interval) -> tuple[int | None, int | None]:
        """Least and greatest first value as the loops outside range; None: not known."""
        low = high = x.offset
        for var, c in x.terms.items():
            count = self.values(var, None)
            if count is None:
                return None, None
            reach = c * (max(count, 1) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        if x.other is not None:
            a, b = self.domain.bounds(x.other)
            return None if a is None else low + a, None if b is None else high + b
        return low, high

    def same_start(self, a: Interval, b: Interval) -> bool:
        """Whether two intervals certainly start at one place, but for their offsets."""
        if a.other is not b.other and (
            a.other is None or b.other is None or not ir.same_expr(a.other, b.other)
        ):
            return False
        return a.terms == b.terms or self.loops_of(a) == self.loops_of(b)

    def loops_of(self, x: Interval) -> dict[ir.Var, int]:
        """The terms of an interval in terms of loops and digits of fused loops, where that is possible."""
        terms: dict[ir.Var, int] = {}
        waiting = list(x.terms.items())
        while waiting:
            var, factor = waiting.pop()
            known = self.definitions.get(var)
            if self.s.fixed_extent(var) == 1:
                continue
            if not isinstance(known, Split):
                terms[var] = terms.get(var, 0) + factor
                continue
            for digit in reversed(known.digits):
                waiting.append((digit, factor))
                factor *= self.s.fixed_extent(digit) or 0
            if not factor:
                return x.terms
        return {v: c for v, c in terms.items() if c}

    @property
    def domain(self) -> Domain:
        """The loops outside."""
        if not isinstance(self.key, ir.Var):
            return Domain() if isinstance(self.key, str) else self.s.domain(self.key)
        return self.s.domain(self.key).with_loop(self.key, self.s.resolve(self.s.extents[self.key]))


def iterator_extent(s: Nest, key: Key, var: ir.Var) -> int | None:
    """The extent of an iterator of a block around a place."""
    around = [*([key] if isinstance(key, str) else []), *(s.ancestors(key) if key is not ROOT else ())]
    for above in around:
        if isinstance(above, str) and above is not ROOT:
            for it in s.nodes[above].iters:
                if it.var is var:
                    return ir.as_int(it.extent)
    return None
