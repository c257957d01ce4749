"""Which box of a buffer blocks touch during one iteration of a loop.

Read `required_region` first. A *frame* is a place in the tree: the loops around it are outside and stay as
they are, the loops below are inside and range. Variables that have a definition are kept whole where all
their loops are on one side: then a tile whose loops were split again, fused or guarded is still one number,
nothing is expanded, and a box is a sum over few variables. What is not such a sum is left to `arith.relax`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...arith import Domain, relax
from ...ir import (
    INDEX,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Load,
    Region,
    Var,
    as_int,
    const,
    subexpressions,
    substitute,
)
from ..state import ROOT, Key, Part, State

Linear = tuple[dict[Var, int], int]  # coefficients and a constant


@dataclass(slots=True)
class Span:
    """`extent` values, from `other` + the sum of `terms` + `offset` on; of variables outside of a frame."""

    terms: dict[Var, int]
    offset: int
    extent: int
    other: Expr | None = None  # what is not linear
    dense: bool = True  # whether all values in between are taken, for every value of the variables

    @property
    def start(self) -> Expr:
        value: Expr | None = self.other
        for var, factor in self.terms.items():
            value = plus(value, times(var, factor))
        return plus(value, self.offset)

    def is_within(self, outer: Span) -> bool:
        """Whether its values are certainly all among those of another."""
        if self.terms != outer.terms or (self.other is not outer.other):
            return False
        return outer.offset <= self.offset and self.offset + self.extent <= outer.offset + outer.extent


@dataclass(slots=True)
class Frame:
    """A place: a loop, or the body of a block or of the program."""

    s: State
    key: Key
    outside: set[Var] = field(default_factory=set)
    sides: dict[Var, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.key is ROOT or isinstance(self.key, str):
            return
        self.outside = set(self.s.loops_around(self.key))
        if isinstance(self.key, Var):
            self.outside.add(self.key)

    def is_outer(self, var: Var) -> bool:
        """Whether all of a variable is fixed here. An iterator of the block around is."""
        return self.side(var) > 0

    def is_inner(self, var: Var) -> bool:
        return self.side(var) < 0

    def side(self, var: Var) -> int:
        """1 for outside, -1 for inside, 0 for a variable of which some loops are outside and some inside."""
        found = self.sides.get(var)
        if found is None:
            known = self.s.definitions.get(var)
            if known is None:
                found = 1 if var in self.outside or var not in self.s.nodes else -1
            else:
                below = {self.side(v) for v in ([known.whole] if isinstance(known, Part) else known.digits)}
                found = below.pop() if len(below) == 1 else 0
            self.sides[var] = found
        return found

    def linear(self, e: Expr, iters: Mapping[Var, Expr]) -> Linear | None:
        """`e` as a sum over variables that are each wholly outside or wholly inside; None if it is none."""
        terms: dict[Var, int] = {}
        offset = self.collect(e, 1, iters, terms)
        if offset is None:
            return None
        return ({v: c for v, c in terms.items() if c} if 0 in terms.values() else terms), offset

    def collect(self, e: Expr, factor: int, iters: Mapping[Var, Expr], into: dict[Var, int]) -> int | None:
        """Add `e * factor` to `into`; gives the constant part."""
        if isinstance(e, Var):
            bound = iters.get(e)
            if bound is not None:
                return self.collect(bound, factor, {}, into)
            known = self.s.definitions.get(e)
            if known is None or self.side(e):
                into[e] = into.get(e, 0) + factor
                return 0
            if isinstance(known, Part):
                return None
            for digit in reversed(known.digits):
                size = self.s.fixed_extent(digit)
                if size is None or self.collect(digit, factor, {}, into) is None:
                    return None
                factor *= size
            return 0
        if isinstance(e, Const):
            return e.value * factor if isinstance(e.value, int) else None
        if not isinstance(e, Binary):
            return None
        if e.op == "*":
            a, b = (e.a, e.b) if isinstance(e.b, Const) else (e.b, e.a)
            number = as_int(b)
            return None if number is None else self.collect(a, factor * number, iters, into)
        if e.op not in ("+", "-"):
            return None
        first = self.collect(e.a, factor, iters, into)
        second = self.collect(e.b, factor if e.op == "+" else -factor, iters, into)
        return None if first is None or second is None else first + second

    def values(self, var: Var, block: Block | None) -> int | None:
        """How many values from 0 on a variable takes, in the instances of a block that its tests let run."""
        s = self.s
        known = s.definitions.get(var)
        tested = None if block is None else limit_of(var, block)
        if known is None:
            extent = s.extents.get(var)
            count = as_int(extent) if extent is not None else iterator_extent(s, self.key, var)
            return count if tested is None or count is None else min(count, tested)
        extent = s.fixed_extent(var)
        if extent is None or tested is not None:
            return tested
        if isinstance(known, Part):
            if known.index:
                return extent
            whole, stride = self.values(known.whole, block), 1
            for digit in known.digits[1:]:
                stride *= s.fixed_extent(digit) or 0
            return None if whole is None or not stride else -(-whole // stride)
        reach = stride = 1
        for digit in reversed(known.digits):
            count, size = self.values(digit, block), s.fixed_extent(digit)
            if count is None or size is None:
                return None
            # A digit without a test of its own may run over: the number then ends later.
            reach += (max(count, 1) - 1) * stride
            stride *= size
        return reach

    def span(self, start: Expr, extent: Expr, block: Block, iters: Mapping[Var, Expr], size: int) -> Span:
        """What `start` (and `extent` values from there) covers as the loops inside range; all of the `size`
        values that there are if not known."""
        whole = Span({}, 0, size, dense=False)
        width = as_int(extent)
        found = None if width is None else self.linear(start, iters)
        if found is None or width is None:
            return self.relaxed(start, extent, block, iters) or whole
        terms: dict[Var, int] = {}
        inner: list[tuple[int, int]] = []
        low, high = found[1], found[1] + width - 1
        for var, c in found[0].items():
            if not c:
                continue
            if self.is_outer(var):
                terms[var] = c
                continue
            count = self.values(var, block)
            if count is None:
                return self.relaxed(start, extent, block, iters) or whole
            reach = c * (max(count, 1) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
            inner.append((abs(c), count))
        return Span(terms, low, high - low + 1, dense=fills(inner, width))

    def relaxed(self, start: Expr, extent: Expr, block: Block, iters: Mapping[Var, Expr]) -> Span | None:
        s = self.s
        first = s.resolve(substitute(start, iters))
        width = s.resolve(substitute(extent, iters))
        if has_load(first) or has_load(width):
            return None
        outer, inner = Domain(), {}
        for var in s.loops_around(block.name):
            size = s.resolve(s.extents[var])
            if has_load(size):
                return None
            if var in self.outside:
                outer = outer.with_loop(var, size)
            else:
                inner[var] = size
        low, high = relax(first, inner, outer), relax(first + width - 1, inner, outer)
        if low is None or high is None:
            return None
        most = outer.bounds(high[0] + high[1] - low[0])[1]
        if most is None:
            return None
        number = as_int(low[0])
        if number is not None:
            return Span({}, number, max(most, 0), dense=False)
        return Span({}, 0, max(most, 0), other=low[0], dense=False)

    def bounds(self, span: Span) -> tuple[int | None, int | None]:
        """Least and greatest first value as the loops outside range; None: not known."""
        low = high = span.offset
        for var, c in span.terms.items():
            count = self.values(var, None)
            if count is None:
                return None, None
            reach = c * (max(count, 1) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        if span.other is not None:
            a, b = self.domain.bounds(span.other)
            return None if a is None else low + a, None if b is None else high + b
        return low, high

    @property
    def domain(self) -> Domain:
        """The loops outside."""
        if not isinstance(self.key, Var):
            return Domain() if isinstance(self.key, str) else self.s.domain(self.key)
        return self.s.domain(self.key).with_loop(self.key, self.s.resolve(self.s.extents[self.key]))


def times(e: Expr, factor: int) -> Expr:
    """`e * factor` as the operators build it, without looking at types."""
    return e if factor == 1 else Binary("*", e, Const(factor, INDEX), INDEX)


def plus(e: Expr | None, other: Expr | int) -> Expr:
    """`e + other`, likewise; `other` if there is no `e`."""
    if isinstance(other, int):
        if e is None:
            return Const(other, INDEX)
        if other < 0:
            return Binary("-", e, Const(-other, INDEX), INDEX)
        return Binary("+", e, Const(other, INDEX), INDEX) if other else e
    return other if e is None else Binary("+", e, other, INDEX)


def fills(terms: Iterable[tuple[int, int]], width: int) -> bool:
    """Whether sums of (factor, number of values), and `width` values from each on, leave no holes."""
    reach = width
    for factor, count in sorted(terms):
        if count > 1 and factor > reach:
            return False
        reach += factor * (max(count, 1) - 1)
    return True


def limit_of(var: Var, block: Block) -> int | None:
    """What a block's predicate says a variable is less than: the test of a split that may not divide."""
    for test in block.predicate:
        if isinstance(test, Binary) and test.a is var and test.op == "<":
            return as_int(test.b)
    return None


def iterator_extent(s: State, key: Key, var: Var) -> int | None:
    """The extent of an iterator of a block around a place."""
    around = [*([key] if isinstance(key, str) else []), *(s.ancestors(key) if key is not ROOT else ())]
    for above in around:
        if isinstance(above, str) and above is not ROOT:
            for it in s.nodes[above].iters:
                if it.var is var:
                    return as_int(it.extent)
    return None


def has_load(e: Expr) -> bool:
    return any(type(x) is Load for x in subexpressions(e))


def iteration(block: Block) -> dict[Var, Expr]:
    """The iterators of a block with their bindings."""
    return {it.var: binding for it, binding in zip(block.iters, block.bindings, strict=True)}


def touched(frame: Frame, region: Region, block: Block) -> list[Span]:
    """The spans of a region of a block's signature, per dimension, as the loops inside of a frame range."""
    iters = iteration(block)
    return [
        frame.span(start, extent, block, iters, size)
        for (start, extent), size in zip(region.ranges, region.buffer.shape, strict=True)
    ]


def union_of(frame: Frame, a: Span, b: Span, size: int) -> Span:
    """A span that covers two; all of the `size` values where they cannot be compared."""
    if a.terms == b.terms and a.other is b.other:
        low = min(a.offset, b.offset)
        high = max(a.offset + a.extent, b.offset + b.extent)
        return Span(a.terms, low, high - low, a.other, dense=False)
    # Starts that move apart: constant ends of both, if they are known.
    ends = [(*frame.bounds(x), x.extent) for x in (a, b)]
    lows = [low for low, _, _ in ends if low is not None]
    highs = [high + extent for _, high, extent in ends if high is not None]
    if len(lows) < 2 or len(highs) < 2:
        return Span({}, 0, size, dense=False)
    return Span({}, min(lows), max(highs) - min(lows), dense=False)


def clipped(span: Span, first: int, last: int) -> Span:
    """A span cut down to [first, last] where that needs no test: if it is as wide, or does not move."""
    width = last - first + 1
    if not span.terms and span.other is None:
        low, high = max(span.offset, first), min(span.offset + span.extent - 1, last)
        return Span({}, low, high - low + 1) if low <= high else Span({}, first, 0)
    return Span({}, first, width) if span.extent >= width else span


def required_region(s: State, buffer: Buffer, consumers: Iterable[Block], loop: Var | None) -> Region:
    """The box of `buffer` that blocks below a loop read in one of its iterations (None: in the whole scope).

    Per dimension a first index over the loops outside, and a constant number of indices. It may overhang the
    buffer: whoever fills it must leave out what is not there."""
    frame = Frame(s, ROOT if loop is None else loop)
    box: list[Span] = []
    for block in consumers:
        for region in block.reads:
            if region.buffer is buffer:
                found = touched(frame, region, block)
                if box:
                    found = [
                        union_of(frame, a, b, n) for a, b, n in zip(box, found, buffer.shape, strict=True)
                    ]
                box = found
    if not box:
        raise ValueError(f"none of the blocks reads {buffer.name}")
    spans = [clipped(x, 0, n - 1) for x, n in zip(box, buffer.shape, strict=True)]
    return Region(buffer, tuple([(x.start, const(x.extent)) for x in spans]))
