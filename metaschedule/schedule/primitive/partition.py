"""Primitives for loops side by side: loop_partition cuts one into pieces, merge makes one of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import ir
from ...affine.definitions import FusedDigit, Split
from ...affine.instance import Instance
from ...affine.system import System
from ...arith import block_signature
from ...errors import ScheduleError
from ..state import Key, State
from .base import ExprRV, LoopRV, Primitive, Steps, primitive
from .loops import check_plain
from .merge import Merge


@dataclass(slots=True)
class PartitionPlan:
    loop: ir.For
    sizes: tuple[int, ...]


@primitive("loop_partition")
class LoopPartition(Primitive):
    """Cut a loop into loops side by side, each with a piece of its range. What is below is copied: the first
    piece keeps the blocks and loops, the others get new ones.

    rewrite:   for i in range(10): S[i]
          -->  for i_0 in range(3): S[i_0]
               for i_1 in range(7): S_1[i_1 + 3]
    requires:  1. the loop is serial and not annotated
               2. its extent is a constant
               3. factors are positive; at most one is None and is worked out
               4. they sum up to the extent, and the one that is worked out is positive
    The order of iterations stays, so this is always right. Where a reduction is cut, only the first piece has
    its `init`; the others go on with what is there.
    """

    loop: LoopRV
    factors: tuple[int | ExprRV | None, ...]

    def check(self, s: State) -> PartitionPlan:
        loop = s.loop(self.loop)
        check_plain(loop, "partition")
        extent = s.fixed_extent(loop.var)
        if extent is None:
            raise ScheduleError(
                "the extent of the loop is not a constant", marks={loop.var: "its extent is an expression"}
            )
        if not self.factors:
            raise ScheduleError("loop_partition needs at least one factor")
        numbers = [None if f is None else s.number(f) for f in self.factors]
        if numbers.count(None) > 1:
            raise ScheduleError("more than one factor is None", help="leave one factor to be worked out")
        if any(n is not None and n < 1 for n in numbers):
            raise ScheduleError(f"factors must be positive, got {numbers}", marks={loop.var: "to be cut"})
        known = sum(n for n in numbers if n is not None)
        if None in numbers and known >= extent:
            raise ScheduleError(
                f"the factors sum up to {known} and leave nothing of {extent} for the other piece",
                marks={loop.var: f"{extent} iterations"},
            )
        if None not in numbers and known != extent:
            raise ScheduleError(
                f"the factors sum up to {known}, not to {extent}",
                marks={loop.var: f"{extent} iterations"},
                help="make one factor None: it takes what is left",
            )
        return PartitionPlan(loop, tuple([extent - known if n is None else n for n in numbers]))

    def apply(self, s: State, plan: PartitionPlan) -> tuple[Any, ...]:
        old = plan.loop.var
        below = set(loops_below(s, old))
        body = s.children[old]
        pieces = tuple([ir.Var(f"{old.name}_{n}") for n in range(len(plan.sizes))])
        bodies: list[list[Key]] = []
        at = plan.sizes[0]
        for var, size in zip(pieces[1:], plan.sizes[1:], strict=True):
            piece = Piece(s, old, var, at, below, fresh=True)
            bodies.append([piece.copy(key) for key in body])
            at += size
        # The first piece takes over the nodes that the others were copied from.
        first = Piece(s, old, pieces[0], 0, below, fresh=False)
        bodies.insert(0, [first.copy(key) for key in body])
        s.replace(old, pieces)
        for var, size, inside in zip(pieces, plan.sizes, bodies, strict=True):
            s.nest([ir.For(var, ir.const(size), ())], inside)
        return pieces


def loops_below(s: State, key: Key) -> list[ir.Var]:
    """The loops below a node, also inside blocks."""
    found: list[ir.Var] = []
    for child in s.children[key]:
        found += [child] if isinstance(child, ir.Var) else []
        found += loops_below(s, child)
    return found


class Piece(ir.Substitute):
    """What is below a loop, with the loop's variable replaced by the place of one piece. With `fresh`, every
    variable, block and buffer that is declared there is a new one."""

    def __init__(
        self, s: State, old: ir.Var, new: ir.Var, first: int, below: set[ir.Var], fresh: bool
    ) -> None:
        super().__init__({})
        self.first = first  # iteration of the old loop
        self.s = s
        self.old = old
        self.below = below
        self.fresh = fresh
        self.known: dict[ir.Var, ir.Expr] = {old: ir.binary("+", new, ir.const(first)) if first else new}
        self.renamed: dict[ir.Buffer, ir.Buffer] = {}

    # --- variables ---

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is not ir.Var:
            return super().expr(e)
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self.variable(e)
        return found

    def variable(self, var: ir.Var) -> ir.Expr:
        """What a variable that has a definition is in this piece."""
        definition = self.s.definitions.get(var)
        if definition is None:
            return var
        leaves = set(self.s.leaf_loops(var))
        if self.old in leaves:  # a definition holds variables only, so it is written out
            value = self.s.definition(var)
            assert value is not None
            return self.expr(value)
        if not self.fresh or leaves.isdisjoint(self.below):
            return var
        new = ir.Var(var.name)
        self.s.extents[new] = self.expr(self.s.extents[var])
        if isinstance(definition, Split):
            self.s.define(new, Split(self.variables(definition.digits)))
            return new
        # The parts of a fused loop know of each other: all get their names at once.
        names = tuple([new if d is var else ir.Var(d.name) for d in definition.digits])
        whole = self.expr(definition.whole)
        assert isinstance(whole, ir.Var)
        for n, (digit, name) in enumerate(zip(definition.digits, names, strict=True)):
            self.known[digit] = name
            self.s.extents[name] = self.expr(self.s.extents[digit])
            self.s.define(name, FusedDigit(whole, names, n))
        return new

    def variables(self, old: tuple[ir.Var, ...]) -> tuple[ir.Var, ...]:
        new = [self.expr(v) for v in old]
        return tuple([v for v in new if isinstance(v, ir.Var)])

    def declare(self, var: ir.Var) -> ir.Var:
        if not self.fresh:
            return var
        new = self.known[var] = ir.Var(var.name)
        return new

    # --- statements ---

    def copy(self, key: Key) -> Key:
        """Enter the copy of a node with all below it; gives its key."""
        s = self.s
        node = s.nodes[key]
        children = s.children[key]
        if isinstance(node, ir.For):
            var = self.declare(node.var)
            extent = self.expr(node.extent)
            s.set_node(var, ir.replace_fields(node, var=var, extent=extent))
            s.extents[var] = extent
            new: Key = var
        elif isinstance(node, ir.Block):
            new = s.fresh_block_name(node.name) if self.fresh else key
            s.set_node(new, ir.replace_fields(self.outer_block(node), name=new))
        elif self.fresh:
            s.counter += 1
            new = s.counter
            s.set_node(new, self.stmt(node))
        else:
            new = key
            s.set_node(new, self.stmt(node))
        s.set_children(new, [self.copy(child) for child in children])
        return new

    def outer_block(self, node: ir.Block) -> ir.Block:
        """The copy of a block among the loops."""
        if not self.fresh:
            return ir.replace_fields(
                node, bindings=self.exprs(node.bindings), predicate=self.exprs(node.predicate)
            )
        new = self.block(node)
        if not node.init or self.may_begin(node):
            return new
        new = ir.replace_fields(new, init=())
        if self.s.children[node.name]:
            return ir.replace_fields(new, reads=(*new.writes, *new.reads))
        reads, writes = block_signature(new)
        return ir.replace_fields(new, reads=reads, writes=writes)

    def may_begin(self, node: ir.Block) -> bool:
        """Whether the first term of a reduction may be in this piece: all its iterators may be 0 there."""
        system = System()
        run = Instance(system, self.s)
        run.known[self.old] = run.fresh(self.first, (self.s.fixed_extent(self.old) or 0) - 1)
        for test in node.predicate:
            run.assume(test)
        for it, binding in zip(node.iters, node.bindings, strict=True):
            if it.kind == "reduce":
                run.require(run.value(binding), 0, 0)
        return system.is_empty() is not True

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            return super().stmt(ir.replace_fields(s, var=self.declare(s.var)))
        if isinstance(s, ir.Block):
            return self.block(s)
        return super().stmt(s)

    def block(self, s: ir.Block) -> ir.Block:
        iters = tuple([ir.Iter(self.declare(it.var), it.extent, it.kind) for it in s.iters])
        if self.fresh:
            self.renamed.update({b: replace(b) for b in s.allocs})
        new = super().stmt(ir.replace_fields(s, iters=iters))
        assert isinstance(new, ir.Block)
        return new

    def buffer(self, b: ir.Buffer) -> ir.Buffer:
        return self.renamed.get(b, b)


class PartitionSteps(Steps):
    def loop_partition(self, loop: LoopRV, factors: Sequence[int | ExprRV | None]) -> list[LoopRV]:
        """Cut a loop into loops side by side; see `LoopPartition`."""
        return list(self.run(LoopPartition(loop, tuple(factors))))

    def merge(self, *loops: LoopRV) -> LoopRV:
        """Make one loop of loops that follow one another; see `Merge`."""
        return self.run(Merge(loops))[0]
