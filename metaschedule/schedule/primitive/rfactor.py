"""The primitive rfactor: partial results of a reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import ir
from ...affine.definitions import leaf_loops_of
from ...arith import Domain, simplify
from ...errors import ScheduleError
from ...ir.reducers import ASSOCIATIVE, BlockReducer, find_reducer
from ..analysis.block_dependence import check_independent
from ..analysis.iteration_domain import (
    at_zero,
    check_kinds_apart,
    check_not_empty,
    check_once,
    domain_within,
    is_count,
)
from ..analysis.limits import check_elements
from ..state import State
from .base import LoopRV, Primitive, primitive
from .nests import Copies, check_copied, loaded_buffers, perfect_nest


@dataclass(slots=True)
class FactorPlan:
    loop: ir.Var
    block: ir.Block
    reducer: BlockReducer
    nest: list[ir.Var]
    others: list[ir.Var]  # the reduction loops that stay
    spatial: list[ir.Var]  # the other loops of the nest
    axes: list[int]  # where the new dimension goes, per result
    predicate: list[ir.Expr]  # of the final block, still over the old loops


@primitive("rfactor")
class RFactor(Primitive):
    """Turn a reduction loop into a spatial one over partial results, which a second block reduces.

    rewrite:   for i: for k0: for k1: C[i] += A[i, k0 * 4 + k1]
          -->  for i: for k0: for k1: C_rf[k1, i] += A[i, k0 * 4 + k1]          (factored over k1)
               for i: for k1: C[i] += C_rf[k1, i]
    requires:  1. below the loop is one block, in a nest of loops and nothing else that holds all its
                  reduction loops
               2. the block has an `init` and combines by a known commutative and associative operation
               3. the loop drives reduction iterators and no spatial ones
               4. each instance runs once and stores elements of its own
               5. reduction loops have constant extents; what leaves out the first iteration of those that
                  stay leaves out the others too
               6. factor_axis is a dimension of the partial results (negative: from the end)
    Partial results that nothing is reduced into (a tail) are not read by the final block.
    """

    loop: LoopRV
    factor_axis: int = 0

    def check(self, s: State) -> FactorPlan:
        loop = s.loop(self.loop).var
        block = self.only_block(s, loop)
        _, reducing = check_kinds_apart(s, block)
        if loop not in reducing:
            raise ScheduleError(
                f"the loop over {loop.name} is not a reduction loop of block {block.name!r}",
                marks={loop: "not a reduction loop"},
            )
        nest = perfect_nest(s, block)
        for var in (*s.loops_around(block.name), loop):
            if var in reducing and not any(v is var for v in nest):
                raise ScheduleError(
                    f"block {block.name!r} is not alone in its reduction loop over {var.name}",
                    marks={var: "has more in it than the nest of the block"},
                    help="move the other statements away first",
                )
        reducer = find_reducer(block)
        if reducer is None:
            raise ScheduleError(
                f"block {block.name!r} has no init, or does not combine by an operation that is known to be "
                "associative and commutative",
                marks={block.name: "cannot be reduced in parts"},
                help=ASSOCIATIVE,
            )
        check_independent(s, block)
        check_once(s, block, nest)
        for var in nest:
            if var in reducing and s.fixed_extent(var) is None:
                raise ScheduleError(
                    f"the extent of the reduction loop over {var.name} is not a constant",
                    marks={var: "its extent is an expression"},
                )
        check_not_empty(s, [v for v in nest if v in reducing])
        shared = [v for v in nest if v not in reducing]
        check_copied(s, shared, reducing)
        dropped = {it.var for it in block.iters if it.kind == "reduce"}
        for it in block.iters:
            if it.kind == "spatial" and any(v in dropped for v in ir.free_vars(it.extent)):
                raise ScheduleError(
                    f"the extent of {it.var.name} depends on a reduction iterator",
                    marks={block.name: f"{it.var.name} has {it.extent} values"},
                )
        others = [v for v in nest if v in reducing and v is not loop]
        predicate = self.final_predicate(s, block, loop, reducing)
        axes = self.axes(reducer)
        for store in reducer.stores:
            shape = (s.fixed_extent(loop) or 0, *store.buffer.shape)
            check_elements(shape, f"the parts of {store.buffer.name}", {loop: "to be factored"})
        return FactorPlan(loop, block, reducer, nest, others, shared, axes, predicate)

    def only_block(self, s: State, loop: ir.Var) -> ir.Block:
        below = s.blocks_below(loop)
        if len(below) != 1:
            raise ScheduleError(
                f"there are {len(below)} blocks in the loop over {loop.name}",
                marks={loop: "must hold one block", **dict.fromkeys(below, "")},
            )
        return s.nodes[below[0]]

    def axes(self, reducer: BlockReducer) -> list[int]:
        axes: list[int] = []
        for store in reducer.stores:
            ndim = len(store.indices) + 1
            if not -ndim <= self.factor_axis < ndim:
                raise ScheduleError(
                    f"factor_axis {self.factor_axis} is no dimension of the parts of {store.buffer.name}",
                    help=f"they have {ndim} dimensions: from {-ndim} to {ndim - 1}",
                )
            axes.append(self.factor_axis % ndim)
        return axes

    def final_predicate(
        self, s: State, block: ir.Block, loop: ir.Var, reducing: set[ir.Var]
    ) -> list[ir.Expr]:
        """Where a partial result exists: its `init` ran, at the first iteration of the loops that stay."""
        others = reducing - {loop}
        found: list[ir.Expr] = []
        for c in block.predicate:
            leaves = leaf_loops_of(s, [c])
            if not leaves & reducing:
                found.append(c)
                continue
            if is_count(s, c, reducing):
                if loop in leaves:
                    found.append(simplify(at_zero(s, c, others), Domain({})))
                continue
            first, domain = at_zero(s, c, others), domain_within(s, block.name)
            if not domain.with_fact(s.resolve(c)).prove(first):
                raise ScheduleError(
                    f"a partial result may be updated without being started: it is updated where {c}",
                    marks={block.name: "its predicate may leave out the first iteration only"},
                    help="rfactor another loop, or split and fuse the reduction loops in another way",
                )
            if not domain.prove(first):
                found.append(first)
        return found

    def apply(self, s: State, plan: FactorPlan) -> tuple[Any, ...]:
        block, loop, reducer = plan.block, plan.loop, plan.reducer
        partials = [partial_buffer(st.buffer, axis, s.fixed_extent(loop)) for st, axis in
                    zip(reducer.stores, plan.axes, strict=True)]  # fmt: skip
        s.allocs = (*s.allocs, *partials)
        partial = partial_block(s, plan, partials)
        key = s.add(partial)
        s.set_children(plan.nest[-1], [key])

        spatial = set(plan.spatial)
        kept = [v for v in plan.nest if v is loop or v in spatial]
        copies = Copies(s, kept)
        loops = [copies.loop(v, "serial" if v is loop else None) for v in kept]
        s.set_node(block.name, final_block(plan, partials, copies))
        top = s.nest(loops, [block.name])
        s.put_at(plan.nest[0], [plan.nest[0], top])
        return (key,)


def partial_buffer(b: ir.Buffer, axis: int, extent: int | None) -> ir.Buffer:
    shape = (*b.shape[:axis], extent or 0, *b.shape[axis:])
    return ir.Buffer(b.name + "_rf", shape, b.dtype, b.scope)


def partial_indices(indices: tuple[ir.Expr, ...], axis: int, at: ir.Expr) -> tuple[ir.Expr, ...]:
    return (*indices[:axis], at, *indices[axis:])


def partial_block(s: State, plan: FactorPlan, partials: list[ir.Buffer]) -> ir.Block:
    """Reduces over the other loops only; its iterators for reductions are the loops themselves."""
    block, reducer = plan.block, plan.reducer
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    values: dict[ir.Var, ir.Expr] = {it.var: ir.Var(it.var.name) for it, _ in pairs}
    iters = [ir.Iter(values[it.var], ir.substitute(it.extent, values), "spatial") for it, _ in pairs]  # pyright: ignore[reportArgumentType]
    bindings = [b for _, b in pairs]
    by_loop: dict[ir.Var, ir.Expr] = {}
    for var in (plan.loop, *plan.others):
        new = ir.Var(f"v_{var.name}")
        by_loop[var] = new
        iters.append(ir.Iter(new, s.extents[var], "spatial" if var is plan.loop else "reduce"))
        bindings.append(var)
    domain = Domain.keeping_names({new: s.extents[var] for var, new in by_loop.items()})  # pyright: ignore
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "reduce":
            values[it.var] = simplify(ir.substitute(s.resolve(binding), by_loop), domain)
    sub = ir.Substitute(values)
    terms = [sub.expr(t) for t in reducer.terms]
    where = [
        partial_indices(sub.exprs(st.indices), axis, by_loop[plan.loop])
        for st, axis in zip(reducer.stores, plan.axes, strict=True)
    ]
    own = [ir.Load(b, at) for b, at in zip(partials, where, strict=True)]
    results = reducer.combine(own, terms) if plan.others else tuple(terms)
    stores = [ir.Store(b, at, value) for b, at, value in zip(partials, where, results, strict=True)]
    starts = [ir.Store(b, at, e) for b, at, e in zip(partials, where, reducer.neutral, strict=True)]
    loaded = {load.buffer for load in ir.loads(*terms)}
    return ir.Block(
        block.name + "_rf",
        tuple(iters),
        tuple(bindings),
        tuple([sub.region(r) for r in block.reads if r.buffer in loaded]),
        tuple([b.region(*at) for b, at in zip(partials, where, strict=True)]),
        rebuild_body(block.body, stores),
        tuple(starts) if plan.others else (),
        block.predicate,
        annotations=block.annotations,
    )


def final_block(plan: FactorPlan, partials: list[ir.Buffer], copies: Copies) -> ir.Block:
    block, reducer = plan.block, plan.reducer
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    new = ir.Var(f"v_{plan.loop.name}")
    where = [
        partial_indices(st.indices, axis, new) for st, axis in zip(reducer.stores, plan.axes, strict=True)
    ]
    own = [ir.Load(st.buffer, st.indices) for st in reducer.stores]
    parts = [ir.Load(b, at) for b, at in zip(partials, where, strict=True)]
    results = reducer.combine(own, parts)
    stores = [ir.Store(st.buffer, st.indices, v) for st, v in zip(reducer.stores, results, strict=True)]
    started = loaded_buffers(block.init)
    extent = copies.state.extents[plan.loop]
    return ir.replace_fields(
        block,
        iters=(*[it for it, _ in pairs], ir.Iter(new, extent, "reduce")),
        bindings=(*[copies.expr(b) for _, b in pairs], copies.var(plan.loop)),
        reads=(
            *[b.region(*at) for b, at in zip(partials, where, strict=True)],
            *[r for r in block.reads if r.buffer in started],
        ),
        body=rebuild_body(block.body, stores),
        predicate=tuple([copies.expr(c) for c in plan.predicate]),
    )


def rebuild_body(body: ir.Body, stores: list[ir.Store]) -> ir.Body:
    """Other stores in the statements of `body`: together where it stores together."""
    left = iter(stores)
    return tuple(
        ir.TupleStore(tuple([next(left) for _ in x.stores])) if isinstance(x, ir.TupleStore) else next(left)
        for x in body
    )
