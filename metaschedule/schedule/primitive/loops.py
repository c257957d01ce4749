"""Primitives that reshape loop nests: split, fuse, add_unit_loop (and reorder, in its own file)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ... import ir
from ...affine.definitions import FusedDigit, Split, leaf_loops_of
from ...affine.interned import less, number, product
from ...errors import ScheduleError
from ..analysis.effects import touch
from ..analysis.limits import check_count, check_nest
from ..state import State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive
from .reorder import Reorder

LONGEST_NAME = 128  # of a loop: split and fused again n times, `i` would have 2**n letters


def joined_name(loops: Sequence[ir.Var]) -> str:
    return "_".join([v.name for v in loops])[:LONGEST_NAME].rstrip("_")


def check_plain(loop: ir.For, what: str) -> None:
    """A loop that has been given a kind or notes says something about the loop as it is."""
    if loop.kind != "serial":
        raise ScheduleError(
            f"the loop over {loop.var.name} is {loop.kind} already",
            marks={loop.var: loop.kind},
            help=f"{what} before parallel, vectorize, unroll and bind",
        )
    if loop.annotations:
        raise ScheduleError(
            f"the loop over {loop.var.name} has annotations",
            marks={loop.var: "annotated"},
            help=f"{what} before annotating, or unannotate",
        )


@dataclass(slots=True)
class SplitPlan:
    loop: ir.For
    extents: tuple[ir.Expr, ...]
    guarded: bool


@primitive("split")
class SplitLoop(Primitive):
    """Cut a loop into nested loops.

    rewrite:   for i in range(128): S[i]
          -->  for i_0 in range(22): for i_1 in range(6): if i_0 * 6 + i_1 < 128: S[i_0 * 6 + i_1]
    requires:  1. the loop is serial and not annotated
               2. factors are positive; at most one is None and is worked out, rounding up
               3. without None, their product is at least the extent
               4. where the factors do not divide, what runs together fits 63 bits
               5. where the factors may not divide, no extent below reads memory at the loop's variable (CSR)
    The test is left out where the factors are numbers that divide the extent; with sampled factors it always
    stays, so that the structure does not depend on what was drawn (lowering drops it where it can).
    """

    loop: LoopRV
    factors: tuple[int | ExprRV | None, ...]

    def check(self, s: State) -> SplitPlan:
        loop = s.loop(self.loop)
        check_plain(loop, "split")
        if not self.factors:
            raise ScheduleError("split needs at least one factor")
        sampled = any(isinstance(f, ExprRV) for f in self.factors)
        numbers = [None if f is None else s.number(f) for f in self.factors]
        if numbers.count(None) > 1:
            raise ScheduleError("more than one factor is None", help="leave one factor to be worked out")
        given = [n for n in numbers if n is not None]
        if given and min(given) < 1:
            raise ScheduleError(f"factors must be positive, got {numbers}", marks={loop.var: "to be split"})
        known = math.prod(given)
        extent = ir.as_int(loop.extent)
        if None in numbers:
            outer = (
                ir.const(-(-extent // known)) if extent is not None else (loop.extent + (known - 1)) // known
            )
        else:
            outer = None
            if extent is None:
                raise ScheduleError(
                    "the extent of the loop is not a constant",
                    marks={loop.var: "its extent is an expression"},
                    help="leave one factor None: it is worked out when the program runs",
                )
            if known < extent:
                raise ScheduleError(
                    f"the factors cover {known} of {extent} iterations",
                    marks={loop.var: f"{extent} iterations"},
                    help="make one factor None or larger",
                )
        extents = tuple([outer if n is None else number(n) for n in numbers])
        covered = known * (ir.as_int(outer) or 0 if outer is not None else 1)
        exact = extent is not None and covered == extent
        if not exact:
            check_nest(s, loop.var, max(known, covered))
        guarded = sampled or not exact
        if guarded:
            self.check_inner_extents(s, loop.var)
        return SplitPlan(loop, extents, guarded)  # pyright: ignore[reportArgumentType]

    def check_inner_extents(self, s: State, var: ir.Var) -> None:
        """The test guards blocks; an extent below that reads memory is evaluated before it."""
        for below in s.statements_below(var):
            if not isinstance(below, ir.Var) or not touch(s.nodes[below]).loaded:
                continue
            if var in leaf_loops_of(s, [s.extents[below]]):
                raise ScheduleError(
                    f"the extent of {below.name} reads memory at {var.name}, also past its end",
                    marks={var: "to be split", below: f"its extent is {s.extents[below]}"},
                    help="split by numbers that divide the extent",
                )

    def apply(self, s: State, plan: SplitPlan) -> tuple[Any, ...]:
        old = plan.loop.var
        digits = tuple([s.fresh(f"{old.name}_{n}") for n in range(len(plan.extents))])
        body = s.children[old]
        loops = [ir.For(v, e, ()) for v, e in zip(digits, plan.extents, strict=True)]
        s.replace(old, [digits[0]])
        s.nest(loops, body)
        s.define(old, Split(digits))
        if plan.guarded:
            s.guard(digits[-1], less(old, plan.loop.extent))
        return digits


@primitive("fuse")
class Fuse(Primitive):
    """Make one loop of nested ones.

    rewrite:   for i in range(n): for j in range(m): S[i, j]
          -->  for i_j in range(n * m): S[i_j // m, i_j % m]
    requires:  1. each loop is the whole body of the one before
               2. all are serial and not annotated
               3. no extent depends on the loops that are fused
               4. the iterations of the new loop fit 63 bits
    """

    loops: tuple[LoopRV, ...]

    def check(self, s: State) -> list[ir.For]:
        loops = [s.loop(h) for h in self.loops]
        if not loops:
            raise ScheduleError("fuse needs at least one loop")
        for outer, inner in zip(loops, loops[1:]):
            if not s.is_only_child(inner.var, of=outer.var):
                raise ScheduleError(
                    "the two loops are not perfectly nested",
                    marks={outer.var: "outer", inner.var: "inner"},
                    help="`inner` must be the whole body of `outer`: reorder first",
                )
        for loop in loops:
            check_plain(loop, "fuse")
            if type(loop.extent) is ir.Const:
                continue
            if not leaf_loops_of(s, [loop.extent]).isdisjoint([other.var for other in loops]):
                raise ScheduleError(
                    "the extent depends on a loop that is to be fused",
                    marks={loop.var: f"its extent is {loop.extent}"},
                )
        iterations = math.prod(s.fixed_extent(loop.var) or 1 for loop in loops)
        check_count(iterations, "the iterations of the loop", {loop.var: "" for loop in loops})
        return loops

    def apply(self, s: State, plan: list[ir.For]) -> tuple[Any, ...]:
        digits = tuple(loop.var for loop in plan)
        fused = s.fresh(joined_name(digits))
        extent = reduce(product, [loop.extent for loop in plan])
        body = s.children[digits[-1]]
        s.replace(digits[0], [fused])
        for var in digits[1:]:
            s.forget(var)
        s.nest([ir.For(fused, extent, ())], body)
        for n, var in enumerate(digits):
            s.define(var, FusedDigit(fused, digits, n))
        return (fused,)


@primitive("add_unit_loop")
class AddUnitLoop(Primitive):
    """Put a loop of one iteration around a block or loop.

    rewrite:   S  -->  for u in range(1): S
    """

    target: BlockRV | LoopRV

    def check(self, s: State) -> Any:
        return s.block(self.target).name if isinstance(self.target, BlockRV) else s.loop(self.target).var

    def apply(self, s: State, plan: Any) -> tuple[Any, ...]:
        unit = s.fresh("u")
        parent = s.parent[plan]
        siblings = [unit if c is plan else c for c in s.children[parent]]
        s.nest([ir.For(unit, ir.Const(1, "int64"), ())], [plan])
        s.set_children(parent, siblings)
        return (unit,)


class LoopSteps(Steps):
    def split(self, loop: LoopRV, factors: Sequence[int | ExprRV | None]) -> list[LoopRV]:
        """Cut a loop into nested loops, outermost first; see `SplitLoop`."""
        return list(self.run(SplitLoop(loop, tuple(factors))))

    def fuse(self, *loops: LoopRV) -> LoopRV:
        """Make one loop of nested ones; see `Fuse`."""
        return self.run(Fuse(loops))[0]

    def reorder(self, *loops: LoopRV) -> None:
        """Change the order of nested loops; see `Reorder`."""
        self.run(Reorder(loops))

    def add_unit_loop(self, target: BlockRV | LoopRV) -> LoopRV:
        """Put a loop of one iteration around a block or loop."""
        return self.run(AddUnitLoop(target))[0]
