"""decompose_padding: padding becomes a fill and a copy without tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import ir
from ...arith import Domain, simplify
from ...errors import ScheduleError
from ..analysis.block_dependence import order_matters
from ..analysis.iteration_domain import binds_once
from ..analysis.signature import infer_signature
from ..state import Key, State
from .base import BlockRV, LoopRV, Primitive, primitive


@dataclass(slots=True)
class DecomposePlan:
    block: ir.Block
    store: ir.Store
    value: ir.Select
    loop: ir.Var
    box: list[tuple[int, int]]  # first and last value of each iterator inside
    nest: list[ir.Var]  # the loops from `loop` inwards


@primitive("decompose_padding")
class DecomposePadding(Primitive):
    """Take padding apart: fill everything with the value, then copy the inside without tests.

    rewrite:   for i in range(10): P[i] = select(i >= 1 and i < 9, X[i - 1], 0)
          -->  for i in range(10): P[i] = 0
               for i in range(8): P[i + 1] = X[i]
    requires:  1. the block is one element-wise store of select(inside, x, constant)
               2. `inside` is a box of the iterators that is not empty
               3. `loop` is around the block, with nothing else in it, and not bound to a GPU axis below
    Atomic: no other step stores an element twice, which is right only because the second store comes next.
    Both nests take the place of `loop`; loops around it stay around both. A loop that is such an iterator
    becomes shorter; if that loop was split or lies outside of `loop`, the copy gets a predicate instead.
    Gives the block that fills; the old block copies.
    """

    block: BlockRV
    loop: LoopRV

    def check(self, s: State) -> DecomposePlan:
        block = s.block(self.block)
        marks = {block.name: "this block"}
        store = block.body[0] if len(block.body) == 1 else None
        whole = block.iters and not block.init and not s.children[block.name] and not block.allocs
        if not whole or not isinstance(store, ir.Store) or any(it.kind == "reduce" for it in block.iters):
            raise ScheduleError(f"block {block.name!r} is not a single element-wise store", marks)
        value = store.value
        if not isinstance(value, ir.Select) or not isinstance(value.b, ir.Const):
            raise ScheduleError(
                f"block {block.name!r} does not store select(inside, x, constant)", marks,
                "padding chooses between an expression and a constant",
            )  # fmt: skip
        why = order_matters(s, block)
        if why or any(load.buffer is store.buffer for load in ir.loads(value)):
            why = why or "it reads what it writes"
            raise ScheduleError(f"block {block.name!r} cannot be taken apart: {why}", marks)
        nest = self.nest(s, block)
        self.check_races(s, block, nest[0])
        return DecomposePlan(block, store, value, nest[0], self.inner_box(block, value.cond), nest)

    def inner_box(self, block: ir.Block, cond: ir.Expr) -> list[tuple[int, int]]:
        """Where the condition holds: bounds follow from it, and it follows from them."""
        domain = Domain({it.var: it.extent for it in block.iters})
        box: list[tuple[int, int]] = []
        within = domain
        loaded = bool(ir.loads(cond)) or any(ir.as_int(it.extent) is None for it in block.iters)
        inside = domain if loaded else domain.with_fact(cond)
        for it in () if loaded else block.iters:
            low, high = inside.bounds(it.var)
            if inside.empty or low is None or high is None or low > high:
                raise ScheduleError(
                    f"the inside of block {block.name!r} is empty or not known",
                    marks={block.name: f"inside where {cond}"},
                )
            box.append((low, high))
            within = within.with_fact(ir.binary(">=", it.var, low)).with_fact(ir.binary("<=", it.var, high))
        if loaded or not within.prove(cond):
            raise ScheduleError(
                f"the inside of block {block.name!r} is not a box",
                marks={block.name: f"inside where {cond}"},
                help="conditions as in i >= 1 and i < 9 can be taken apart",
            )
        return box

    def nest(self, s: State, block: ir.Block) -> list[ir.Var]:
        loop = s.loop(self.loop).var
        found: list[ir.Var] = []
        key: Key = block.name
        while key is not loop:
            above = s.parent[key]
            if not isinstance(above, ir.Var):
                raise ScheduleError(
                    "the loop is not around the block", marks={loop: "this loop", block.name: "block"}
                )
            if not s.is_only_child(key, of=above):
                raise ScheduleError(
                    "there is something else in the loop",
                    marks={above: "has more in its body", block.name: "than this block"},
                )
            if s.nodes[above].kind in ir.GPU_AXES:
                raise ScheduleError(
                    f"the loop over {above.name} is bound to {s.nodes[above].kind}", marks={above: "bound"}
                )
            found.append(above)
            key = above
        return found[::-1]

    def check_races(self, s: State, block: ir.Block, top: ir.Var) -> None:
        """Threads that store the same element see each other's filling; before, they stored equal values."""
        shared = [
            v for v in s.loops_around(top) if s.nodes[v].kind not in ("serial", "unrolled", "vectorized")
        ]
        if shared and not binds_once(s, block, s.loops_around(block.name)):
            raise ScheduleError(
                f"iterations of the loop over {shared[0].name} may store the same elements at the same time",
                marks={shared[0]: s.nodes[shared[0]].kind, block.name: "this block"},
                help="decompose before parallel and bind",
            )

    def apply(self, s: State, plan: DecomposePlan) -> tuple[Any, ...]:
        fill = self.add_fill(s, plan)
        self.shrink(s, plan)
        s.put_at(plan.loop, [fill, plan.loop])
        return (s.blocks_below(fill)[0],)

    def add_fill(self, s: State, plan: DecomposePlan) -> Key:
        """The nest again, storing the constant."""
        block, store = plan.block, plan.store
        loops = {v: ir.Var(v.name) for v in plan.nest}
        own = {it.var: ir.Var(it.var.name) for it in block.iters}
        put = ir.Substitute({**loops, **own})
        filling = ir.Block(
            f"{block.name}_fill",
            tuple([ir.Iter(own[it.var], put.expr(it.extent), it.kind) for it in block.iters]),
            tuple([put.expr(s.resolve(b)) for b in block.bindings]),
            (),
            (),
            (ir.Store(store.buffer, put.exprs(store.indices), plan.value.b),),
            predicate=tuple([put.expr(s.resolve(p)) for p in block.predicate]),
        )
        nest: Any = infer_signature(filling)
        for var in reversed(plan.nest):
            node: ir.For = s.nodes[var]
            nest = ir.For(loops[var], put.expr(s.resolve(node.extent)), (nest,), node.kind, node.annotations)
        return s.add(nest)

    def shrink(self, s: State, plan: DecomposePlan) -> None:
        """Restrict the old block to the inside."""
        block = plan.block
        iters: list[ir.Iter] = []
        bindings: list[ir.Expr] = []
        predicate = list(block.predicate)
        values: dict[ir.Var, ir.Expr] = {}
        for at, (it, binding, (low, high)) in enumerate(
            zip(block.iters, block.bindings, plan.box, strict=True)
        ):
            count = high - low + 1
            if count == ir.as_int(it.extent):
                iters.append(it)
                bindings.append(binding)
                continue
            new = ir.Var(it.var.name)
            iters.append(ir.Iter(new, ir.const(count)))
            values[it.var] = new + low
            if self.is_own_loop(s, plan, at):
                assert isinstance(binding, ir.Var)
                s.update(binding, extent=ir.const(count))
                s.extents[binding] = ir.const(count)
                bindings.append(binding)
            else:
                bindings.append(binding - low)
                predicate += [ir.binary(">=", binding, low)] if low > 0 else []
                predicate += (
                    [ir.binary("<=", binding, high)] if high < (ir.as_int(it.extent) or 0) - 1 else []
                )
        tidy = Tidy({**values}, Domain({it.var: it.extent for it in iters}))
        store = ir.Store(plan.store.buffer, tidy.exprs(plan.store.indices), tidy.expr(plan.value.a))
        new = ir.replace_fields(
            block, iters=tuple(iters), bindings=tuple(bindings), predicate=tuple(predicate), body=(store,)
        )
        s.set_node(block.name, infer_signature(new))

    def is_own_loop(self, s: State, plan: DecomposePlan, at: int) -> bool:
        """Whether an iterator is a loop of the nest that serves nothing else."""
        var = plan.block.bindings[at]
        if not isinstance(var, ir.Var) or not any(var is v for v in plan.nest):
            return False
        if s.fixed_extent(var) != ir.as_int(plan.block.iters[at].extent):
            return False
        others = [b for n, b in enumerate(plan.block.bindings) if n != at] + list(plan.block.predicate)
        others += [s.extents[v] for v in plan.nest]
        return not any(leaf is var for e in others for v in ir.free_vars(e) for leaf in s.leaf_loops(v))


class Tidy(ir.Substitute):
    """Replaces variables and simplifies indices that change."""

    def __init__(self, values: dict[ir.Var, ir.Expr], domain: Domain) -> None:
        super().__init__(values)
        self.domain = domain

    def exprs(self, items: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        return tuple([e if (new := self.expr(e)) is e else simplify(new, self.domain) for e in items])

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Load:
            return ir.Load(e.buffer, self.exprs(e.indices))
        return super().expr(e)
