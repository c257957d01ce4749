"""The primitive blockize: a loop and what is in it as one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import ir
from ...affine.definitions import leaf_loops_of
from ...arith import Domain, access_region, simplify
from ...errors import ScheduleError
from ..analysis.iteration_domain import check_kinds_apart, domain_within
from ..state import State
from .base import LoopRV, Primitive, primitive
from .nests import loaded_buffers, perfect_nest
from .reduction import InitPlan, Renamed, drop_init, plan_init

ZERO = ir.const(0)


@dataclass(slots=True)
class BlockizePlan:
    loops: list[ir.Var]  # that go inside, outermost first
    outer: ir.Block  # without its body
    inner: ir.Block


@primitive("blockize")
class Blockize(Primitive):
    """Make a block of a loop and what is in it.

    rewrite:   for i0, i1: with T.block("C"): v_i = T.spatial(16, i0 * 4 + i1); C[v_i] = A[v_i]
          -->  for i0: with T.block("C_o"): v_i_o = T.spatial(4, i0)
                   for i1: with T.block("C"): v_i = T.spatial(16, v_i_o * 4 + i1); C[v_i] = A[v_i]  (at i1)
    The `init` of a reduction becomes that of the outer block, for all elements of its tile.
    requires:  1. in the loop are loops and one block, each the whole body of the one before
               2. every binding is outer * size + inner, inner (of the loops inside) from 0 to size - 1
               3. each conjunct of the predicate is over the loops inside, over those outside, or over
                  variables that the block is bound to
               4. extents of loops inside do not depend on what is outside, or on loaded values
               5. of a reduction: the `init` may run before the loops inside, as in decompose_reduction
    """

    loop: LoopRV

    def check(self, s: State) -> BlockizePlan:
        return plan_blockize(s, s.loop(self.loop).var)

    def apply(self, s: State, plan: BlockizePlan) -> tuple[Any, ...]:
        key = s.fresh_block_name(plan.outer.name)
        s.set_node(key, ir.replace_fields(plan.outer, name=key))
        s.put_at(plan.loops[0], [key])
        s.set_children(key, [plan.loops[0]])
        s.set_node(plan.inner.name, plan.inner)
        return (key,)


def plan_blockize(s: State, loop: ir.Var) -> BlockizePlan:
    below = s.blocks_below(loop)
    nest = perfect_nest(s, s.nodes[below[0]]) if len(below) == 1 else []
    at = next((n for n, v in enumerate(nest) if v is loop), None)
    if at is None:
        raise ScheduleError(
            f"the loop over {loop.name} does not hold one block in loops, and nothing else",
            marks={loop: f"{len(below)} blocks in it", **dict.fromkeys(below, "")},
            help="blockize an inner loop, or move the other statements away first",
        )
    block: ir.Block = s.nodes[below[0]]
    inside = nest[at:]
    check_extents(s, inside)
    parts = Parts(s, block, inside)
    outer_predicate: list[ir.Expr] = []
    inner_predicate: list[ir.Expr] = []
    for c in block.predicate:
        leaves = leaf_loops_of(s, [c])
        if leaves.isdisjoint(parts.inside):
            outer_predicate.append(c)
        else:
            inner_predicate.append(parts.condition(c))
    init: ir.Body = ()
    if block.init:
        _, reducing = check_kinds_apart(s, block)
        init = parts.init(plan_init(s, block, inside, reducing))
    inner = ir.replace_fields(block, bindings=tuple(parts.inner), predicate=tuple(inner_predicate))
    inner = drop_init(s, inner) if block.init else inner
    outer = ir.Block(
        f"{block.name}_o",
        tuple(parts.iters),
        tuple(parts.outer),
        parts.regions(block.reads),
        parts.regions(block.writes),
        (),
        init,
        tuple(outer_predicate),
    )
    return BlockizePlan(inside, outer, inner)


def check_extents(s: State, inside: list[ir.Var]) -> None:
    within = set(inside)
    for var in inside:
        extent = s.resolve(s.extents[var])
        if ir.has_load(extent) or any(v not in within for v in ir.free_vars(extent)):
            raise ScheduleError(
                f"the extent of {var.name} depends on what is outside of the new block",
                marks={var: f"its extent is {extent}"},
                help="blockize at an outer loop",
            )


class Parts:
    """The bindings of a block taken apart: iterators for the loops outside, the rest for those inside."""

    def __init__(self, s: State, block: ir.Block, inside: list[ir.Var]) -> None:
        self.state, self.block = s, block
        self.loops, self.inside = inside, set(inside)
        self.domain = domain_within(s, block.name)
        self.iters: list[ir.Iter] = []  # of the outer block
        self.outer: list[ir.Expr] = []  # what they are bound to
        self.inner: list[ir.Expr] = []  # new bindings of the block
        for it, binding in zip(block.iters, block.bindings, strict=True):
            known = s.extents.get(binding) if type(binding) is ir.Var else None
            size = ir.as_int(known) if known is not None else None
            if size and self.inside.isdisjoint(leaf_loops_of(s, [binding])):  # the usual case, and cheap
                self.add(it, size, binding, 1, ZERO)
            else:
                self.take_apart(it, s.resolve(binding))

    def take_apart(self, it: ir.Iter, binding: ir.Expr) -> None:
        zeros_inside = dict.fromkeys(self.inside, ZERO)
        zeros_outside = {v: ZERO for v in ir.free_vars(binding) if v not in self.inside}
        outer = self.simple(ir.substitute(binding, zeros_inside))
        base = ir.substitute(ir.substitute(binding, zeros_inside), zeros_outside)
        inner = self.simple(ir.substitute(binding, zeros_outside) - base)
        low, high = self.domain.bounds(inner)
        loads = ir.has_load(binding)
        if loads or not ir.is_zero(self.simple(binding - outer - inner)) or low != 0 or high is None:
            self.refuse(it, binding, "the loops inside and outside do not come apart in it")
        assert high is not None
        size = high + 1
        count = self.simple(outer // size)
        if not ir.is_zero(self.simple(count * size - outer)):
            self.refuse(it, binding, f"{outer} is no multiple of {size}")
        first, last = self.domain.bounds(count)
        if first is None or first < 0 or last is None:
            self.refuse(it, binding, f"{count} is not known to be in a range from 0")
        assert last is not None
        self.add(it, last + 1, count, size, inner)

    def add(self, it: ir.Iter, extent: int, count: ir.Expr, size: int, inner: ir.Expr) -> None:
        """`it` is `count` * `size` + `inner`, where `count` has `extent` values."""
        var = ir.Var(f"{it.var.name}_o")
        self.iters.append(ir.Iter(var, ir.const(extent), it.kind))
        self.outer.append(count)
        self.inner.append(var * size + inner)

    def refuse(self, it: ir.Iter, binding: ir.Expr, why: str) -> None:
        raise ScheduleError(
            f"{it.var.name} of block {self.block.name!r} is bound to {binding}: {why}",
            marks={self.block.name: f"{it.var.name} is not outer * size + inner"},
        )

    def simple(self, e: ir.Expr) -> ir.Expr:
        return simplify(e, self.domain)

    def condition(self, c: ir.Expr) -> ir.Expr:
        """A conjunct in terms of the new iterators and the loops inside."""
        known: dict[ir.Var, ir.Expr] = {v: v for v in self.inside}
        known |= {b: it.var for b, it in zip(self.outer, self.iters, strict=True) if type(b) is ir.Var}
        bound = {b: new for b, new in zip(self.block.bindings, self.inner, strict=True) if type(b) is ir.Var}
        values: dict[ir.Var, ir.Expr] = {}
        for var in ir.free_vars(c):
            if var in known or var in bound:
                values[var] = known[var] if var in known else bound[var]
                continue
            values[var] = ir.substitute(self.state.resolve(var), known)
            if any(leaf not in known for leaf in self.state.leaf_loops(var)):
                raise ScheduleError(
                    f"the condition {c} is over loops inside and outside of the new block",
                    marks={self.block.name: "its predicate does not come apart"},
                    help="blockize at another loop",
                )
        return ir.substitute(c, values)

    def regions(self, regions: tuple[ir.Region, ...]) -> tuple[ir.Region, ...]:
        """What the block touches while the loops inside run."""
        s = self.state
        values = {it.var: new for it, new in zip(self.block.iters, self.inner, strict=True)}
        loops = {v: s.resolve(s.extents[v]) for v in self.loops}
        domain = Domain.keeping_names({it.var: it.extent for it in self.iters})
        found: list[ir.Region] = []
        for r in regions:
            starts = [ir.substitute(start, values) for start, _ in r.ranges]
            box = access_region(r.buffer, starts, loops, domain)
            ranges = list(box.ranges)
            for n, ((first, count), (_, extent)) in enumerate(zip(box.ranges, r.ranges, strict=True)):
                size = ir.as_int(extent)
                ranges[n] = (first, count + (size - 1)) if size else (ZERO, ir.const(r.buffer.shape[n]))
            found.append(ir.Region(r.buffer, tuple(ranges)))
        return tuple(found)

    def init(self, plan: InitPlan) -> ir.Body:
        """The `init` of the block over the loops inside that drive spatial iterators."""
        block = self.block
        pairs = [(it, new) for it, new in zip(block.iters, self.inner, strict=True) if it.kind == "spatial"]
        touched = loaded_buffers(block.init)
        outside = {c for c in block.predicate if leaf_loops_of(self.state, [c]).isdisjoint(self.inside)}
        kept = [c for c in plan.predicate if c not in outside]  # those guard the outer block
        body: ir.Stmt = ir.Block(
            self.state.fresh_block_name(f"{block.name}_init"),
            tuple([it for it, _ in pairs]),
            tuple([new for _, new in pairs]),
            tuple([r for r in block.reads if r.buffer in touched]),
            block.writes,
            block.init,
            predicate=tuple([self.condition(c) for c in kept]),
        )
        for var in reversed(plan.loops):
            loop: ir.For = self.state.nodes[var]
            body = ir.replace_fields(loop, extent=self.state.resolve(loop.extent), body=(body,))
        return Renamed({}).body((body,))
