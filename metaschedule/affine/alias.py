"""`may_alias`: whether different iterations of a loop touch one element.

    for i in range(8):           write X[4 * i + j], 0 <= j < 4: iterations i and i + d meet where
        for j in range(4):       4 * i + j = 4 * (i + d) + j', so 4 * d = j - j' <= 3: for no d >= 1
            X[4 * i + j] = ...

Most accesses are told apart by looking at one dimension after the other (`are_told_apart`); what is left is
a system, whose solutions are the iterations that meet.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from operator import itemgetter

from .. import ir
from .access import Access
from .definitions import determines, split_digits
from .form import Iteration, bound_form, variables
from .instance import WIDE, Instance, Linear
from .nest import Nest
from .system import System
from .view import INSIDE, OUTSIDE, View


def may_alias(view: View, a: Access, b: Access) -> bool | None:
    """Whether two accesses touch one element in different iterations of the view's moving loop, the loops
    around it standing still: True if they do, False if they certainly do not, None if that is not known."""
    if are_told_apart(view, a, b):
        return False
    loop = view.moving
    assert loop is not None
    later = may_meet_later(view.s, (loop, a), (loop, b))
    if later is True or a is b:  # a meets itself in either order alike
        return later
    sooner = may_meet_later(view.s, (loop, b), (loop, a))
    return sooner if later is False or sooner is True else None


# --- dimension by dimension -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class PlacedIndex:
    """An index as a moving loop sees it: what stands `fixed` around it, the variables that are `moving` with
    it, and the least and greatest value of the rest, which ranges inside."""

    fixed: dict[Hashable, int]
    moving: dict[ir.Var, int]
    low: int
    high: int


def are_told_apart(view: View, a: Access, b: Access) -> bool:
    """Whether two accesses certainly touch different elements in different iterations of the moving loop,
    seen from one dimension after the other.

        fuse(i of 6, j of 10) = f, split by 16 into f0, f1; f1 is moving; f // 10 and f % 10 move with it
            X[f // 10, f % 10 * 2 + k], k < 2:  equal rows mean equal f // 10; equal columns mean equal
            f % 10, because 2 > 1; these determine f, and f determines f1

    A variable that moves is *settled* where equal elements mean equal values: its factor is more than all
    that is of less weight can make up for.
    """
    loop = view.moving
    assert loop is not None
    columns: list[tuple[PlacedIndex, PlacedIndex]] = []
    settled: set[ir.Var] = set()
    for mine, theirs in zip(reversed(a.region.ranges), reversed(b.region.ranges), strict=True):
        f = place_range(view, mine, a.iters)
        g = f if a is b else place_range(view, theirs, b.iters)
        if f is not g and f is not None and g is not None and f.moving != g.moving:
            # 16 * f0 + k, and f = 16 * f0 + f1: of the same variables when cut
            f, g = place_range(view, mine, a.iters, cut=True), place_range(view, theirs, b.iters, cut=True)
        if f is not None and g is not None and (f is g or f.fixed == g.fixed):
            columns.append((f, g))
            if settle(view, f, g, settled) and (loop in settled or determines(view.s, settled, (loop,))):
                return True  # mostly by the last dimension, or what is fused
    return are_columns_apart(view, loop, columns, settled)


def are_columns_apart(
    view: View, loop: ir.Var, columns: list[tuple[PlacedIndex, PlacedIndex]], settled: set[ir.Var]
) -> bool:
    """`are_told_apart` where each dimension has been looked at once: what one settles may help another."""
    while any(settle(view, f, g, settled) for f, g in columns):
        if determines(view.s, settled, (loop,)):
            return True
    return any(f is not g and is_disjoint(view, f, g) for f, g in columns)


def settle(view: View, f: PlacedIndex, g: PlacedIndex, settled: set[ir.Var]) -> bool:
    """Add the variables that must be equal where two indices are; gives whether there are new ones."""
    moving, before = f.moving, len(settled)
    if not moving or (f is not g and moving != g.moving):
        return False
    spread = max(f.high, g.high) - min(f.low, g.low)
    if len(moving) == 1:
        ((var, factor),) = moving.items()
        if abs(factor) > spread:
            settled.add(var)
        return len(settled) > before
    terms = sorted([(abs(c), v) for v, c in moving.items() if v not in settled], key=itemgetter(0))
    reach: int | None = spread
    found: list[ir.Var] = []
    for factor, var in terms:  # the least first: each must outweigh all before it
        if reach is None or factor <= reach:
            found = []
        if reach is not None and factor > reach:
            found.append(var)
        extent = view.s.fixed_extent(var)
        reach = None if reach is None or extent is None else reach + factor * (extent - 1)
    settled.update(found)
    return len(settled) > before


def is_disjoint(view: View, f: PlacedIndex, g: PlacedIndex) -> bool:
    """Whether one index ends before the other begins, whatever the iterations."""
    (low, high), (first, last) = reach_of(view, f), reach_of(view, g)
    return high < first or last < low


def reach_of(view: View, index: PlacedIndex) -> tuple[float, float]:
    """Least and greatest value over all iterations, but for what is fixed."""
    low, high = float(index.low), float(index.high)
    for var, c in index.moving.items():
        extent = view.s.fixed_extent(var)
        reach = c * (float("inf") if extent is None else max(extent - 1, 0))
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


def place_range(
    view: View, indices: tuple[ir.Expr, ir.Expr], iters: Iteration, cut: bool = False
) -> PlacedIndex | None:
    """A range of indices as the moving loop sees it; None if it is no sum. Variables are kept whole unless
    they are to be cut into digits that are moving or not."""
    form, count = bound_form(indices[0], iters), ir.as_int(indices[1])
    if form is None or count is None:
        return None
    s = view.s
    fixed: dict[Hashable, int] = {}
    moving: dict[ir.Var, int] = {}
    low, high = form.const, form.const + count - 1
    waiting = list(form.terms)
    while waiting:
        x, c = waiting.pop()
        if type(x) is not ir.Var:
            if not is_still(view, x):
                return None
            key = ir.expr_key(s.resolve(x))
            fixed[key] = fixed.get(key, 0) + c
            continue
        extent, side = s.fixed_extent(x), view.side(x)
        if extent == 1 and x is not view.moving:
            continue  # it is 0
        if cut and side != INSIDE and (digits := split_digits(s, x)) is not None:
            waiting += [(digit, c * stride) for digit, stride in digits]
        elif side == OUTSIDE:
            fixed[x] = fixed.get(x, 0) + c
        elif side != INSIDE:
            moving[x] = moving.get(x, 0) + c
        elif extent is None:
            return None
        else:
            reach = c * max(extent - 1, 0)
            low, high = low + min(reach, 0), high + max(reach, 0)
    return PlacedIndex(fixed, moving, low, high)


def is_still(view: View, e: ir.Expr) -> bool:
    """Whether all iterations of the moving loop see one value."""
    return all(map(view.is_outer, variables(e))) and not ir.loads(e)


# --- by a system ----------------------------------------------------------------------------------


def may_meet_later(nest: Nest, first: tuple[ir.Var, Access], second: tuple[ir.Var, Access]) -> bool | None:
    """Whether an access touches, in an iteration of its loop, what another touches in a later iteration of
    its own; the loops are one, or follow one another, and have one extent.

        for i in range(8): X[i] = ...      X[i] and X[j + 1] meet where i = j + 1: the first loop is
        for j in range(7): ... X[j + 1]    later, so (j, X[j + 1]), (i, X[i]) do, and not the other way round
    """
    system = System()
    (moving, a), (follower, b) = first, second
    here = Instance(system, nest)
    common = {v: here.variable(v) for v in nest.loops_around(moving)}
    before = here.variable(moving)
    extent = ir.as_int(nest.extents[moving])
    last = WIDE if extent is None else extent - 1
    if last < 1:
        return False
    after = before.plus(here.fresh(1, last))
    if extent is not None:
        here.require(after, 0, last)
    one = Instance(system, nest, {**common, moving: before}, a.iters)
    other = Instance(system, nest, {**common, follower: after}, b.iters, twin=one)
    for instance, access in ((one, a), (other, b)):
        for test in access.guards:
            instance.assume(test)
    for mine, theirs in zip(a.region.ranges, b.region.ranges, strict=True):
        require_common_index(one, mine, other, theirs)
    empty = system.is_empty()
    return None if empty is None else not empty


def require_common_index(
    one: Instance, mine: tuple[ir.Expr, ir.Expr], other: Instance, theirs: tuple[ir.Expr, ir.Expr]
) -> None:
    """Require that two ranges have an index in common: start + k = start' + k', each k below its extent."""
    index = one.value(mine[0]).plus(other.value(theirs[0]), -1)
    one.require(index.plus(offset(one, mine[1])).plus(offset(other, theirs[1]), -1), 0, 0)


def offset(instance: Instance, extent: ir.Expr) -> Linear:
    """A number from 0 on, below an extent."""
    count = ir.as_int(extent)
    if count == 1:
        return Linear({})
    new = instance.fresh(0, WIDE if count is None else count - 1)
    if count is None:
        instance.require(new.plus(instance.value(extent), -1), -float("inf"), -1)
    return new
