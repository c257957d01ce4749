"""`footprint`: the elements that an access touches while the loops inside of a view range.

    for i in range(8):           X[4 * i + j], 0 <= j < 4, seen from the loop over i: 4 values from 4 * i on
        for j in range(4):       seen from outside of it: 32 values from 0 on
            X[4 * i + j] = ...   with X[8 * i + j] it would be 60 values from 0 on, with holes
    where 4 * i + j < 30:        32 values from 0 on, up to 30

`footprint` is a box around what may be touched; `find_written` one of which every point is touched for
sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..arith import Domain, iteration_map, relax, simplify
from .access import Access
from .constraint import constraints_of
from .definitions import are_independent, consists_of, is_definition_test
from .form import Iteration, form_of, iteration, variables
from .instance import WIDE
from .nest import ROOT
from .view import INSIDE, MIXED, OUTSIDE, Interval, View


def footprint(view: View, access: Access) -> list[Interval]:
    """Per dimension an interval of all that an access may touch."""
    return [
        view.interval(start, extent, access.block, access.iters, size)
        for (start, extent), size in zip(access.region.ranges, access.buffer.shape, strict=True)
    ]


def unite(view: View, a: Interval, b: Interval) -> Interval | None:
    """An interval that covers two; None where they cannot be compared."""
    if a.terms == b.terms and is_same_expr(a.other, b.other):
        low = min(a.offset, b.offset)
        return Interval(a.terms, low, max(a.end, b.end) - low, a.other)
    # Starts that move apart: constant ends of both, if they are known.
    (low, high), (least, most) = view.bounds(a), view.bounds(b)
    if low is None or high is None or least is None or most is None:
        return None
    first = min(low, least)
    return Interval({}, first, max(high + a.extent, most + b.extent) - first)


def is_same_expr(a: ir.Expr | None, b: ir.Expr | None) -> bool:
    return a is b or (a is not None and b is not None and ir.same_expr(a, b))


def clip(x: Interval, first: int, last: int) -> Interval:
    """An interval cut down to [first, last] where that needs no test: if it is as wide, or does not move."""
    width = last - first + 1
    if x.is_fixed:
        low, high = max(x.offset, first), min(x.end - 1, last)
        return Interval({}, low, high - low + 1) if low <= high else Interval({}, first, 0)
    return Interval({}, first, width) if x.extent >= width else x


# --- for sure -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Box:
    """Per dimension the indices, and the index to stop before (None: none); all of it where `guards` hold.
    The expressions are over loops outside of the box."""

    ranges: list[tuple[Interval, int | None]]
    guards: list[ir.Expr]

    def is_whole(self, shape: Sequence[int]) -> bool:
        return not self.guards and all(
            x.is_fixed and not x.offset and (x.extent if limit is None else min(x.extent, limit)) >= size
            for (x, limit), size in zip(self.ranges, shape, strict=True)
        )

    def holds(self, view: View, need: Sequence[Interval], shape: Sequence[int]) -> bool:
        """Whether all indices of a buffer of this shape in some intervals are in the box."""
        for x, (have, limit), size in zip(need, self.ranges, shape, strict=True):
            plain = limit is None and x.other is None and have.other is None and x.terms == have.terms
            if plain and have.offset <= x.offset and x.end <= have.end:
                continue
            fixed = x.other is None and not (x.terms and view.loops_of(x))
            low, end = (max(x.offset, 0), min(x.end, size)) if fixed else (x.offset, x.end)
            if low < have.offset or end > have.end or not view.same_start(x, have):
                return False
            # What lies behind the limit is not written; it must be behind the end of the buffer, too.
            if limit is not None and limit < size and (not fixed or end > limit):
                return False
        return True

    def is_same(self, view: View, other: Box) -> bool:
        """Whether two boxes certainly have the same points."""
        for (a, limit), (b, stop) in zip(self.ranges, other.ranges, strict=True):
            if not view.same_start(a, b) or a.offset != b.offset:
                return False
            fixed = not (a.terms and view.loops_of(a)) and a.other is None
            ends = [x.end if n is None or not fixed else min(x.end, n) for x, n in ((a, limit), (b, stop))]
            if ends[0] != ends[1] or (limit != stop and not fixed):
                return False
        return ir.same_exprs(self.guards, other.guards)


def whole_box(shape: Sequence[int]) -> Box:
    return Box([(Interval({}, 0, size), None) for size in shape], [])


def find_written(view: View, block: ir.Block, indices: Sequence[ir.Expr]) -> Box | None:
    """The box that `indices` (over the iterators of a block) take while what is below a view runs once, each
    point of it for sure; None if that is not known.

    Variables that were split or fused range over their whole extents, whatever loops they consist of; a
    guard that says no more than `var < extent` of such a variable excludes nothing."""
    s, iters = view.s, iteration(block)
    if not runs_surely(view, block):
        return None
    limits: dict[ir.Var, tuple[int, int]] = {}  # first and last by iterator
    guards: list[ir.Expr] = []
    known: set[ir.Var] = set()
    for test in block.predicate:
        sides = {view.side(v) for v in variables(test)}
        if sides <= {OUTSIDE}:
            guards.append(s.resolve(test))
            continue
        if sides == {INSIDE} and is_definition_test(s, test):
            known = known or consists_of(s, [v for b in block.bindings for v in variables(b)])
        if sides != {INSIDE} or variables(test)[0] not in known:
            bound = find_bounded_iterator(iters, test)
            if bound is None or not any(index is bound[0] for index in indices):
                return None
            var, first, last = bound
            known_first, known_last = limits.get(var, (-WIDE, WIDE))
            limits[var] = max(first, known_first), min(last, known_last)
    found = dense_sums(view, indices, iters) or dense_map(view, indices, iters)
    if found is None:
        return None
    ranges: list[tuple[Interval, int | None]] = []
    for index, x in zip(indices, found, strict=True):
        first, last = limits.get(index, (-WIDE, WIDE)) if type(index) is ir.Var else (-WIDE, WIDE)
        if first > -WIDE:
            if not x.is_fixed:
                return None
            x = clip(x, first, WIDE)
        ranges.append((x, last + 1 if last < WIDE else None))
    return Box(ranges, guards)


def runs_surely(view: View, block: ir.Block) -> bool:
    """Whether nothing but loops, each with an iteration, is between a view and a block."""
    for above in view.s.ancestors(block.name):
        if above is view.key:
            return True
        if not isinstance(above, ir.Var) or not view.s.fixed_extent(above):
            return False  # a condition, or a loop that may be empty
    return view.key is ROOT


def find_bounded_iterator(iters: Iteration, test: ir.Expr) -> tuple[ir.Var, int, int] | None:
    """(iterator, first, last) if a conjunct says no more than that an iterator is not before or after."""
    found = constraints_of(test) or ()
    if len(found) != 1:
        return None
    (terms, _), low, high = found[0]
    for var, binding in iters.items():
        form = form_of(binding)
        if len(form.terms) == len(terms) and dict(form.terms) == dict(terms):
            ends = max(low + form.const, -WIDE), min(high + form.const, WIDE)
            return var, int(ends[0]), int(ends[1])
    return None


def dense_sums(view: View, indices: Sequence[ir.Expr], iters: Iteration) -> list[Interval] | None:
    """The values of indices that are sums over loops of their own."""
    s = view.s
    ranging: list[ir.Var] = []
    found: list[Interval] = []
    for index in indices:
        split = view.linear(index, iters)
        if split is None:
            return None
        terms, inner, offset = split
        steps: list[tuple[int, int]] = []
        for var, c in inner.items():
            extent = s.fixed_extent(var)
            if not extent or c < 0:
                return None
            ranging.append(var)
            steps.append((c, extent))
        if not fills(steps):
            return None
        found.append(Interval(terms, offset, 1 + sum([c * (n - 1) for c, n in steps])))
    return found if are_independent(s, ranging) else None


def fills(terms: list[tuple[int, int]]) -> bool:
    """Whether sums of terms of (factor, number of values) leave no holes."""
    reach = 1
    for factor, count in sorted(terms):
        if count > 1 and factor > reach:
            return False
        reach += factor * (max(count, 1) - 1)
    return True


def dense_map(view: View, indices: Sequence[ir.Expr], iters: Iteration) -> list[Interval] | None:
    """The values of other indices, if the map from the loops inside to them has no holes.

    (f // 4, f % 4) of f < 12: 3 values and 4 values, and each of the 12 pairs is reached; (f, f) is a
    diagonal, with holes.
    """
    s = view.s
    loops: dict[ir.Var, int] = {}
    values: list[ir.Expr] = []
    for index in indices:
        value = ir.substitute(index, iters)
        while mixed := [v for v in variables(value) if view.side(v) == MIXED]:
            value = ir.substitute(value, {v: e for v in mixed if (e := s.definition(v)) is not None})
        for var in variables(value):
            if view.is_inner(var):
                extent = ir.as_int(s.extents[var])
                if not extent:
                    return None
                loops[var] = extent
        values.append(value)
    if not are_independent(s, loops):
        return None
    found: list[Interval] = []
    offsets: list[ir.Expr] = []
    for value in values:
        hull = relax(value, loops, Domain())
        count = None if hull is None else ir.as_int(hull[1])
        if hull is None or count is None:
            return None
        number = ir.as_int(hull[0])
        found.append(Interval({}, number or 0, count, s.resolve(hull[0]) if number is None else None))
        offsets.append(simplify(value - hull[0], Domain(loops)))
    onto = iteration_map(offsets, loops)
    if onto is None or not onto.surjective or [(0, x.extent - 1) for x in found] != list(onto.ranges):
        return None
    return found
