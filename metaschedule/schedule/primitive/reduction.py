"""Primitives for reductions taken apart: decompose_reduction here, rfactor in `rfactor.py`,
fuse_reduction_epilogue in `epilogue.py`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ... import ir
from ...errors import ScheduleError
from ..analysis.block_dependence import check_independent
from ..analysis.effects import users
from ..analysis.iteration_domain import (
    check_kinds_apart,
    check_not_empty,
    check_once,
    init_predicate,
)
from ..state import Key, State
from .base import BlockRV, LoopRV, Primitive, Steps, primitive
from .epilogue import FuseReductionEpilogue
from .nests import Copies, check_copied, loaded_buffers, loops_from
from .rfactor import RFactor


@dataclass(slots=True)
class InitPlan:
    """What the `init` of a block needs to stand on its own inside or before some loops."""

    block: ir.Block
    loops: list[ir.Var]  # to copy, outermost first
    predicate: list[ir.Expr]


def plan_init(s: State, block: ir.Block, inside: list[ir.Var], reducing: set[ir.Var]) -> InitPlan:
    """The `init` before the loops `inside`, the innermost ones around the block; raises if it is not the same
    there. Loops outside of them are shared by both; `reducing` are the reduction loops."""
    check_not_empty(s, [v for v in inside if v in reducing])
    check_independent(s, block)
    check_once(s, block, inside)
    loops = [v for v in inside if v not in reducing]  # predicates may speak of loops that bindings do not
    check_copied(s, loops, reducing)
    return InitPlan(block, loops, init_predicate(s, block, reducing))


def init_block(plan: InitPlan, copies: Copies, name: str) -> ir.Block:
    """The `init` as a block in the copied loops."""
    block = plan.block
    iters, reads, writes, body = init_parts(block.iters, block.reads, block.writes, block.init)
    bound = [b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    bindings = tuple([copies.expr(b) for b in bound])
    tests = tuple([copies.expr(c) for c in plan.predicate])
    return ir.Block(name, iters, bindings, reads, writes, body, predicate=tests)


@lru_cache(maxsize=4096)  # replays then share the body, and what is known of it
def init_parts(
    iters: tuple[ir.Iter, ...], reads: tuple[ir.Region, ...], writes: tuple[ir.Region, ...], init: ir.Body
) -> tuple[tuple[ir.Iter, ...], tuple[ir.Region, ...], tuple[ir.Region, ...], ir.Body]:
    """The iterators, reads, writes and body of a block for an `init`."""
    spatial = [it for it in iters if it.kind == "spatial"]
    fresh = {it.var: ir.Var(it.var.name) for it in spatial}
    sub = ir.Substitute(fresh)
    touched = loaded_buffers(init)
    return (
        tuple([ir.Iter(fresh[it.var], sub.expr(it.extent), it.kind) for it in spatial]),
        tuple([sub.region(r) for r in reads if r.buffer in touched]),
        tuple([sub.region(r) for r in writes]),
        Renamed(fresh).body(init),
    )


class Renamed(ir.Substitute):
    """A copy of statements: values for some variables, fresh variables for everything declared inside."""

    def __init__(self, values: Any) -> None:
        super().__init__(dict(values))

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        values: Any = self.values
        if isinstance(s, ir.For):
            values[s.var] = ir.Var(s.var.name)
            return ir.replace_fields(super().stmt(s), var=values[s.var])
        if isinstance(s, ir.Block):
            for it in s.iters:
                values[it.var] = ir.Var(it.var.name)
        return super().stmt(s)

    def iter(self, it: ir.Iter) -> ir.Iter:
        return ir.Iter(self.values[it.var], self.expr(it.extent), it.kind)  # pyright: ignore[reportArgumentType]


def drop_init(s: State, block: ir.Block) -> ir.Block:
    """The block when its `init` is elsewhere: it now reads what it combines with."""
    loaded = set(loaded_buffers(block.body))
    for below in s.blocks_below(block.name):
        loaded |= {r.buffer for r in s.nodes[below].reads}
    listed = {r.buffer for r in block.reads}
    own = tuple([w for w in block.writes if w.buffer in loaded and w.buffer not in listed])
    return ir.replace_fields(block, init=(), reads=(*own, *block.reads))


@primitive("decompose_reduction")
class DecomposeReduction(Primitive):
    """Make the `init` of a reduction a block of its own, just before a loop.

    rewrite:   for i: for k: with T.block("C"): with T.init(): C[i] = 0;  C[i] = C[i] + A[i, k]
          -->  for i: with T.block("C_init"): C[i] = 0
               for i: for k: with T.block("C"): C[i] = C[i] + A[i, k]            (before i)
    requires:  1. the block has an `init`
               2. the loop is around the block, and nothing but loops is between them
               3. no reduction loop is outside of it, none drives spatial iterators too, none may be empty
               4. each instance runs once in the loops inside, and stores elements of its own
               5. its reduction iterators are 0 in the first iteration
               6. nothing else in the loop touches the result
    """

    block: BlockRV
    loop: LoopRV

    def check(self, s: State) -> tuple[InitPlan, ir.Var]:
        block, loop = s.block(self.block), s.loop(self.loop)
        if not block.init:
            raise ScheduleError(
                f"block {block.name!r} has no init", marks={block.name: "no init"},
                help="only reductions have one, until it is decomposed",
            )  # fmt: skip
        chain = loops_from(s, block, loop.var)
        _, reducing = check_kinds_apart(s, block)
        for var in s.loops_around(loop.var):
            if var in reducing:
                raise ScheduleError(
                    f"the reduction loop over {var.name} is outside of the loop over {loop.var.name}",
                    marks={var: "reduction loop", loop.var: "the init would run before this loop"},
                    help=f"decompose at the loop over {var.name} or outside of it",
                )
        plan = plan_init(s, block, chain, reducing)
        using = {key for w in block.writes for key in users(s, w.buffer)}
        for other in s.statements_below(loop.var):
            if other in using and other is not block.name:
                name = f"block {other!r}" if isinstance(other, str) else "a loop or statement"
                raise ScheduleError(
                    f"the result of block {block.name!r} is used by {name} in the same loop",
                    marks={loop.var: "the init would run before this loop", other: "uses the result"},
                    help="decompose at an inner loop that holds the reduction only",
                )
        return plan, loop.var

    def apply(self, s: State, plan: tuple[InitPlan, ir.Var]) -> tuple[Any, ...]:
        init, loop = plan
        copies = Copies(s, init.loops)
        loops = [copies.loop(v) for v in init.loops]
        new = init_block(init, copies, init.block.name + "_init")
        key = s.add(new)
        top: Key = s.nest(loops, [key]) if loops else key
        s.put_at(loop, [top, loop])
        s.set_node(init.block.name, drop_init(s, s.nodes[init.block.name]))
        return (key,)


class ReductionSteps(Steps):
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Make the `init` of a reduction a block of its own, before a loop; see `DecomposeReduction`."""
        return self.run(DecomposeReduction(block, loop))[0]

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Turn a reduction loop into a spatial one over partial results; gives the block that computes them.
        The block that reduces them is the old one. See `RFactor`."""
        return self.run(RFactor(loop, factor_axis))[0]

    def fuse_reduction_epilogue(self, reduction_block: BlockRV, epilogue_block: BlockRV) -> None:
        """Start a reduction from what an epilogue adds; see `FuseReductionEpilogue`."""
        self.run(FuseReductionEpilogue(reduction_block, epilogue_block))
