"""New loops that are the mirror image of another block's.

Read `Mirror` first. The loops of a producer inside of a view are replaced by new ones, and so its bindings
become bindings of a consumer that runs for the same elements, with the tests of tiles that do not divide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...affine.definitions import FusedDigit, Split, are_independent, is_definition_test
from ...affine.form import iteration, variables
from ...affine.interned import less, number, plus, replaced, times
from ...affine.view import Interval, View
from ...errors import ScheduleError
from ...ir import INDEX, Binary, Block, Const, Expr, For, Var, as_int, changed, const
from .moving import Move

Links = dict[Var, tuple[Var, int]]  # iterator of the consumer: (iterator of the producer, what is added)


@dataclass(slots=True)
class Mirror:
    """New loops in the place of a producer's loops inside of a view."""

    view: View
    producer: Block
    units: bool  # whether loops of one iteration are made
    loops: dict[Var, int] = field(default_factory=dict)  # new ones with their extents, outermost first
    known: dict[Var, Expr] = field(default_factory=dict)  # images of variables
    used: list[Var] = field(default_factory=list)  # what was replaced

    def fresh(self, extent: int) -> Expr:
        if extent == 1 and not self.units:
            return Const(0, INDEX)
        var = self.view.s.fresh(f"ax{len(self.loops)}")
        self.loops[var] = extent
        return var

    def image(self, e: Expr) -> Expr:
        """`e` with new loops."""
        if isinstance(e, Var):
            return self.variable(e)
        old = variables(e)
        return replaced(e, old, tuple([self.variable(var) for var in old]))

    def variable(self, var: Var) -> Expr:
        found = self.known.get(var)
        if found is None:
            found = self.known[var] = self.work_out(var)
        return found

    def work_out(self, var: Var) -> Expr:
        s, view = self.view.s, self.view
        if view.is_outer(var):
            return var
        extent = s.fixed_extent(var)
        if view.is_inner(var) and extent is not None and view.values(var, self.producer) == extent:
            return self.replaced([var], extent)
        known = s.definitions.get(var)
        if isinstance(known, Split):
            return self.number(known)
        if isinstance(known, FusedDigit):
            whole = self.variable(known.whole)
            stride: Expr = const(1)
            for digit in known.digits[known.index + 1 :]:
                stride = stride * s.extents[digit]
            value = whole // stride
            return value % s.extents[known.digits[known.index]] if known.index else value
        raise ScheduleError(
            f"block {self.producer.name!r} leaves out iterations of the loop over {var.name}",
            marks={var: "cannot be followed", self.producer.name: "its loops would be followed"},
        )

    def number(self, known: Split) -> Expr:
        """The image of a number. Digits inside that are next to each other become one loop."""
        s, view = self.view.s, self.view
        groups: list[tuple[list[Var], bool, int]] = []  # digits, whether they are one loop, their stride
        stride = 1
        for digit in reversed(known.digits):
            size = s.fixed_extent(digit)
            if size is None:
                raise ScheduleError(
                    f"the extent of {digit.name} is not a constant", marks={digit: "cannot be followed"}
                )
            whole = view.is_inner(digit) and view.values(digit, self.producer) == size
            if whole and groups and groups[-1][1]:
                groups[-1][0].insert(0, digit)
            else:
                groups.append(([digit], whole, stride))
            stride *= size
        value: Expr | None = None
        for digits, whole, factor in reversed(groups):
            if whole:
                part = self.replaced(digits, math.prod([s.fixed_extent(d) or 0 for d in digits]))
            else:
                part = self.variable(digits[0])
            value = plus(value, times(part, factor))
        assert value is not None
        return value

    def replaced(self, old: list[Var], extent: int) -> Expr:
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


def mirrored(mirror: Mirror, block: Block, links: Links, own: dict[Var, Interval]) -> Move:
    """The block with bindings that follow those of the mirror's producer. Where there is nothing to follow,
    it has loops over the values in `own`, or over all."""
    producer = mirror.producer
    theirs = iteration(producer)
    extents = {it.var: as_int(it.extent) or 0 for it in producer.iters}
    bindings: list[Expr] = []
    tests: list[Expr] = []

    def add(binding: Expr, size: int, low: bool, high: bool) -> None:
        bindings.append(binding)
        if low:
            tests.append(Binary(">=", binding, Const(0, INDEX), "bool"))
        if high:
            tests.append(less(binding, number(size)))

    for it in block.iters:
        size = as_int(it.extent) or 0
        link = links.get(it.var)
        if link is None:
            span = own.get(it.var)
            if span is None:
                add(mirror.fresh(size), size, False, False)
            else:
                first, last = mirror.view.bounds(span)
                low = first is None or first < 0
                high = last is None or last + span.extent > size
                add(plus(span.start, mirror.fresh(span.extent)), size, low, high)
            continue
        var, offset = link
        add(plus(mirror.image(theirs[var]), offset), size, offset < 0, extents[var] + offset > size)
    mirror.check_used()
    tests = carried_tests(mirror) + tests
    new = changed(block, bindings=tuple(bindings), predicate=tuple(tests))
    loops = [For(v, number(n), ()) for v, n in mirror.loops.items()]
    assert isinstance(mirror.view.key, Var)
    return Move(new, loops, mirror.view.key, 0)


def carried_tests(mirror: Mirror) -> list[Expr]:
    """The tests of the producer, for its mirror image."""
    view, producer = mirror.view, mirror.producer
    found: list[Expr] = []
    for test in producer.predicate:
        if is_definition_test(view.s, test):
            (var,) = variables(test)
            if view.is_inner(var):
                continue  # the variable has become one loop, or belongs to a reduction
        count = len(mirror.loops)
        image = mirror.image(test)
        if len(mirror.loops) > count:  # of something that the block does not follow
            raise ScheduleError(
                f"a test of block {producer.name!r} cannot be carried along: {test}",
                marks={producer.name: "has a predicate"},
            )
        found.append(image)
    return found
