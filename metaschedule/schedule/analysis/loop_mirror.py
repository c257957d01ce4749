"""The loops that a block gets where it moves, and what its iterators are bound to there.

`NewLoops` makes one loop for an interval of values. `LoopMirror` makes loops in the place of those of
another block, and variables with the same definitions over them, so that expressions over its variables
become expressions over theirs:

    P below t: v is bound to i of 30, i = t * 8 + u with u of 8, where i < 30
    a block that runs for the same v has a loop ax0 of 8, i' = t * 8 + ax0, and is bound to i', where i' < 30
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ... import ir
from ...affine.definitions import (
    Definition,
    FusedDigit,
    Split,
    are_independent,
    excludes_nothing,
    leaf_loops_of,
)
from ...affine.form import variables
from ...affine.interned import less, number, replaced
from ...affine.view import Interval, View
from ...errors import ScheduleError
from .iteration_domain import Reach
from .moving import Move


class Values(NamedTuple):
    """What an iterator is bound to, with the least and greatest value of that if they are known."""

    binding: ir.Expr
    low: int | None
    high: int | None


class NewLoops:
    """Loops below a view, outermost first."""

    def __init__(self, view: View, units: bool) -> None:
        self.view = view
        self.units = units  # whether loops of one iteration are made
        self.loops: dict[ir.Var, int] = {}  # with their extents
        self.definitions: dict[
            ir.Var, tuple[Definition, ir.Expr]
        ] = {}  # of variables over them, with extents

    def fresh(self, extent: int) -> ir.Expr:
        if extent == 1 and not self.units:
            return ir.Const(0, ir.INDEX)
        var = self.view.s.fresh(f"ax{len(self.loops)}")
        self.loops[var] = extent
        return var

    def over(self, x: Interval) -> Values:
        """A loop over an interval."""
        low, high = self.view.bounds(x)
        new = self.fresh(x.extent)
        binding = x.start if isinstance(new, ir.Const) else x.shifted(new)
        return Values(binding, low, None if high is None else high + x.extent - 1)

    def place(
        self, block: ir.Block, values: Sequence[Values], domain: Sequence[Reach], own: Sequence[ir.Expr]
    ) -> Move:
        """A block in these loops. Tests keep its iterators within the constants of `domain` where that is not
        certain; `own` are conditions of the iterators, which move along."""
        predicate = self.tests()
        for (binding, low, high), (_, first, last) in zip(values, domain, strict=True):
            if low is None or low < first:
                predicate.append(ir.Binary(">=", binding, number(first), "bool"))
            if high is None or high > last:
                predicate.append(less(binding, number(last + 1)))
        bindings = tuple([v.binding for v in values])
        at = {it.var: binding for it, binding in zip(block.iters, bindings, strict=True)} if own else {}
        new = ir.changed(
            block, bindings=bindings, predicate=(*predicate, *[ir.substitute(e, at) for e in own])
        )
        assert isinstance(self.view.key, ir.Var)
        loops = [ir.For(v, number(n), ()) for v, n in self.loops.items()]
        return Move(new, loops, self.view.key, 0, self.definitions)

    def tests(self) -> list[ir.Expr]:
        """Where a block in these loops runs at most."""
        return []


class LoopMirror(NewLoops):
    """New loops in the place of a producer's loops inside of a view."""

    def __init__(self, view: View, producer: ir.Block, units: bool) -> None:
        super().__init__(view, units)
        self.producer = producer
        self.known: dict[ir.Var, ir.Expr] = {}  # images of variables
        self.used: list[ir.Var] = []  # what was replaced

    def image(self, e: ir.Expr) -> ir.Expr:
        """`e` with new loops."""
        if isinstance(e, ir.Var):
            return self.variable(e)
        old = variables(e)
        return replaced(e, old, tuple([self.variable(var) for var in old]))

    def variable(self, var: ir.Var) -> ir.Expr:
        found = self.known.get(var)
        if found is None:
            found = self.known[var] = self.work_out(var)
        return found

    def work_out(self, var: ir.Var) -> ir.Expr:
        s, view = self.view.s, self.view
        if view.is_outer(var):
            return var
        extent = s.fixed_extent(var)
        if view.is_inner(var) and extent is not None and view.values(var, self.producer) == extent:
            return self.replace([var], extent)
        known = s.definitions.get(var)
        if isinstance(known, Split):
            digits = tuple([d for d in self.digits(known) if isinstance(d, ir.Var)])
            return self.define(var, Split(digits)) if digits else ir.Const(0, ir.INDEX)
        if isinstance(known, FusedDigit):
            whole = self.variable(known.whole)
            if not isinstance(whole, ir.Var):
                return whole
            digits = tuple([s.fresh(d.name) for d in known.digits])
            for n, digit in enumerate(known.digits):
                self.definitions[digits[n]] = FusedDigit(whole, digits, n), s.extents[digit]
                self.known.setdefault(digit, digits[n])
            return digits[known.index]
        raise ScheduleError(
            f"block {self.producer.name!r} leaves out iterations of the loop over {var.name}",
            marks={var: "cannot be followed", self.producer.name: "its loops would be followed"},
        )

    def define(self, var: ir.Var, definition: Split) -> ir.Var:
        new = self.view.s.fresh(var.name)
        self.definitions[new] = definition, self.view.s.extents[var]
        return new

    def digits(self, known: Split) -> list[ir.Expr]:
        """The digits of the image of a number. Those inside that are next to each other become one loop."""
        s, view = self.view.s, self.view
        groups: list[tuple[list[ir.Var], bool]] = []  # digits, and whether they are one loop
        for digit in known.digits:
            size = s.fixed_extent(digit)
            if size is None:
                raise ScheduleError(
                    f"the extent of {digit.name} is not a constant", marks={digit: "cannot be followed"}
                )
            whole = view.is_inner(digit) and view.values(digit, self.producer) == size
            if whole and groups and groups[-1][1]:
                groups[-1][0].append(digit)
            else:
                groups.append(([digit], whole))
        return [
            self.replace(some, math.prod([s.fixed_extent(d) or 0 for d in some]))
            if whole
            else self.variable(some[0])
            for some, whole in groups
        ]

    def replace(self, old: list[ir.Var], extent: int) -> ir.Expr:
        """A new loop for variables inside."""
        self.used += old
        return self.fresh(extent)

    def check_used(self) -> None:
        """Raises if variables that were replaced share a loop."""
        if not are_independent(self.view.s, self.used):
            raise ScheduleError(
                f"two iterators of block {self.producer.name!r} depend on one loop",
                marks={self.producer.name: "its loops cannot be followed"},
            )

    def tests(self) -> list[ir.Expr]:
        """The tests of the producer, for its mirror image: those that say something of what is followed."""
        s, view, found = self.view.s, self.view, list[ir.Expr]()
        bound = [v for b in self.producer.bindings for v in variables(b)]
        followed = leaf_loops_of(s, self.used)
        for test in self.producer.predicate:
            if all(view.is_inner(v) for v in variables(test)) and (
                excludes_nothing(s, [test], bound) or followed.isdisjoint(leaf_loops_of(s, [test]))
            ):
                continue
            count = len(self.loops)
            image = self.image(test)
            if len(self.loops) > count:  # of something that the block does not follow
                raise ScheduleError(
                    f"a test of block {self.producer.name!r} cannot be carried along: {test}",
                    marks={self.producer.name: "has a predicate"},
                )
            found.append(image)
        return found
