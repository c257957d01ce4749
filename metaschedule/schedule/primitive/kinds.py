"""Primitives for how loops are carried out: parallel, vectorize, unroll, bind.

A kind never changes what a loop means, only how it may run. So a loop that runs iterations together or in any
order must have iterations that do not depend on each other: `loop_carried_dependence` says why they may, from
the signatures of blocks.

    for i in range(8):          iterations that touch one element (`may_alias`): none for Y[i];
        X[0] = A[i]             all for X[0], but X is an intermediate, and every iteration
        Y[i] = X[0] * X[0]      fills it before it reads it: each may have one of its own
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import ir
from ...affine.access import Access, make_access
from ...affine.alias import are_told_apart, may_alias
from ...affine.cover import covers
from ...affine.definitions import leaf_loops_by_kind
from ...affine.view import View
from ...codegen.lower.model import MOST_UNROLLED
from ...errors import ScheduleError
from ...ir.reducers import commutes
from ..analysis.effects import accesses_below, users
from ..analysis.must_write import stored_region
from ..state import Key, State
from .base import LoopRV, Primitive, Steps, primitive


def check_serial(loop: ir.For) -> None:
    if loop.kind != "serial":
        raise ScheduleError(
            f"the loop over {loop.var.name} is {loop.kind} already",
            marks={loop.var: loop.kind},
            help="a loop has one kind: split it to have two",
        )


def check_constant(s: State, loop: ir.For) -> int:
    extent = s.fixed_extent(loop.var)
    if extent is None:
        raise ScheduleError(
            f"the extent of the loop over {loop.var.name} is not a constant",
            marks={loop.var: "its extent is an expression"},
            help="split it and take the inner loop",
        )
    return extent


def check_independent(s: State, loop: ir.For, reductions: bool = False) -> None:
    why = loop_carried_dependence(s, loop.var, reductions)
    if why:
        raise ScheduleError(
            f"iterations of the loop over {loop.var.name} may depend on each other: {why}",
            marks={loop.var: "its iterations must be independent"},
            help="take a loop of a spatial iterator; rfactor makes one of a reduction",
        )


# --- whether iterations depend on each other ------------------------------------------------------


def loop_carried_dependence(s: State, loop: ir.Var, reductions: bool = False) -> str | None:
    """Why iterations of a loop may depend on each other; None if they certainly do not. With `reductions`,
    those of a reduction that commutes are not held against it."""
    extent = s.fixed_extent(loop)
    if extent is not None and extent <= 1:
        return None
    below, view = accesses_below(s, loop), View(s, s.parent[loop], moving=loop)
    if below.problem:
        return below.problem
    for buffer in below.written:
        uses = below.accesses[buffer]
        if buffer in below.loaded:
            return f"{buffer.name} is written, and an extent or a condition depends on it"
        if all(are_told_apart(view, a, b) for a, b in find_conflicts(uses)):
            continue
        block = uses[0].block
        if reductions and all(a.block is block for a in uses) and reduces_over(s, block, loop):
            if commutes(block):
                continue
            return f"block {block.name!r} reduces over it by an operation that is not known to commute"
        if is_private(s, loop, buffer, uses):
            continue
        if all(may_alias(view, a, b) is False for a, b in find_conflicts(uses)):
            continue
        for a in uses:
            if reduces_over(s, a.block, loop):
                return f"block {a.block.name!r} reduces over it"
        what = "write" if all(a.is_write for a in uses) else "read or write"
        return f"several iterations may {what} the same element of {buffer.name}"
    return None


def find_conflicts(uses: list[Access]) -> Iterator[tuple[Access, Access]]:
    """The pairs of accesses to a buffer, each with itself too, of which one writes. What a reduction reads is
    what it writes: that pair comes once."""
    for n, a in enumerate(uses):
        for b in uses[: n + 1]:
            if (a.is_write or b.is_write) and (a is b or a.region is not b.region or a.iters is not b.iters):
                yield a, b


def reduces_over(s: State, block: ir.Block, loop: ir.Var) -> bool:
    return loop in leaf_loops_by_kind(s, block)[1]


def is_private(s: State, loop: ir.Var, buffer: ir.Buffer, uses: list[Access]) -> bool:
    """Whether each iteration may have its own copy of a buffer: nothing outside of the loop touches it, and
    what is read has been written in the same iteration."""
    scope = s.scope(loop)
    if not any(b is buffer for b in (s.nodes[scope].allocs if scope else s.allocs)):
        return False  # no intermediate
    if not all(s.is_below(key, loop) for key in users(s, buffer)):
        return False
    for n, read in enumerate(uses):
        if read.is_write:
            # A reduction reads its own result, unless it begins within the iteration.
            block = read.block
            if not any(it.kind == "reduce" for it in block.iters):
                continue
            if block.init and leaf_loops_by_kind(s, block)[1].isdisjoint([*s.loops_around(loop), loop]):
                continue
        if not any(w.is_write and is_filled(s, w, read) for w in uses[:n]):
            return False
    return True


def is_filled(s: State, write: Access, read: Access) -> bool:
    """Whether what an instance reads has been written by an earlier block in the same iterations of the loops
    around both."""
    if write.block is read.block or s.children[write.block.name]:
        return False
    view = View(s, s.lowest_common_ancestor(write.block.name, read.block.name))
    region = stored_region(write.block, write.buffer)
    return region is not None and covers(view, make_access(write.block, region, True), read)


# --- kinds ----------------------------------------------------------------------------------------


@primitive("parallel")
class Parallel(Primitive):
    """Let iterations of a loop run on several threads.

    rewrite:   for i in range(n): S[i]  -->  for i in T.parallel(n): S[i]
    requires:  1. the loop has no other kind
               2. iterations do not depend on each other: elements that one writes, no other touches; an
                  intermediate that every iteration fills before it reads it is private to each
    """

    loop: LoopRV

    def check(self, s: State) -> ir.Var:
        loop = s.loop(self.loop)
        check_serial(loop)
        check_independent(s, loop)
        return loop.var

    def apply(self, s: State, plan: ir.Var) -> tuple[Any, ...]:
        s.update(plan, kind="parallel")
        return ()


@primitive("vectorize")
class Vectorize(Primitive):
    """Let iterations of a loop run as lanes of vectors.

    rewrite:   for i in range(8): S[i]  -->  for i in T.vectorized(8): S[i]
    requires:  1. the loop has no other kind
               2. its extent is a constant
               3. iterations do not depend on each other, or are terms of a reduction that commutes (sum,
                  prod, min, max and their tuples), which becomes a horizontal one
    """

    loop: LoopRV

    def check(self, s: State) -> ir.Var:
        loop = s.loop(self.loop)
        check_serial(loop)
        check_constant(s, loop)
        check_independent(s, loop, reductions=True)
        return loop.var

    def apply(self, s: State, plan: ir.Var) -> tuple[Any, ...]:
        s.update(plan, kind="vectorized")
        return ()


@primitive("unroll")
class Unroll(Primitive):
    """Write out the iterations of a loop one after the other.

    rewrite:   for i in range(4): S[i]  -->  for i in T.unrolled(4): S[i]
    requires:  1. the loop has no other kind
               2. its extent is a constant, at most 1024
    """

    loop: LoopRV

    def check(self, s: State) -> ir.Var:
        loop = s.loop(self.loop)
        check_serial(loop)
        extent = check_constant(s, loop)
        if extent > MOST_UNROLLED:
            raise ScheduleError(
                f"{extent} iterations are too many to write out",
                marks={loop.var: f"more than {MOST_UNROLLED} iterations"},
                help="split the loop and unroll the inner one",
            )
        return loop.var

    def apply(self, s: State, plan: ir.Var) -> tuple[Any, ...]:
        s.update(plan, kind="unrolled")
        return ()


@primitive("bind")
class Bind(Primitive):
    """Let the iterations of a loop be those of a GPU axis.

    rewrite:   for i in range(n): S[i]  -->  for i in T.bind(n, "blockIdx.x"): S[i]
    requires:  1. the axis is blockIdx, threadIdx or vthread, .x, .y or .z
               2. the loop has no other kind
               3. no loop around or inside it has the axis; other loops of the nest that have it have the same
                  extent
               4. iterations do not depend on each other, as for `parallel`; or they are threads and terms
                  of a reduction that commutes, which the threads then carry out together
    """

    loop: LoopRV
    axis: str

    def check(self, s: State) -> ir.Var:
        loop = s.loop(self.loop)
        if self.axis not in ir.GPU_AXES:
            raise ScheduleError(f"unknown axis {self.axis!r}", help=f"one of {', '.join(ir.GPU_AXES)}")
        check_serial(loop)
        self.check_axis(s, loop)
        check_independent(s, loop, reductions=self.axis.startswith("threadIdx"))
        return loop.var

    def check_axis(self, s: State, loop: ir.For) -> None:
        top: Key = loop.var
        for key in s.ancestors(loop.var):
            node = s.nodes[key]
            if isinstance(node, ir.For) and node.kind in ir.GPU_AXES:
                top = key
        for other in bound_loops(s, top):
            if other.kind != self.axis:
                continue
            if s.is_below(loop.var, other.var) or s.is_below(other.var, loop.var):
                raise ScheduleError(
                    f"{self.axis} is bound twice in one nest of loops",
                    marks={other.var: "bound already", loop.var: "to be bound"},
                    help="take another axis",
                )
            sizes = other.fixed_extent, loop.fixed_extent
            if sizes[0] != sizes[1] or None in sizes:
                raise ScheduleError(
                    f"{self.axis} would have two extents in one nest: {other.extent} and {loop.extent}",
                    marks={other.var: "bound already", loop.var: "to be bound"},
                    help="split both loops to the same extent first",
                )

    def apply(self, s: State, plan: ir.Var) -> tuple[Any, ...]:
        s.update(plan, kind=self.axis)
        return ()


def bound_loops(s: State, key: Key) -> list[ir.For]:
    """The loops at and below a node that have a GPU axis, also inside blocks."""
    node = s.nodes[key]
    found = [node] if isinstance(node, ir.For) and node.kind in ir.GPU_AXES else []
    for child in s.children[key]:
        found += bound_loops(s, child)
    return found


class KindSteps(Steps):
    def parallel(self, loop: LoopRV) -> None:
        """Let iterations of a loop run on several threads; see `Parallel`."""
        self.run(Parallel(loop))

    def vectorize(self, loop: LoopRV) -> None:
        """Let iterations of a loop run as lanes of vectors; see `Vectorize`."""
        self.run(Vectorize(loop))

    def unroll(self, loop: LoopRV) -> None:
        """Write out the iterations of a loop one after the other; see `Unroll`."""
        self.run(Unroll(loop))

    def bind(self, loop: LoopRV, axis: str) -> None:
        """Let the iterations of a loop be those of a GPU axis; see `Bind`."""
        self.run(Bind(loop, axis))
