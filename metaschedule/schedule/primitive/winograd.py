"""winograd: a convolution along one dimension by minimal filtering, with fewer multiplications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ... import ir
from ...affine.form import form_of, uses
from ...arith import Domain
from ...errors import ScheduleError
from ...ir.annotations import ROUNDING
from ...ir.reducers import find_reducer
from ..analysis.limits import check_elements
from ..analysis.minimal_filter import MOST_POINTS, Matrix, MinimalFilter, minimal_filter
from ..state import ROOT, Key, State
from .base import BlockRV, LoopRV, Primitive, primitive
from .block_layout import check_own_loops

POINTS = "v_a"  # name of the iterator over points
PRECISE = ("float32", "float64")  # of the others a filter would leave too few digits


@dataclass(slots=True)
class WinogradPlan:
    block: ir.Block
    chain: list[ir.Var]  # loops, innermost first
    along: ir.Iter  # spatial: the dimension of results that is filtered
    tap: ir.Iter  # the reduction over taps
    store: ir.Store
    data: ir.Load
    dimension: int  # of the data, in which the filter moves
    stride: int  # of results there
    dilation: int  # of taps
    offset: int
    weight: ir.Load
    phases: int  # taps that are so many apart meet the same elements in the next tile
    filter: MinimalFilter

    def new_iters(self, tile: int) -> tuple[ir.Iter, ir.Iter, ir.Iter]:
        """Over points, tiles of results, and phases of the taps."""
        tiles = -(-(ir.as_int(self.along.extent) or 0) // tile)
        return (
            ir.Iter(ir.Var(POINTS), ir.const(len(self.filter.data))),
            ir.Iter(ir.Var(f"{self.along.var.name}_tile"), ir.const(tiles)),
            ir.Iter(ir.Var(f"{self.tap.var.name}_phase"), ir.const(self.phases)),
        )


@primitive("winograd")
class Winograd(Primitive):
    """Compute tiles of neighbouring results of a convolution out of products at a few points.

    rewrite:   for i, k: C[i] += A[i + k] * W[k]                                (3 taps, tile=2)
          -->  for a, u: A_points[a, u] = [A[2u] - A[2u + 2], A[2u + 1] + A[2u + 2], ...][a]
               for a:    W_points[a]    = [W[0], (W[0] + W[1] + W[2]) / 2, ...][a]
               for a, u: C_products[a, u] += A_points[a, u] * W_points[a]
               for i:    C[i] = [C_products[0, i // 2] + C_products[1, i // 2] + ..., ...][i % 2]
    requires:  1. the block adds up products of two loads of float32 or float64, starting from 0
               2. its loops hold nothing else, are serial, and run every point of its iterators once; nothing
                  is around them
               3. the loop drives a spatial iterator that is an index of the result, and moves one index of
                  one factor, together with a reduction iterator: stride * i + dilation * k + offset
               4. that factor depends on the reduction iterator nowhere else, the other one on i nowhere
               5. the dilation divides the stride
               6. tile + taps - 1, taps being those of one phase of the stride, is at most 8
    Atomic: that both sides are equal is the algebra of three matrices, not an order of the same operations.
    Of 4 taps and tiles of 4 there are 7 products instead of 16. Rounding errors are a few times as large, and
    an infinity or NaN spreads to the results that share its tile.
    """

    block: BlockRV
    loop: LoopRV
    tile: int

    def check(self, s: State) -> WinogradPlan:
        block = s.block(self.block)
        chain = check_own_loops(s, block, "use winograd")
        if chain and s.parent[chain[-1]] is not ROOT:
            raise ScheduleError(
                f"block {block.name!r} is inside of another loop, or of a block",
                marks={block.name: "not alone"},
                help="use winograd before other steps",
            )
        store, factors = self.product(block)
        loop = s.loop(self.loop).var
        along = next((it for it, b in zip(block.iters, block.bindings) if b is loop), None)
        if along is None or along.kind != "spatial" or not any(i is along.var for i in store.indices):
            raise ScheduleError(
                f"the loop over {loop.name} is not that of a dimension of the result",
                marks={loop: "not an index of the result"},
            )
        if sum(uses(i, along.var) for i in store.indices) > 1:
            raise self.no_filter(block, f"{along.var.name} is in several indices of the result")
        for data, weight in (factors, factors[::-1]):
            found = [n for n, index in enumerate(data.indices) if uses(index, along.var)]
            if found and not any(uses(index, along.var) for index in weight.indices):
                return self.plan(block, chain, store, along, data, found, weight)
        raise self.no_filter(block, f"{along.var.name} must be an index of one factor and not of the other")

    def product(self, block: ir.Block) -> tuple[ir.Store, tuple[ir.Load, ir.Load]]:
        reducer = find_reducer(block)
        if reducer is not None and reducer.ops == ("+",) and ir.is_zero(reducer.identities[0]):
            (store,), (term,) = reducer.stores, reducer.terms
            factors = (term.a, term.b) if isinstance(term, ir.Binary) and term.op == "*" else ()
            loads = [e for e in factors if isinstance(e, ir.Load)]
            if len(loads) == 2 and term.dtype in PRECISE and term.dtype == store.buffer.dtype:
                return store, (loads[0], loads[1])
        raise ScheduleError(
            f"block {block.name!r} does not add up products of two elements in float32 or float64, from 0",
            marks={block.name: "not a sum of products"},
        )

    def plan(
        self,
        block: ir.Block,
        chain: list[ir.Var],
        store: ir.Store,
        along: ir.Iter,
        data: ir.Load,
        found: list[int],
        weight: ir.Load,
    ) -> WinogradPlan:
        dimension = found[0]
        terms, offset = form_of(data.indices[dimension])
        moved = dict(terms)
        stride = moved.pop(along.var, 0)
        taps = [it for it in block.iters if it.kind == "reduce" and it.var in moved]
        if len(found) > 1 or len(moved) != 1 or len(taps) != 1 or stride < 1:
            index = data.indices[dimension]
            raise self.no_filter(
                block, f"{index} is not {along.var.name} and a reduction iterator, times constants"
            )
        (tap,) = taps
        dilation = moved[tap.var]
        others = [i for n, i in enumerate(data.indices) if n != dimension]
        if any(uses(i, tap.var) for i in others):
            raise self.no_filter(block, f"{tap.var.name} is in several indices of {data.buffer.name}")
        if dilation < 1 or stride % dilation:
            raise self.no_filter(block, f"the dilation, {dilation}, does not divide the stride, {stride}")
        phases = stride // dilation
        count = -(-(ir.as_int(tap.extent) or 1) // phases)
        most = MOST_POINTS + 1 - count
        if not 2 <= self.tile <= most:
            raise ScheduleError(
                f"tile is {self.tile!r}: with {count} taps in a phase it must be from 2 to {most}",
                marks={block.name: f"{tap.extent} taps, stride {stride}"},
            )
        # Each new buffer has these dimensions, one of them cut into points, tiles and phases.
        for sizes in (data.buffer.shape, [ir.as_int(it.extent) or 0 for it in block.iters]):
            check_elements([MOST_POINTS, phases, *sizes], "what winograd makes", {block.name: "too large"})
        made = minimal_filter(self.tile, count)
        return WinogradPlan(
            block, chain, along, tap, store, data, dimension, stride, dilation, offset, weight, phases, made
        )

    def no_filter(self, block: ir.Block, why: str) -> ScheduleError:
        return ScheduleError(f"block {block.name!r} is no filter: {why}", marks={block.name: "not a filter"})

    def apply(self, s: State, plan: WinogradPlan) -> tuple[Any, ...]:
        block, tile = plan.block, self.tile
        made = [data_stage(plan, tile), weight_stage(plan)]
        products = products_stage(plan, tile, *[stage.writes[0].buffer for stage in made])
        result = result_stage(plan, products.writes[0].buffer, tile)
        s.allocs = (*s.allocs, *[b.writes[0].buffer for b in (*made, products)])
        keys = [s.add(b) for b in (*made, products)]
        s.set_node(block.name, result)
        s.put_at(plan.chain[-1], [around(s, key) for key in (*keys, block.name)])
        for var in plan.chain:
            s.forget(var)
        return tuple(keys)


def around(s: State, key: Key) -> Key:
    """Loops over the iterators of a block, which are bound to them."""
    block: ir.Block = s.nodes[key]
    loops = [ir.For(s.fresh(it.var.name.removeprefix("v_")), it.extent, ()) for it in block.iters]
    s.update(key, bindings=tuple([loop.var for loop in loops]))
    return s.nest(loops, [key])


def make_block(
    name: str,
    iters: Sequence[ir.Iter],
    reads: Sequence[ir.Load],
    store: ir.Store,
    init: tuple[ir.Store, ...] = (),
) -> ir.Block:
    regions = tuple([load.buffer.region(*load.indices) for load in reads])
    bindings = tuple([ir.const(0) for _ in iters])
    return ir.Block(
        name, tuple(iters), bindings, regions, (store.buffer.region(*store.indices),), (store,), init
    )


def data_stage(plan: WinogradPlan, tile: int) -> ir.Block:
    """The values of every row of the data: dimension n becomes points, tiles and phases."""
    source, n = plan.data.buffer, plan.dimension
    iters = [ir.Iter(ir.Var(f"v_ax{k}"), ir.const(size)) for k, size in enumerate(source.shape)]
    new = points, across, phase = plan.new_iters(tile)
    iters[n : n + 1] = new
    target = ir.Buffer(
        f"{source.name}_points", tuple([ir.as_int(it.extent) or 0 for it in iters]), source.dtype
    )
    domain = Domain({it.var: it.extent for it in new})
    loads: list[ir.Load] = []
    values: list[ir.Expr] = []
    for element in range(len(plan.filter.data)):
        at = (across.var * tile + element) * plan.stride + phase.var * plan.dilation + plan.offset
        others = [it.var for it in iters]
        load = ir.Load(source, (*others[:n], at, *others[n + 3 :]))
        inside = at < source.shape[n]
        loads.append(load)
        values.append(load if domain.prove(inside) else ir.select(inside, load, ir.const(0, source.dtype)))
    value = select_value(points.var, combinations(plan.filter.data, values))
    return make_block(target.name, iters, loads, ir.Store(target, tuple([it.var for it in iters]), value))


def weight_stage(plan: WinogradPlan) -> ir.Block:
    """The values of the taps, for all iterators that choose them."""
    load, tap = plan.weight, plan.tap
    points, _, phase = plan.new_iters(1)
    known = {it.var: it for it in plan.block.iters}
    order = selectors(plan)
    fresh = {v: ir.Iter(ir.Var(v.name), known[v].extent) for v in order if v is not tap.var}
    iters = [points, *[phase if v is tap.var else fresh[v] for v in order]]
    target = ir.Buffer(
        f"{load.buffer.name}_points", tuple([ir.as_int(it.extent) or 0 for it in iters]), load.buffer.dtype
    )
    domain = Domain({it.var: it.extent for it in iters})
    names: dict[ir.Var, ir.Expr] = {v: it.var for v, it in fresh.items()}
    loads: list[ir.Load] = []
    values: list[ir.Expr] = []
    for k in range(len(plan.filter.taps[0])):
        at = phase.var + k * plan.phases
        sub = ir.Substitute({**names, tap.var: at})
        one = ir.Load(load.buffer, sub.exprs(load.indices))
        inside = at < tap.extent
        loads.append(one)
        values.append(one if domain.prove(inside) else ir.select(inside, one, ir.const(0, load.dtype)))
    value = select_value(points.var, combinations(plan.filter.taps, values))
    return make_block(target.name, iters, loads, ir.Store(target, tuple([it.var for it in iters]), value))


def selectors(plan: WinogradPlan) -> list[ir.Var]:
    """The iterators by which a weight is chosen, in the order of its indices."""
    found = dict.fromkeys([v for index in plan.weight.indices for v in ir.free_vars(index)])
    return list(found | {plan.tap.var: None})


def products_stage(plan: WinogradPlan, tile: int, data: ir.Buffer, weights: ir.Buffer) -> ir.Block:
    """The block as it was, over points and tiles instead of results, over phases instead of taps."""
    points, across, phase = plan.new_iters(tile)
    along, tap, store = plan.along.var, plan.tap.var, plan.store
    iters: list[ir.Iter] = []
    for it in plan.block.iters:
        if it.var is along:
            iters += [points, across]
        else:
            iters.append(ir.Iter(phase.var, phase.extent, "reduce") if it.var is tap else it)
    own = {it.var: ir.Iter(ir.Var(it.var.name), it.extent, it.kind) for it in iters}
    sub = ir.Substitute({v: it.var for v, it in own.items()})
    n = plan.dimension
    at = (*plan.data.indices[:n], points.var, across.var, phase.var, *plan.data.indices[n + 1 :])
    factor = ir.Load(data, sub.exprs(at))
    choice = [phase.var if v is tap else v for v in selectors(plan)]
    other = ir.Load(weights, sub.exprs((points.var, *choice)))
    where, shape = list(store.indices), list(store.buffer.shape)
    d = next(k for k, index in enumerate(where) if index is along)
    where[d : d + 1] = [points.var, across.var]
    shape[d : d + 1] = [ir.as_int(points.extent) or 0, ir.as_int(across.extent) or 0]
    target = ir.Buffer(f"{store.buffer.name}_products", tuple(shape), store.buffer.dtype)
    at = sub.exprs(tuple(where))
    update = ir.Store(target, at, ir.Load(target, at) + factor * other)
    start = ir.Store(target, at, ir.const(0, target.dtype))
    block = make_block(target.name, [own[it.var] for it in iters], [factor, other], update, (start,))
    before = ROUNDING.get(plan.block) or 1
    return ir.replace_fields(block, annotations={ROUNDING.key: before * math.ceil(plan.filter.amplification)})


def result_stage(plan: WinogradPlan, products: ir.Buffer, tile: int) -> ir.Block:
    along, store = plan.along.var, plan.store
    d = next(k for k, index in enumerate(store.indices) if index is along)
    loads: list[ir.Load] = []
    for a in range(products.shape[d]):
        where = list(store.indices)
        where[d : d + 1] = [ir.const(a), along // tile]
        loads.append(ir.Load(products, tuple(where)))
    value = select_value(along % tile, combinations(plan.filter.results, loads))
    iters = [it for it in plan.block.iters if it.kind == "spatial"]
    block = make_block(plan.block.name, iters, loads, ir.Store(store.buffer, store.indices, value))
    kept = {k: v for k, v in plan.block.annotations.items() if k != ROUNDING.key}
    return ir.replace_fields(block, annotations=kept)


def combinations(matrix: Matrix, values: Sequence[ir.Expr]) -> list[ir.Expr]:
    """The matrix times the values. Points p and -p have rows, or columns, that differ in signs only: what
    they share is the same expression, which a compiler computes once."""
    rows = [list(row) for row in matrix]
    values = list(values)
    for i, j in twins(list(zip(*matrix, strict=True))):
        values[i], values[j] = values[i] + values[j], values[i] - values[j]
        for row in rows:
            row[i], row[j] = (row[i], Fraction(0)) if row[i] == row[j] else (Fraction(0), row[i])
    found = [sum_weighted(row, values) for row in rows]
    for i, j in twins(rows):
        same = [x if x == y else Fraction(0) for x, y in zip(rows[i], rows[j], strict=True)]
        other = [x if x != y else Fraction(0) for x, y in zip(rows[i], rows[j], strict=True)]
        if any(same) and any(other):
            a, b = sum_weighted(same, values), sum_weighted(other, values)
            found[i], found[j] = a + b, a - b
    return found


def twins(rows: Sequence[Sequence[Fraction]]) -> list[tuple[int, int]]:
    """Pairs of rows that differ in signs only, and have more than one number."""
    found: list[tuple[int, int]] = []
    for j, row in enumerate(rows):
        for i in range(j):
            if all(abs(x) == abs(y) for x, y in zip(rows[i], row, strict=True)) and sum(map(bool, row)) > 1:
                found.append((i, j))
    return found


def sum_weighted(row: Sequence[Fraction], values: Sequence[ir.Expr]) -> ir.Expr:
    """The sum of `values`, each times its factor."""
    terms = [(float(factor), value) for factor, value in zip(row, values, strict=True) if factor]
    (factor, total), *rest = sorted(terms, key=lambda term: term[0] < 0)  # none begins with a minus sign
    total = total if factor == 1 else total * factor
    for factor, value in rest:
        term = value if abs(factor) == 1 else value * abs(factor)
        total = total + term if factor > 0 else total - term
    return total


def select_value(at: ir.Expr, values: Sequence[ir.Expr]) -> ir.Expr:
    """`values[at]`."""
    *others, result = values
    for n, value in reversed(list(enumerate(others))):
        result = ir.select(at == n, value, result)
    return result
