"""transform_block_layout, reorder_block_iter_var: other iterators for a block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...arith import Domain, IndexMap, negation, simplify
from ...errors import ScheduleError
from ...ir.reducers import find_reducer
from ..analysis.block_dependence import order_matters
from ..analysis.index_text import Texts, image_shape, index_map
from ..analysis.iteration_domain import runs_once_per_point
from ..state import Key, State
from .base import BlockRV, Primitive, primitive
from .loops import check_plain
from .nests import perfect_nest


@dataclass(slots=True)
class BlockLayoutPlan:
    block: ir.Block
    chain: list[ir.Var]
    iters: tuple[ir.Iter, ...]
    values: dict[ir.Var, ir.Expr]  # of the old iterators
    tests: list[ir.Expr]  # that hold for images of the old iterators


@primitive("transform_block_layout")
class TransformBlockLayout(Primitive):
    """Give a block other iterators, and new loops over them.

    rewrite:   for i, j in T.grid(128, 128): S[i, j]
          -->  for ax0 in range(16384): S[ax0 // 128, ax0 % 128]         (index_map=lambda i, j: i * 128 + j)
    requires:  1. the iterators' extents are constants, on which the index map is one to one
               2. the loops around the block hold nothing else, are serial and not annotated, and run every
                  point of the iterators once
               3. instances of the block may run in another order
               4. a new iterator is made of spatial iterators only, or of reductions only, which start at 0;
                  if the reduction is not known to commute, its iterators stay as they are
    Where the map leaves gaps, as (i % 2, i // 2) of 5 elements does, a predicate keeps the block off.
    """

    block: BlockRV
    index_map: Texts

    def check(self, s: State) -> BlockLayoutPlan:
        block = s.block(self.block)
        mark = {block.name: "this block"}
        extents = tuple([n for it in block.iters if (n := ir.as_int(it.extent)) is not None])
        if len(extents) != len(block.iters) or not extents:
            raise ScheduleError("the block needs iterators of constant extents", marks=mark)
        found = index_map(self.index_map, len(extents))
        shape = image_shape(self.index_map, extents)
        has_gaps = math.prod(shape) != math.prod(extents)
        chain = check_own_loops(s, block, "transform the layout")
        why = order_matters(s, block)
        if why:
            raise ScheduleError(
                f"the order of the instances of block {block.name!r} may matter: {why}",
                marks={block.name: why},
            )
        iters = self.iterators(block, found, shape)
        back = found.inverse(extents)([it.var for it in iters])
        domain = Domain.keeping_names(dict(zip([it.var for it in iters], shape, strict=True)))
        values = {it.var: simplify(e, domain) for it, e in zip(block.iters, back, strict=True)}
        gaps = found.gaps(extents, [it.var for it in iters], domain) if has_gaps else []
        return BlockLayoutPlan(block, chain, iters, values, [simplify(negation(test)) for test in gaps])

    def iterators(self, block: ir.Block, found: IndexMap, shape: tuple[int, ...]) -> tuple[ir.Iter, ...]:
        kinds = dict(zip(found.inputs, [it.kind for it in block.iters], strict=True))
        iters: list[ir.Iter] = []
        reduced: list[ir.Expr] = []
        for n, (e, size) in enumerate(zip(found.outputs, shape, strict=True)):
            used = {kinds[v] for v in ir.free_vars(e)} or {"spatial"}
            if len(used) > 1:
                raise ScheduleError(
                    f"index {n} of the map, {e}, mixes spatial iterators and reductions",
                    marks={block.name: "has both"},
                )
            kind = used.pop()
            if kind == "reduce":
                reduced.append(e)
                zero = simplify(ir.substitute(e, {v: ir.const(0) for v in found.inputs}))
                if ir.as_int(zero) != 0:
                    raise ScheduleError(
                        f"index {n} of the map, {e}, is not 0 where the reduction starts",
                        marks={block.name: "reduces"},
                    )
            iters.append(ir.Iter(ir.Var(f"v{n}"), ir.const(size), kind))
        before = [v for v in found.inputs if kinds[v] == "reduce"]
        same = len(before) == len(reduced) and all(a is b for a, b in zip(before, reduced))
        if not same and find_reducer(block) is None:
            raise ScheduleError(
                f"block {block.name!r} does not reduce by an operation that is known to commute",
                marks={block.name: "its reduction must keep its order"},
                help="sum, prod, min, max and their tuples commute",
            )
        return tuple(iters)

    def apply(self, s: State, plan: BlockLayoutPlan) -> tuple[Any, ...]:
        block = plan.block
        loops = [ir.For(ir.Var(f"ax{n}"), it.extent, ()) for n, it in enumerate(plan.iters)]
        put = ir.Substitute(plan.values)
        at = {it.var: loop.var for it, loop in zip(plan.iters, loops, strict=True)}
        s.update(
            block.name,
            iters=plan.iters,
            bindings=tuple([loop.var for loop in loops]),
            predicate=tuple([ir.substitute(test, at) for test in plan.tests]),
            reads=tuple([put.region(r) for r in block.reads]),
            writes=tuple([put.region(r) for r in block.writes]),
            init=put.body(block.init),
            body=put.body(block.body),
        )
        top: Key = plan.chain[-1] if plan.chain else block.name
        parent = s.parent[top]
        siblings = list(s.children[parent])
        outermost = s.nest(loops, [block.name])
        s.set_children(parent, [outermost if c is top else c for c in siblings])
        for var in plan.chain:
            s.forget(var)
        return ()


def check_own_loops(s: State, block: ir.Block, what: str) -> list[ir.Var]:
    """The loops that hold this block and nothing else, innermost first; raises if they do not run every point
    of its iterators once, or have a kind."""
    chain = perfect_nest(s, block)[::-1]
    for var in chain:
        check_plain(s.nodes[var], what)
    if not runs_once_per_point(s, block, chain):
        raise ScheduleError(
            f"the loops of block {block.name!r} are not known to run every point of its iterators once",
            marks={block.name: "the loops that hold nothing else"},
            help=f"{what} before moving the block",
        )
    return chain


@primitive("reorder_block_iter_var")
class ReorderBlockIterVar(Primitive):
    """List a block's iterators in another order.

    rewrite:   with T.block("C"): i = ...; j = ...
          -->  with T.block("C"): j = ...; i = ...            (new_order=(1, 0))
    requires:  1. `new_order` names every iterator once
               2. no iterator comes before one that its extent depends on
    """

    block: BlockRV
    new_order: tuple[int, ...]

    def check(self, s: State) -> ir.Block:
        block = s.block(self.block)
        order = self.new_order
        count = len(block.iters)
        if sorted(order) != list(range(count)):
            raise ScheduleError(
                f"new_order {order!r:.80} is no permutation of the {count} iterators",
                marks={block.name: ", ".join(it.var.name for it in block.iters) or "no iterators"},
            )
        own = {it.var for it in block.iters}
        seen: set[ir.Var] = set()
        for n in order:
            it = block.iters[n]
            late = [v for v in ir.free_vars(it.extent) if v in own and v not in seen]
            if late:
                raise ScheduleError(
                    f"the extent of {it.var.name} depends on {late[0].name}, which would come after it",
                    marks={block.name: f"the extent of {it.var.name} is {it.extent}"},
                )
            seen.add(it.var)
        return block

    def apply(self, s: State, plan: ir.Block) -> tuple[Any, ...]:
        s.update(
            plan.name,
            iters=tuple([plan.iters[n] for n in self.new_order]),
            bindings=tuple([plan.bindings[n] for n in self.new_order]),
        )
        return ()
