"""Whether accesses to a buffer that meet in an element are always of one iteration of a loop.

Accesses are taken from the signatures of blocks (`touched_below`). Three tests, cheapest first: the variables
that index the buffer tell the iteration (`by_name`, `by_sum`), linear forms keep iterations apart
(`by_form`), the map from iterations and places within them to elements is one to one (`by_map`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...arith import access_region, iteration_map, union
from ...ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Region,
    Var,
    as_int,
    binary,
    free_vars,
    same_expr,
    substitute,
)
from ..linear import Sum
from ..state import State
from .definitions import Iteration, bound_sum, iteration, leaves_of, tell
from .forms import Form, are_apart, fixes_loop, same_digits
from .loop_frame import LoopFrame
from .touching import loads, touch


@dataclass(slots=True)
class RegionAccess:
    """A region that an instance of a block reads or writes, in terms of the block's iterators."""

    block: Block
    region: Region
    is_write: bool
    iters: Iteration


@dataclass(slots=True)
class Touched:
    """What a part of the program reads and writes."""

    accesses: dict[Buffer, list[RegionAccess]] = field(default_factory=dict)
    written: list[Buffer] = field(default_factory=list)  # in order, maybe several times
    loaded: set[Buffer] = field(default_factory=set)  # read by extents, conditions and bindings
    loops: list[Var] = field(default_factory=list)
    problem: str | None = None  # why this is not all that is touched

    def add(self, block: Block) -> None:
        iters = iteration(block)
        for regions, is_write in ((block.reads, False), (block.writes, True)):
            for r in regions:
                self.accesses.setdefault(r.buffer, []).append(RegionAccess(block, r, is_write, iters))
                if is_write:
                    self.written.append(r.buffer)


def touched_below(s: State, loop: Var) -> Touched:
    """What the body of a loop reads and writes, in program order."""
    found = Touched()
    for key in s.statements_below(loop):
        node = s.nodes[key]
        if loaded := touch(node).loaded:
            found.loaded |= loaded
        if type(node) is For:
            found.loops.append(node.var)
        elif type(node) is Block:
            found.add(node)
        elif not (type(node) is If and s.children[key]):
            found.problem = "there is a statement outside of any block"
    return found


def rows(frame: LoopFrame, group: list[RegionAccess]) -> list[list[Form | None]]:
    """Per access the forms of its dimensions."""
    return [[frame.form(start, a.iters, extent) for start, extent in a.region.ranges] for a in group]


def meet_within(frame: LoopFrame, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether accesses to one buffer below a loop, which is moving in the frame, certainly share elements
    within an iteration only, seen from sums and linear forms."""
    if len(group) == 1 and by_sum(frame, loop, group):
        return True
    forms = rows(frame, group)
    if by_form(frame, loop, forms) or by_sum(frame, loop, group):
        return True
    return all(
        by_form(frame, loop, [first, second]) or are_apart(first, second)
        for n, first in enumerate(forms)
        for m, second in enumerate(forms[: n + 1])
        if group[n].is_write or group[m].is_write
    )


def by_form(frame: LoopFrame, loop: Var, forms: list[list[Form | None]]) -> bool:
    """Whether accesses of these forms that meet have enough digits in common to tell the iteration."""
    extent = frame.s.fixed_extent(loop)
    digits = same_digits(forms, extent)
    return fixes_loop(digits, extent) or tell(frame.s, [v for v, _ in digits if type(v) is Var], [loop])


# --- by the variables -----------------------------------------------------------------------------


def by_name(s: State, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether all accesses are indexed, in some dimensions, by the same variables, and these tell the
    iteration."""
    shared = plain_indices(group[0])
    for a in group[1:]:
        mine = plain_indices(a)
        shared = {n: v for n, v in shared.items() if mine.get(n) is v}
    return bool(shared) and tell(s, shared.values(), [loop])


def plain_indices(a: RegionAccess) -> dict[int, Var]:
    """By dimension, the variable that is the index."""
    iters = a.iters
    found: dict[int, Var] = {}
    for n, (start, count) in enumerate(a.region.ranges):
        value = iters.get(start) if type(start) is Var else None
        if type(value) is Var and (type(count) is Const and count.value == 1):
            found[n] = value
    return found


def by_sum(frame: LoopFrame, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether all accesses are indexed, in some dimensions, by one moving variable each and the same fixed
    rest, and the variables tell the iteration: digits of a fused loop that tell it together, for one."""
    shared = moving_indices(frame, group[0])
    for a in group[1:] if shared else ():
        mine = moving_indices(frame, a)
        shared = {n: (v, e) for n, (v, e) in shared.items() if n in mine and is_same_sum(mine[n][1], e)}
    return bool(shared) and tell(frame.s, [v for v, _ in shared.values()], [loop])


def moving_indices(frame: LoopFrame, a: RegionAccess) -> dict[int, tuple[Var, Sum]]:
    """By dimension, the only variable in the index that does not stand still; and the whole sum."""
    found: dict[int, tuple[Var, Sum]] = {}
    for n, (start, count) in enumerate(a.region.ranges):
        index = bound_sum(start, a.iters) if as_int(count) == 1 else None
        if index is not None:
            moving = [x for x, _ in index[0] if not frame.is_still(x)]
            if len(moving) == 1 and type(moving[0]) is Var:
                found[n] = moving[0], index
    return found


def is_same_sum(a: Sum, b: Sum) -> bool:
    return a is b or (a[1] == b[1] and dict(a[0]) == dict(b[0]))


# --- by the affine map ----------------------------------------------------------------------------


def by_map(s: State, loop: Var, inner: list[Var], group: list[RegionAccess]) -> bool:
    """Whether the map from an iteration and a place in it to elements is one to one."""
    indices = [[substitute(start, a.iters) for start, _ in a.region.ranges] for a in group]
    if not all(loop in leaves_of(s, row) for row in indices):
        return False
    around = extents_around(s, loop)
    if loop not in around:
        return False
    indices = [[s.resolve(e) for e in row] for row in indices]
    if any(loads(*row) for row in indices):
        return False
    first = group[0]
    if all(a.block is first.block and is_same_element(a.region, first.region) for a in group):
        points = around | {v: n for v in inner if (n := s.fixed_extent(v)) is not None}
        if is_one_to_one(indices[0], points, loop, [s.resolve(c) for c in first.block.predicate]):
            return True
    return boxes_differ(s, loop, inner, group, indices, around)


def boxes_differ(
    s: State,
    loop: Var,
    inner: list[Var],
    group: list[RegionAccess],
    rows: list[list[Expr]],
    around: dict[Var, int],
) -> bool:
    """Whether the boxes that iterations touch do not overlap."""
    domain = s.domain(loop).with_loop(loop, s.resolve(s.extents[loop]))
    ranging: dict[Var, Expr | int] = {v: s.resolve(s.extents[v]) for v in inner}
    boxes: list[Region] = []
    for a, row in zip(group, rows, strict=True):
        indices: list[Expr] = []
        for index, (_, count) in zip(row, a.region.ranges, strict=True):
            if as_int(count) is None:
                return False
            within = Var("w")
            ranging[within] = count
            indices.append(binary("+", index, within))
        boxes.append(access_region(a.region.buffer, indices, ranging, domain))
    points = dict(around)
    indices = []
    for start, count in union(boxes, domain).ranges:
        length = as_int(count)
        if length is None:
            return False
        within = Var("w")
        points[within] = length
        indices.append(binary("+", start, within))
    return is_one_to_one(indices, points, loop, [])


def is_one_to_one(indices: list[Expr], points: dict[Var, int], loop: Var, tests: list[Expr]) -> bool:
    used = {v for index in indices for v in free_vars(index)}
    if loop not in used or not used <= set(points):
        return False
    tests = [c for c in tests if used.issuperset(free_vars(c)) and not loads(c)]
    mapped = iteration_map(indices, {v: n for v, n in points.items() if v in used}, tests)
    return mapped is not None and mapped.injective


def extents_around(s: State, loop: Var) -> dict[Var, int]:
    """The constant extents of a loop, the loops around it and the iterators of the block they are in."""
    found: dict[Var, int | None] = {}
    if scope := s.scope(loop):
        found = {it.var: as_int(it.extent) for it in s.nodes[scope].iters}
    found |= {v: s.fixed_extent(v) for v in (*s.loops_around(loop), loop)}
    return {v: n for v, n in found.items() if n is not None}


def is_same_element(a: Region, b: Region) -> bool:
    return all(
        as_int(x[1]) == 1 == as_int(y[1]) and same_expr(x[0], y[0])
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )
