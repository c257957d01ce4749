"""Intermediate buffers cut down to what is alive at once.

After compute_at, a buffer is declared at its full shape and used one tile at a time. If everything that
touches it sits under some loops, it needs room only for the box touched within one iteration of these, and
its indices count from the start of that box. Two iterations then share memory, so this is right only if they
do not run together (`model.kept_loops`) and none sees what another has left there, which is so where

- the box does not move (every iteration has the same one, values stay where they were), or
- boxes of different iterations do not overlap and no box comes back, or
- each iteration writes all that it reads, before it reads.

    for i0 of 22, j0 of 6: { C_local[i0 * 6 + i1, j0 * 16 + j1] += ...; C[...] = C_local[i0 * 6 + i1, ...] }
    one iteration of j0 touches a box of 6 x 16 that starts at (i0 * 6, j0 * 16): of 128 x 96 elements 96 are
    left, C_local[i1, j1], because each iteration writes all of its box before it reads it

What is left is dense and row-major, or padded as `storage_align` asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from ... import ir
from ...affine.constraint import bound_of
from ...affine.form import form_of
from ...affine.injective import is_injective, is_one_to_one
from ...arith import Domain, access_region, conjuncts, contains, relax, simplify, union
from ...ir.annotations import STORAGE_ALIGN
from .accesses import Use, accesses, common_loops
from .model import kept_loops
from .scope import assume, inside


def compact_buffers(program: ir.Program) -> ir.Program:
    """The program with its intermediate buffers as small as their use allows."""
    uses = accesses(program)
    plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]] = {}
    for number, buffer in enumerate(program.allocs):
        if buffer.data is None and buffer in uses:
            found = smallest_box(buffer, uses[buffer])
            if found is not None:
                box, depth = found
                starts = tuple(start for start, _ in box.ranges)
                room = add_idle_lanes(box, uses[buffer], depth)
                shape = tuple(ir.as_int(extent) or 0 for _, extent in room.ranges)
                layout = ir.Layout(ir.aligned_strides(shape, alignments(program, number)))
                plans[buffer] = ir.replace_fields(buffer, shape=shape, layout=layout), starts
    if not plans:
        return program
    allocs = tuple(plans[b][0] if b in plans else b for b in program.allocs)
    return ir.replace_fields(program, body=_Rebase(plans).body(program.body), allocs=allocs)


def alignments(program: ir.Program, number: int) -> list[tuple[int, int, int]]:
    """What `storage_align` asked for alloc `number`: (axis, factor, offset)."""
    notes = STORAGE_ALIGN.get(program) or ()
    return [(axis, factor, offset) for alloc, axis, factor, offset in notes if alloc == number]


class _Rebase(ir.Rewriter):
    def __init__(self, plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]]) -> None:
        self.plans = plans
        self.domain = Domain()

    def rebase(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        starts = self.plans[buffer][1]
        return tuple(
            simplify(ir.binary("-", index, start), self.domain)
            for index, start in zip(indices, starts, strict=True)
        )

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = super().expr(e)
        if isinstance(e, ir.Load) and e.buffer in self.plans:
            return ir.Load(self.plans[e.buffer][0], self.rebase(e.buffer, e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | tuple[ir.Stmt, ...]:
        if isinstance(s, ir.For):
            outside = self.domain
            self.domain = inside(outside, s)
            new = super().stmt(s)
            self.domain = outside
            return new
        if isinstance(s, ir.Store) and s.buffer in self.plans:
            indices = self.rebase(s.buffer, self.exprs(s.indices))
            return ir.Store(self.plans[s.buffer][0], indices, self.expr(s.value))
        return super().stmt(s)


def smallest_box(buffer: ir.Buffer, uses: list[Use]) -> tuple[ir.Region, int] | None:
    """The box of one iteration of as many loops as possible, with their number; None if it is the whole
    buffer."""
    around = common_loops(uses)
    around = around[: kept_loops((f.kind, f.fixed_extent) for f in around)]
    for depth in range(len(around), 0, -1):
        box = box_within(buffer, uses, depth)
        if box is not None and is_separate(uses, box, around[:depth]):
            return box, depth
    box = box_within(buffer, uses, 0)
    return None if box is None else (box, 0)


def add_idle_lanes(box: ir.Region, uses: list[Use], depth: int) -> ir.Region:
    """The box with room for lanes that guards switch off, as far as the buffer has it: what holds a register
    tile is then read and written in whole vectors."""
    room = union([clip(a, depth, lanes=False).box for a in uses], _domain(uses[0].loops[:depth]))
    ranges: list[tuple[ir.Expr, ir.Expr]] = []
    for (start, extent), (first, wide), size in zip(box.ranges, room.ranges, box.buffer.shape, strict=True):
        length, most = ir.as_int(extent) or 0, ir.as_int(wide) or 0
        roomy = ir.same_expr(start, first) and length < most
        ranges.append((start, ir.const(min(most, size)) if roomy else extent))
    return ir.Region(box.buffer, tuple(ranges))


def box_within(buffer: ir.Buffer, uses: list[Use], depth: int) -> ir.Region | None:
    """The box touched while the outer `depth` loops stand still, if it is smaller than the buffer."""
    region = touched_region(uses, depth)
    ranges: list[tuple[ir.Expr, ir.Expr]] = []
    smaller = False
    for (start, extent), size in zip(region.ranges, buffer.shape, strict=True):
        length = ir.as_int(extent)
        if length is None or length >= size or ir.has_load(start):
            ranges.append((ir.const(0), ir.const(size)))
        else:
            ranges.append((start, extent))
            smaller = True
    return ir.Region(buffer, tuple(ranges)) if smaller else None


def touched_region(uses: list[Use], depth: int) -> ir.Region:
    domain = _domain(uses[0].loops[:depth])
    return union([_region(a, depth) for a in uses], domain)


def _region(a: Use, depth: int) -> ir.Region:
    """The box of an access while the outer `depth` loops stand still, no larger than its guards let it be."""
    return clip(a, depth).box


@dataclass
class Clipped:
    """An access whose guards have become extents of loops, but for `guards`. `indices` and `offsets`, those
    in `box`, are over `extents`."""

    box: ir.Region
    indices: list[ir.Expr]
    offsets: list[ir.Expr]
    extents: dict[ir.Var, int]
    guards: list[tuple[ir.Expr, int]]


def clip(a: Use, depth: int, lanes: bool = True) -> Clipped:
    """Undo splits that do not divide, inside of the outer `depth` loops; without `lanes`, those that have no
    vectorised part.

    for q, r in T.grid(2, 16): if q * 16 + r < 27: B[i + (q * 16 + r) // 3, (q * 16 + r) % 3] = ...
    w = q * 16 + r goes from 0 to 26:  for w in range(27): B[i + w // 3, w % 3] = ...
    box (i, 9), (0, 3) instead of (i, 11), (0, 3), and all of its 27 elements are written
    """
    domain = _domain(a.loops)
    inner: dict[ir.Var, ir.Expr | int] = {f.var: f.extent for f in a.loops[depth:]}
    box = access_region(a.buffer, a.indices, inner, domain)
    starts = [start for start, _ in box.ranges]
    offsets = [simplify(ir.binary("-", i, start), domain) for i, start in zip(a.indices, starts, strict=True)]
    indices = list(a.indices)
    extents = {f.var: n for f in a.loops[depth:] if (n := f.fixed_extent) is not None}
    numbers: list[Number] = []
    left: list[tuple[ir.Expr, int]] = []
    vectors = {f.var for f in a.loops if f.kind == "vectorized"}
    guards = guard_limits(a)
    for place, (value, limit) in enumerate([*guards, *divided_numbers(offsets, extents)]):
        split = {v: extents[v] for v in ir.free_vars(value) if v in extents}
        is_guard = place < len(guards)
        new, whole = None, ir.Var("w")
        number = Number(value, split, whole, limit)
        if (
            (lanes or vectors.isdisjoint(split))
            and split
            and 0 < limit <= math.prod(split.values()) - is_guard
            and is_number(value, split)
        ):
            new = number.replace(offsets)
        if new is None:
            left += [(value, limit)] if is_guard else []
            continue
        offsets = new
        numbers.append(number)
        extents = {v: n for v, n in extents.items() if v not in split} | {whole: limit}
    if numbers:
        around = _domain(a.loops[:depth])
        for var, size in extents.items():
            around = around.with_loop(var, size)
        for number in numbers:
            indices = number.replace(indices) or indices
            left = [((number.replace([value]) or [value])[0], limit) for value, limit in left]
        indices = [simplify(index, around) for index in indices]
        left = [(simplify(value, around), limit) for value, limit in left]
        ranges: list[tuple[ir.Expr, ir.Expr]] = []
        for n, (start, extent) in enumerate(box.ranges):
            span = relax(offsets[n], dict(extents), Domain())
            first = None if span is None else ir.as_int(span[0])
            if span is None or first is None:
                ranges.append((start, extent))
                continue
            offsets[n] = simplify(offsets[n] - first, around)
            ranges.append((simplify(start + first, domain), span[1]))
        box = ir.Region(a.buffer, tuple(ranges))
    return Clipped(box, indices, offsets, extents, left)


def divided_numbers(offsets: list[ir.Expr], extents: dict[ir.Var, int]) -> list[tuple[ir.Expr, int]]:
    """The sums that offsets divide, with how far they count if no guard says so: 57344 for
    (q * 1024 + r) // 1792 of q < 56, r < 1024."""
    found: dict[ir.Expr, int] = {}
    for e in (x for offset in offsets for x in ir.subexpressions(offset)):
        if isinstance(e, ir.Binary) and e.op in ("//", "%") and isinstance(e.a, ir.Binary):
            digits = [extents[v] for v in ir.free_vars(e.a) if v in extents]
            found[e.a] = math.prod(digits)
    return sorted(found.items(), key=lambda pair: -pair[1])  # those of most digits have the others in them


@dataclass(frozen=True)
class Number:
    """A number below `limit` that some loops count, as one loop: `value` of `digits` is `whole`."""

    value: ir.Expr
    digits: dict[ir.Var, int]
    whole: ir.Var
    limit: int

    def replace(self, exprs: list[ir.Expr]) -> list[ir.Expr] | None:
        """Expressions of the number instead of its digits; None if one cannot be written so."""
        new = [_Replace(self.value, self.whole).expr(e) for e in exprs]
        if any(v in self.digits for e in new for v in ir.free_vars(e)):
            new = [rejoin_digits(e, self.value, self.digits, self.whole, self.limit) for e in exprs]
        return None if any(v in self.digits for e in new for v in ir.free_vars(e)) else new


def rejoin_digits(
    e: ir.Expr, value: ir.Expr, digits: dict[ir.Var, int], whole: ir.Var, limit: int
) -> ir.Expr:
    """An expression of the digits of a number, as one of the number.

    q // 8 * 16 + q % 8 * 2 + r of q * 2 + r < 27:  w // 2 // 8 * 16 + w // 2 % 8 * 2 + w % 2 = w
    """
    own: dict[ir.Var, ir.Expr] = {}
    for x, step in form_of(value).terms:
        if not isinstance(x, ir.Var) or step < 1:
            return e
        above = whole if step == 1 else ir.binary("//", whole, step)
        own[x] = above if step * digits[x] >= limit else ir.binary("%", above, digits[x])
    if set(own) != set(digits):
        return e
    return simplify(ir.substitute(e, own), Domain({whole: limit}))


def is_number(value: ir.Expr, digits: dict[ir.Var, int]) -> bool:
    """Whether `value` counts the iterations of some loops from 0, in whatever order."""
    if ir.has_load(value) or set(ir.free_vars(value)) != set(digits):
        return False
    span = relax(value, dict(digits), Domain())
    counts = span is not None and ir.as_int(span[0]) == 0 and ir.as_int(span[1]) == math.prod(digits.values())
    return counts and is_one_to_one([value], digits)


class _Replace(ir.Rewriter):
    def __init__(self, old: ir.Expr, new: ir.Expr) -> None:
        self.old, self.new = old, new

    def expr(self, e: ir.Expr) -> ir.Expr:
        return self.new if ir.same_expr(e, self.old) else super().expr(e)


def guard_limits(a: Use) -> list[tuple[ir.Expr, int]]:
    """Guards of the form `value < limit`."""
    bounds = [bound_of(c) for guard in a.guards for c in conjuncts(guard)]
    return [(b.value, b.limit) for b in bounds if b is not None and not b.is_least]


def _domain(loops: tuple[ir.For, ...]) -> Domain:
    return reduce(inside, loops, Domain())


def is_separate(uses: list[Use], box: ir.Region, loops: tuple[ir.For, ...]) -> bool:
    """Whether no iteration of `loops` sees what another one left in the box."""
    moving = [v for start, _ in box.ranges for v in ir.free_vars(start)]
    depths = [n for n, f in enumerate(loops) if any(f.var is v for v in moving)]
    if not depths:
        return True
    last = depths[-1]
    if are_boxes_disjoint(box, loops[: last + 1]):
        return True
    return any(writes_first(uses, n + 1) for n in range(last, len(loops)))


def are_boxes_disjoint(box: ir.Region, loops: tuple[ir.For, ...]) -> bool:
    """Whether different iterations have boxes that do not overlap."""
    extents = {f.var: n for f in loops if (n := f.fixed_extent) is not None}
    constant = len(extents) == len(loops) and all(ir.as_int(extent) is not None for _, extent in box.ranges)
    return constant and is_injective(box.ranges, extents) is True


def writes_first(uses: list[Use], depth: int) -> bool:
    """Whether, in the body of loop `depth - 1`, the first statement that touches the buffer only writes
    it and writes all that is read later in that iteration."""
    at = uses[0].path.index(uses[0].loops[depth - 1]) + 1
    first = uses[0].path[at]
    opening = [a for a in uses if a.path[at] is first]
    reads = [a for a in uses if not a.is_store]
    if not reads or not all(a.is_store for a in opening):
        return not reads
    domain = _domain(uses[0].loops[:depth])
    if not all(is_dense(a, depth) for a in opening):
        return False
    written = union([_region(a, depth) for a in opening], domain)
    if len(opening) > 1:  # a union of boxes may cover more than the boxes do
        written = _region(opening[0], depth)
    regions = [_region(a, depth) for a in reads]
    if contains(written, within(union(regions, domain), written), domain):
        return True
    # What guards say of the loops outside may be in the indices of what they guard already.
    return all(is_written(written, region, a, depth) for a, region in zip(reads, regions, strict=True))


def is_written(written: ir.Region, needed: ir.Region, a: Use, depth: int) -> bool:
    """Whether a region has all that a guarded access reads."""
    outside = {f.var for f in a.loops[:depth]}
    domain = _domain(a.loops[:depth])
    for test in (c for guard in a.guards for c in conjuncts(guard)):
        if outside.issuperset(ir.free_vars(test)):
            domain = assume(domain, test)
    there = ir.Region(written.buffer, tuple([(simplify(s, domain), n) for s, n in written.ranges]))
    return contains(there, within(needed, there), domain)


def within(needed: ir.Region, written: ir.Region) -> ir.Region:
    """A region that is read, where all of a dimension is written: reads are inside of their buffer."""
    ranges: list[tuple[ir.Expr, ir.Expr]] = []
    for there, here, size in zip(needed.ranges, written.ranges, needed.buffer.shape, strict=True):
        whole = ir.as_int(here[0]) == 0 and (ir.as_int(here[1]) or 0) >= size
        ranges.append(here if whole else there)
    return ir.Region(needed.buffer, tuple(ranges))


def is_dense(a: Use, depth: int) -> bool:
    """Whether a store fills its box without holes, but for elements outside of the buffer."""
    if any(f.fixed_extent is None for f in a.loops[depth:]):
        return False
    if len(guard_limits(a)) < sum(len(conjuncts(guard)) for guard in a.guards):
        return False
    clipped = clip(a, depth)
    used = {v for offset in clipped.offsets for v in ir.free_vars(offset)}
    extents = {v: n for v, n in clipped.extents.items() if v in used}
    volume = math.prod(ir.as_int(extent) or 0 for _, extent in clipped.box.ranges)
    if math.prod(extents.values()) != volume or not is_one_to_one(clipped.offsets, extents):
        return False
    # The guards that are left may only keep an index inside its buffer.
    return all(
        any(
            limit >= size and ir.same_expr(value, index)
            for index, size in zip(clipped.indices, a.buffer.shape, strict=True)
        )
        for value, limit in clipped.guards
    )
