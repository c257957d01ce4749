"""Whether accesses to a buffer that meet in an element are always of one iteration of a loop.

Accesses are taken from the signatures of blocks (`touched_by`). Three tests, cheapest first: the variables
that index the buffer tell the iteration (`by_name`), linear forms keep iterations apart
(`forms.same_iteration`), the map from iterations and places within them to elements is one to one (`by_map`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...arith import access_region, iteration_map, union
from ...ir import (
    Block,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Region,
    Var,
    as_int,
    binary,
    free_vars,
    same_expr,
    subexpressions,
    substitute,
)
from ..state import Key, Part, Split, State
from .forms import Forms, are_apart, same_iteration


@dataclass(slots=True)
class Access:
    """A region that an instance of a block reads or writes, in terms of the block's iterators."""

    block: Block
    region: Region
    is_write: bool

    @property
    def values(self) -> dict[Var, Expr]:
        return {it.var: b for it, b in zip(self.block.iters, self.block.bindings, strict=True)}


@dataclass(slots=True)
class Touched:
    """What a part of the program reads and writes."""

    accesses: list[Access] = field(default_factory=list)
    loaded: set[Buffer] = field(default_factory=set)  # read by extents, conditions and bindings
    loops: list[Var] = field(default_factory=list)
    problem: str | None = None  # why this is not all that is touched

    def written(self) -> list[Buffer]:
        return list(dict.fromkeys(a.region.buffer for a in self.accesses if a.is_write))

    def of(self, buffer: Buffer) -> list[Access]:
        return [a for a in self.accesses if a.region.buffer is buffer]


def touched_by(s: State, keys: Iterable[Key], found: Touched | None = None) -> Touched:
    """What some statements, with all below them, read and write, in program order."""
    found = found or Touched()
    for key in keys:
        node = s.nodes[key]
        if isinstance(node, Block):
            found.accesses += [Access(node, r, False) for r in node.reads]
            found.accesses += [Access(node, r, True) for r in node.writes]
            note_loads(found, (*node.bindings, *node.predicate, *[it.extent for it in node.iters]))
            continue
        if isinstance(node, For):
            found.loops.append(node.var)
            note_loads(found, (node.extent,))
        elif isinstance(node, If) and s.children[key]:
            note_loads(found, (node.cond,))
        else:
            found.problem = "there is a statement outside of any block"
        touched_by(s, s.children[key], found)
    return found


def note_loads(found: Touched, exprs: Iterable[Expr]) -> None:
    for e in exprs:
        if type(e) is not Var:
            found.loaded.update([x.buffer for x in subexpressions(e) if type(x) is Load])


def meet_cheaply(s: State, loop: Var, inner: list[Var], group: list[Access]) -> bool:
    """Whether accesses to one buffer below a loop certainly share elements within an iteration only, seen
    from names and linear forms. `inner` are the loops below."""
    if by_name(s, loop, group):
        return True
    extent = s.fixed_extent(loop)
    forms = Forms(s, loop, inner)
    rows = [forms.region(a.region, a.values) for a in group]
    if same_iteration(rows, extent):
        return True
    if len(group) == 1:
        return False
    return all(
        same_iteration([first, second], extent) or are_apart(first, second)
        for n, first in enumerate(rows)
        for m, second in enumerate(rows[: n + 1])
        if group[n].is_write or group[m].is_write
    )


# --- by the variables -----------------------------------------------------------------------------


def by_name(s: State, loop: Var, group: list[Access]) -> bool:
    """Whether all accesses are indexed, in some dimensions, by the same variables, and these tell the
    iteration."""
    shared = plain_indices(group[0])
    for a in group[1:]:
        mine = plain_indices(a)
        shared = {n: v for n, v in shared.items() if mine.get(n) is v}
    return bool(shared) and determines(s, set(shared.values()), loop)


def plain_indices(a: Access) -> dict[int, Var]:
    """By dimension, the variable that is the index."""
    values = a.values
    found: dict[int, Var] = {}
    for n, (start, count) in enumerate(a.region.ranges):
        value = values.get(start) if type(start) is Var else None
        if type(value) is Var and as_int(count) == 1:
            found[n] = value
    return found


def determines(s: State, known: set[Var], loop: Var) -> bool:
    """Whether the values of some variables tell the iteration of a loop: a split variable tells its digits,
    all parts of a fused loop tell the loop."""
    waiting = list(known)
    while waiting:
        var = waiting.pop()
        if var is loop:
            return True
        definition = s.definitions.get(var)
        new: tuple[Var, ...] = ()
        if isinstance(definition, Split):
            new = definition.digits
        elif isinstance(definition, Part) and all(
            part in known or s.fixed_extent(part) == 1 for part in definition.digits
        ):
            new = (definition.whole,)
        waiting += [v for v in new if v not in known]
        known = known.union(new)
    return False


# --- by the affine map ----------------------------------------------------------------------------


def by_map(s: State, loop: Var, inner: list[Var], group: list[Access]) -> bool:
    """Whether the map from an iteration and a place in it to elements is one to one."""
    if not all(moves_with(s, loop, a) for a in group):
        return False
    around = extents_around(s, loop)
    if loop not in around:
        return False
    rows = [[s.resolve(substitute(start, a.values)) for start, _ in a.region.ranges] for a in group]
    if any(type(x) is Load for row in rows for e in row for x in subexpressions(e)):
        return False
    first = group[0]
    alike = all(a.block is first.block and is_same_element(a.region, first.region) for a in group)
    if alike:
        points = around | {v: n for v in inner if (n := s.fixed_extent(v)) is not None}
        if is_one_to_one(rows[0], points, loop, [s.resolve(c) for c in first.block.predicate]):
            return True
    return boxes_differ(s, loop, inner, group, rows, around)


def moves_with(s: State, loop: Var, a: Access) -> bool:
    """Whether a loop has a say in where an access is."""
    values = a.values
    used = [v for start, _ in a.region.ranges for x in free_vars(start) for v in free_vars(values.get(x, x))]
    return any(leaf is loop for v in used for leaf in s.leaves(v))


def boxes_differ(
    s: State, loop: Var, inner: list[Var], group: list[Access], rows: list[list[Expr]], around: dict[Var, int]
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
    tests = [c for c in tests if used.issuperset(free_vars(c)) and not any(map(is_load, subexpressions(c)))]
    mapped = iteration_map(indices, {v: n for v, n in points.items() if v in used}, tests)
    return mapped is not None and mapped.injective


def extents_around(s: State, loop: Var) -> dict[Var, int]:
    """The constant extents of a loop, the loops around it and the iterators of the block they are in."""
    found: dict[Var, int | None] = {}
    if scope := s.scope(loop):
        found = {it.var: as_int(it.extent) for it in s.nodes[scope].iters}
    found |= {v: s.fixed_extent(v) for v in (*s.loops_around(loop), loop)}
    return {v: n for v, n in found.items() if n is not None}


def is_load(e: Expr) -> bool:
    return type(e) is Load


def is_same_element(a: Region, b: Region) -> bool:
    return all(
        as_int(x[1]) == 1 == as_int(y[1]) and same_expr(x[0], y[0])
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )
