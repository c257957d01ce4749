"""Which elements of a buffer a block stores for sure, while the loops below some node run.

A copy may only read what has been written (the interpreter holds a program to that), so a cache stage
copies the box that `written_box` proves, no more. Variables that were split or fused still stand in bindings
and range over their whole extents, whatever loops they consist of; a guard that says no more than
`var < extent` of such a variable excludes nothing. That makes the usual case cheap: bindings that are
variables are a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...affine.definitions import are_independent, consists_of, is_definition_test
from ...affine.form import Iteration, iteration, variables
from ...affine.view import INSIDE, MIXED, OUTSIDE, Interval, View, fills
from ...arith import Domain, iteration_map, relax, simplify
from ...ir import (
    Binary,
    Block,
    Body,
    Buffer,
    Expr,
    Load,
    Store,
    TupleStore,
    Var,
    as_int,
    expressions,
    same_expr,
    substitute,
    walk,
)
from ..state import ROOT


@dataclass(slots=True)
class Box:
    """Per dimension the indices, and the index to stop before (None: none); all of it where `guards` hold.
    The expressions are over loops outside of the box."""

    ranges: list[tuple[Interval, int | None]]
    guards: list[Expr]

    def is_whole(self, shape: Sequence[int]) -> bool:
        if self.guards:
            return False
        for (span, limit), size in zip(self.ranges, shape, strict=True):
            count = span.extent if limit is None else min(span.extent, limit)
            if not span.is_fixed or span.offset or count < size:
                return False
        return True


def whole_box(shape: Sequence[int]) -> Box:
    return Box([(Interval({}, 0, size), None) for size in shape], [])


def stored_indices(block: Block, buffer: Buffer) -> tuple[Expr, ...] | None:
    """Where every instance of a block stores to a buffer: one element, unconditionally; None if not so."""
    return _stored_indices(block.init, block.body, buffer)


@lru_cache(maxsize=4096)
def _stored_indices(init: Body, body: Body, buffer: Buffer) -> tuple[Expr, ...] | None:
    certain = [
        x
        for s in body
        for x in (s.stores if isinstance(s, TupleStore) else (s,))
        if isinstance(x, Store) and x.buffer is buffer
    ]
    if not certain:
        return None
    indices = certain[0].indices
    for s in walk((*init, *body)):
        if isinstance(s, Store) and s.buffer is buffer and not all(map(same_expr, s.indices, indices)):
            return None
    return indices


def own_accesses(block: Block, buffer: Buffer) -> list[tuple[Expr, ...]]:
    """The indices of every load and store of a buffer in the body of a block, in no special order."""
    body = (*block.init, *block.body)
    found = [s.indices for s in walk(body) if isinstance(s, Store) and s.buffer is buffer]
    return found + [e.indices for e in expressions(body) if isinstance(e, Load) and e.buffer is buffer]


def written_box(view: View, block: Block, indices: Sequence[Expr]) -> Box | None:
    """The box that `indices` (over the iterators of a block) take while the part of the tree below a view
    runs once, each point of it for sure; None if that is not known."""
    s, iters = view.s, iteration(block)
    for above in s.ancestors(block.name):
        if above is view.key:
            break
        if not isinstance(above, Var) or not s.fixed_extent(above):
            return None  # a condition, or a loop that may be empty
    else:
        if view.key is not ROOT:
            return None
    limits: dict[Var, int] = {}  # by iterator
    guards: list[Expr] = []
    known: set[Var] = set()
    for test in block.predicate:
        sides = {view.side(v) for v in variables(test)}
        if sides <= {OUTSIDE}:
            guards.append(s.resolve(test))
            continue
        if sides == {INSIDE} and is_definition_test(s, test):
            known = known or consists_of(s, [v for b in block.bindings for v in variables(b)])
        if sides != {INSIDE} or variables(test)[0] not in known:
            clipped = clipped_iterator(iters, test)
            if clipped is None or not any(index is clipped[0] for index in indices):
                return None
            limits[clipped[0]] = min(clipped[1], limits.get(*clipped))
    spans = sums(view, indices, iters) or mapped(view, indices, iters)
    if spans is None:
        return None
    ends = [limits.get(index) if type(index) is Var else None for index in indices]
    return Box(list(zip(spans, ends, strict=True)), guards)


def clipped_iterator(iters: Iteration, test: Expr) -> tuple[Var, int] | None:
    """(iterator, limit) of a conjunct that says that the iterator is below a constant."""
    limit = as_int(test.b) if isinstance(test, Binary) and test.op == "<" else None
    if isinstance(test, Binary) and limit is not None:
        for var, binding in iters.items():
            if same_expr(binding, test.a):
                return var, limit
    return None


def sums(view: View, indices: Sequence[Expr], iters: Iteration) -> list[Interval] | None:
    """The values of indices that are sums over loops of their own."""
    s, ranging = view.s, list[Var]()
    spans: list[Interval] = []
    for index in indices:
        found = view.linear(index, iters)
        if found is None:
            return None
        terms, inner, offset = found
        steps: list[tuple[int, int]] = []
        for var, c in inner.items():
            extent = s.fixed_extent(var)
            if not extent or c < 0:
                return None
            ranging.append(var)
            steps.append((c, extent))
        if not fills(steps, 1):
            return None
        spans.append(Interval(terms, offset, 1 + sum([c * (n - 1) for c, n in steps])))
    return spans if are_independent(s, ranging) else None


def mapped(view: View, indices: Sequence[Expr], iters: Iteration) -> list[Interval] | None:
    """The values of other indices, if the map from the loops inside to them has no holes."""
    s, loops = view.s, dict[Var, int]()
    values: list[Expr] = []
    for index in indices:
        value = substitute(index, iters)
        while mixed := [v for v in variables(value) if view.side(v) == MIXED]:
            value = substitute(value, {v: e for v in mixed if (e := s.definition(v)) is not None})
        for var in variables(value):
            if view.is_inner(var):
                extent = as_int(s.extents[var])
                if not extent:
                    return None
                loops[var] = extent
        values.append(value)
    if not are_independent(s, loops):
        return None
    spans: list[Interval] = []
    offsets: list[Expr] = []
    for value in values:
        found = relax(value, loops, Domain())
        count = None if found is None else as_int(found[1])
        if found is None or count is None:
            return None
        number = as_int(found[0])
        spans.append(Interval({}, number or 0, count, s.resolve(found[0]) if number is None else None))
        offsets.append(simplify(value - found[0], Domain(loops)))
    onto = iteration_map(offsets, loops)
    if onto is None or not onto.surjective or [(0, x.extent - 1) for x in spans] != list(onto.ranges):
        return None
    return spans
