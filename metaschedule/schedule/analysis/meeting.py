"""Whether accesses to a buffer that meet in an element are always of one iteration of a loop.

Accesses are taken from the signatures of blocks (`touched_below`). Three tests, cheapest first: the variables
that index the buffer tell the iteration (`by_name`, `by_sum`), linear forms keep iterations apart
(`by_form`), no solution is left to the equation of two accesses (`never_alias`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...affine.alias import Access, may_alias
from ...affine.definitions import determines
from ...affine.form import Form as Sum
from ...affine.form import Iteration, bound_form, iteration
from ...ir import Block, Buffer, Const, For, If, Region, Var, as_int
from ..state import State
from .forms import Form, are_apart, fixes_loop, same_digits
from .loop_frame import LoopFrame
from .touching import touch


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
        if type(node) is Block:
            found.add(node)
        elif type(node) is not For and not (type(node) is If and s.children[key]):
            found.problem = "there is a statement outside of any block"
    return found


def rows(view: LoopFrame, group: list[RegionAccess]) -> list[list[Form | None]]:
    """Per access the forms of its dimensions."""
    return [[view.form(start, a.iters, extent) for start, extent in a.region.ranges] for a in group]


def meet_within(view: LoopFrame, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether accesses to one buffer below a loop, which is moving in the view, certainly share elements
    within an iteration only, seen from sums and linear forms."""
    if len(group) == 1 and by_sum(view, loop, group):
        return True
    forms = rows(view, group)
    if by_form(view, loop, forms) or by_sum(view, loop, group):
        return True
    return all(
        by_form(view, loop, [first, second]) or are_apart(first, second)
        for n, first in enumerate(forms)
        for m, second in enumerate(forms[: n + 1])
        if group[n].is_write or group[m].is_write
    )


def by_form(view: LoopFrame, loop: Var, forms: list[list[Form | None]]) -> bool:
    """Whether accesses of these forms that meet have enough digits in common to tell the iteration."""
    extent = view.s.fixed_extent(loop)
    digits = same_digits(forms, extent)
    return fixes_loop(digits, extent) or determines(view.s, [v for v, _ in digits if type(v) is Var], [loop])


# --- by the variables -----------------------------------------------------------------------------


def by_name(s: State, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether all accesses are indexed, in some dimensions, by the same variables, and these tell the
    iteration."""
    shared = plain_indices(group[0])
    for a in group[1:]:
        mine = plain_indices(a)
        shared = {n: v for n, v in shared.items() if mine.get(n) is v}
    return bool(shared) and determines(s, shared.values(), [loop])


def plain_indices(a: RegionAccess) -> dict[int, Var]:
    """By dimension, the variable that is the index."""
    iters = a.iters
    found: dict[int, Var] = {}
    for n, (start, count) in enumerate(a.region.ranges):
        value = iters.get(start) if type(start) is Var else None
        if type(value) is Var and (type(count) is Const and count.value == 1):
            found[n] = value
    return found


def by_sum(view: LoopFrame, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether all accesses are indexed, in some dimensions, by one moving variable each and the same fixed
    rest, and the variables tell the iteration: digits of a fused loop that tell it together, for one."""
    shared = moving_indices(view, group[0])
    for a in group[1:] if shared else ():
        mine = moving_indices(view, a)
        shared = {n: (v, e) for n, (v, e) in shared.items() if n in mine and is_same_sum(mine[n][1], e)}
    return bool(shared) and determines(view.s, [v for v, _ in shared.values()], [loop])


def moving_indices(view: LoopFrame, a: RegionAccess) -> dict[int, tuple[Var, Sum]]:
    """By dimension, the only variable in the index that does not stand still; and the whole sum."""
    found: dict[int, tuple[Var, Sum]] = {}
    for n, (start, count) in enumerate(a.region.ranges):
        index = bound_form(start, a.iters) if as_int(count) == 1 else None
        if index is not None:
            moving = [x for x, _ in index[0] if not view.is_still(x)]
            if len(moving) == 1 and type(moving[0]) is Var:
                found[n] = moving[0], index
    return found


def is_same_sum(a: Sum, b: Sum) -> bool:
    return a is b or (a[1] == b[1] and dict(a[0]) == dict(b[0]))


# --- by the access relation -----------------------------------------------------------------------


def never_alias(s: State, loop: Var, group: list[RegionAccess]) -> bool:
    """Whether no two iterations of a loop touch one element that one of them writes."""
    around = s.loops_around(loop)
    accesses = [Access(a.region, a.iters, a.block.predicate, a.is_write) for a in group]
    return all(
        may_alias(s, around, loop, a, b) is False
        for n, a in enumerate(accesses)
        for b in accesses[: n + 1]
        if a.is_write or b.is_write
    )
