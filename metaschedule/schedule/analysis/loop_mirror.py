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
from ...affine.form import iteration, variables
from ...affine.interned import less, number, plus, substitute_interned
from ...affine.inverse import find_inverse, find_shifted_variable
from ...affine.view import Interval, View
from ...arith import Domain, simplify
from ...errors import ScheduleError
from ..state import State
from .effects import touch
from .iteration_domain import Reach
from .moving import Move, check_block


class BoundValues(NamedTuple):
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
        # Of variables over them, with extents.
        self.definitions: dict[ir.Var, tuple[Definition, ir.Expr]] = {}

    def fresh(self, extent: int) -> ir.Expr:
        if extent == 1 and not self.units:
            return ir.Const(0, ir.INDEX)
        var = self.view.s.fresh(f"ax{len(self.loops)}")
        self.loops[var] = extent
        return var

    def over(self, x: Interval) -> BoundValues:
        """A loop over an interval."""
        low, high = self.view.bounds(x)
        new = self.fresh(x.extent)
        binding = x.start if isinstance(new, ir.Const) else x.start_plus(new)
        return BoundValues(binding, low, None if high is None else high + x.extent - 1)

    def place(
        self, block: ir.Block, values: Sequence[BoundValues], domain: Sequence[Reach], own: Sequence[ir.Expr]
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
        new = ir.replace_fields(
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
        return substitute_interned(e, old, tuple([self.variable(var) for var in old]))

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
        found: list[ir.Expr] = []
        s, view = self.view.s, self.view
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


# --- which instances follow a producer ------------------------------------------------------------

# An index that a block reads, and the one at which a producer stores it.
Links = list[tuple[ir.Expr, ir.Expr]]


def rank_leaders(s: State, view: View, block: ir.Block, producers: list[str]) -> list[tuple[ir.Block, Links]]:
    """The producers that may decide where a block runs, those first that decide most."""
    found: list[tuple[ir.Block, Links]] = []
    problem: ScheduleError | None = None
    for name in producers:
        try:
            found.append((s.nodes[name], find_links(s, view, block, s.nodes[name])))
        except ScheduleError as error:
            problem = error
    if not found:
        assert problem is not None
        raise problem
    found.reverse()  # the last of those that decide as much
    return sorted(found, key=lambda x: -len({v for e, _ in x[1] for v in variables(e)}))


def find_links(s: State, view: View, block: ir.Block, producer: ir.Block) -> Links:
    """What one iteration of the loop decides: the dimensions of which the producer stores only a part there.
    Along them the block must read single elements, which tell its iterators."""
    stores, bindings = check_block(s, producer), iteration(producer)
    own = {it.var for it in block.iters}
    links: Links = []
    for region in block.reads:
        for (start, extent), index in zip(region.ranges, stores.get(region.buffer, ())):
            if all(view.is_inner(x) for v in variables(index) for x in variables(bindings[v])):
                continue  # all of the dimension is there
            mine = variables(start)
            if ir.as_int(extent) != 1 or not mine or not own.issuperset(mine) or ir.loads(start):
                raise others_store(block, producer, region.buffer)
            links.append((start, index))
    return links


def others_store(block: ir.Block, producer: ir.Block, buffer: ir.Buffer) -> ScheduleError:
    return ScheduleError(
        f"block {block.name!r} reads elements of {buffer.name} that other iterations of that loop store",
        marks={block.name: "reads more than one element", producer.name: "stores one at a time"},
        help="take a loop in which all of them are stored, or compute_at the producer",
    )


def follow(
    view: View,
    block: ir.Block,
    producer: ir.Block,
    links: Links,
    domain: Sequence[Reach],
    own: Sequence[ir.Expr],
    units: bool,
) -> Move:
    """The block for the elements that a producer stores in one iteration of the loop. What is not linked to
    them runs for all of its domain."""
    mirror = LoopMirror(view, producer, units)
    plain = find_plain_links(block, producer, links)
    solved, tests = ({}, []) if plain is not None else solve_links(mirror, block, producer, links)
    values: list[BoundValues] = []
    for it, reach in zip(block.iters, domain, strict=True):
        if plain is not None and it.var in plain:
            index, shift = plain[it.var]
            values.append(stored_value(mirror, producer, index, -shift))
        else:
            values.append(solved.get(it.var) or mirror.over(reach.values))
    mirror.check_used()
    return mirror.place(block, values, domain, [*tests, *own])


def find_plain_links(
    block: ir.Block, producer: ir.Block, links: Links
) -> dict[ir.Var, tuple[ir.Expr, int]] | None:
    """Iterators of the block with the index that each follows and what it adds to that; None if it reads
    by more than one iterator per dimension."""
    found: dict[ir.Var, tuple[ir.Expr, int]] = {}
    for start, index in links:
        mine, shift = find_shifted_variable(start) or (None, 0)
        if mine is None:
            return None
        for known, (other, by) in found.items():
            if (known is mine) is not ir.same_expr(other, index):
                raise ScheduleError(
                    f"block {block.name!r} reads a diagonal of what block {producer.name!r} stores",
                    marks={block.name: "one iterator follows two, or two follow one"},
                )
            if known is mine and shift != by:
                buffer = next(r.buffer for r in block.reads for x, _ in r.ranges if x is start)
                raise others_store(block, producer, buffer)
        found[mine] = index, shift
    return found


def stored_value(mirror: LoopMirror, producer: ir.Block, index: ir.Expr, shift: int) -> BoundValues:
    """An index at which a producer stores, plus a constant, over the new loops."""
    theirs = iteration(producer)
    var, offset = find_shifted_variable(index) or (None, 0)
    if var is not None:
        shift += offset
        size = next(ir.as_int(it.extent) or 0 for it in producer.iters if it.var is var)
        return BoundValues(plus(mirror.image(theirs[var]), shift), shift, size - 1 + shift)
    low, high = Domain({it.var: it.extent for it in producer.iters}).bounds(index)
    value = plus(mirror.image(ir.substitute(index, theirs)), shift)
    return BoundValues(value, None if low is None else low + shift, None if high is None else high + shift)


def solve_links(
    mirror: LoopMirror, block: ir.Block, producer: ir.Block, links: Links
) -> tuple[dict[ir.Var, BoundValues], list[ir.Expr]]:
    """Iterators of the block from the elements that the producer stores, where each index is told by several
    of them; and tests that such an element is one that the block reads."""
    indices = tuple([start for start, _ in links])
    used = {v for e in indices for v in variables(e)}
    inverse = find_inverse(tuple([it for it in block.iters if it.var in used]), indices)
    if inverse is None:
        raise others_store(
            block, producer, next(r.buffer for r in block.reads if r.buffer in touch(producer).writes)
        )
    elements = [stored_value(mirror, producer, index, 0).binding for _, index in links]
    known = mirror.view.s.extents
    extents = {v: known[v] for e in elements for v in variables(e) if v in known}
    extents |= {v: extent for v, (_, extent) in mirror.definitions.items()}
    domain = Domain({**extents, **mirror.loops})
    found: dict[ir.Var, BoundValues] = {}
    for var, value in inverse.solve(elements).items():
        value = simplify(value, domain)
        found[var] = BoundValues(value, *domain.bounds(value))
    if inverse.full:
        return found, []
    return found, [ir.binary("==", x, e) for x, e in zip(indices, elements, strict=True)]
