"""Primitives for how loops are carried out: parallel, vectorize, unroll, bind; annotations.

A kind never changes what a loop means, only how it may run. So a loop that runs iterations together or in any
order must have iterations that do not depend on each other (`analysis.dependence.loop_carried_dependence`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...codegen.lower.model import MOST_UNROLLED
from ...errors import ScheduleError
from ...ir import GPU_AXES, Block, For, Var
from ...ir.annotations import annotation_problem
from ...validation import HIGH, LOW, shown
from ..analysis.dependence import loop_carried_dependence
from ..state import Key, State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive

MOST_NESTED = 8  # tuples in tuples, of an annotation


def check_serial(loop: For) -> None:
    if loop.kind != "serial":
        raise ScheduleError(
            f"the loop over {loop.var.name} is {loop.kind} already",
            marks={loop.var: loop.kind},
            help="a loop has one kind: split it to have two",
        )


def check_constant(s: State, loop: For) -> int:
    extent = s.fixed_extent(loop.var)
    if extent is None:
        raise ScheduleError(
            f"the extent of the loop over {loop.var.name} is not a constant",
            marks={loop.var: "its extent is an expression"},
            help="split it and take the inner loop",
        )
    return extent


def check_independent(s: State, loop: For, reductions: bool = False) -> None:
    why = loop_carried_dependence(s, loop.var, reductions)
    if why:
        raise ScheduleError(
            f"iterations of the loop over {loop.var.name} may depend on each other: {why}",
            marks={loop.var: "its iterations must be independent"},
            help="take a loop of a spatial iterator; rfactor makes one of a reduction",
        )


@primitive("parallel")
class Parallel(Primitive):
    """Let iterations of a loop run on several threads.

    rewrite:   for i in range(n): S[i]  -->  for i in T.parallel(n): S[i]
    requires:  1. the loop has no other kind
               2. iterations do not depend on each other: elements that one writes, no other touches; an
                  intermediate that every iteration fills before it reads it is private to each
    """

    loop: LoopRV

    def check(self, s: State) -> Var:
        loop = s.loop(self.loop)
        check_serial(loop)
        check_independent(s, loop)
        return loop.var

    def apply(self, s: State, plan: Var) -> tuple[Any, ...]:
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

    def check(self, s: State) -> Var:
        loop = s.loop(self.loop)
        check_serial(loop)
        check_constant(s, loop)
        check_independent(s, loop, reductions=True)
        return loop.var

    def apply(self, s: State, plan: Var) -> tuple[Any, ...]:
        s.update(plan, kind="vectorized")
        return ()


@primitive("unroll")
class Unroll(Primitive):
    """Write out the iterations of a loop one after the other.

    rewrite:   for i in range(4): S[i]  -->  for i in T.unroll(4): S[i]
    requires:  1. the loop has no other kind
               2. its extent is a constant, at most 1024
    """

    loop: LoopRV

    def check(self, s: State) -> Var:
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

    def apply(self, s: State, plan: Var) -> tuple[Any, ...]:
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
               4. iterations do not depend on each other, as for `parallel`
    """

    loop: LoopRV
    axis: str

    def check(self, s: State) -> Var:
        loop = s.loop(self.loop)
        if self.axis not in GPU_AXES:
            raise ScheduleError(f"unknown axis {self.axis!r}", help=f"one of {', '.join(GPU_AXES)}")
        check_serial(loop)
        self.check_axis(s, loop)
        check_independent(s, loop)
        return loop.var

    def check_axis(self, s: State, loop: For) -> None:
        top: Key = loop.var
        for key in s.ancestors(loop.var):
            node = s.nodes[key]
            if isinstance(node, For) and node.kind in GPU_AXES:
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

    def apply(self, s: State, plan: Var) -> tuple[Any, ...]:
        s.update(plan, kind=self.axis)
        return ()


def bound_loops(s: State, key: Key) -> list[For]:
    """The loops at and below a node that have a GPU axis, also inside blocks."""
    node = s.nodes[key]
    found = [node] if isinstance(node, For) and node.kind in GPU_AXES else []
    for child in s.children[key]:
        found += bound_loops(s, child)
    return found


# --- annotations ----------------------------------------------------------------------------------


@primitive("annotate")
class Annotate(Primitive):
    """Note something on a block or loop, for modules, lowering or people.

    rewrite:   for i in range(n): S[i]  -->  for i in T.serial(n, annotations={"key": value}): S[i]
    requires:  1. the key is a name that is not empty
               2. the value is a string, a finite number, a bool, None, a drawn value, or a tuple of such
               3. a key that has a meaning (`ir/annotations.py`) has a value of its type
               4. the key has not been noted with another value
    """

    target: BlockRV | LoopRV
    key: str
    value: Any

    def check(self, s: State) -> tuple[Key, dict[str, Any]]:
        key, node = target_of(s, self.target)
        if not self.key:
            raise ScheduleError("the key of an annotation is empty")
        value = plain(s, self.value)
        why = annotation_problem(self.key, value)
        if why:
            raise ScheduleError(
                f"{self.key!r} {why}",
                marks={key: "to be annotated"},
                help="other keys are free to hold what you like",
            )
        notes = node.annotations
        if self.key in notes and not same_value(notes[self.key], value):
            raise ScheduleError(
                f"{self.key!r} is noted already, as {notes[self.key]!r}",
                marks={key: "annotated"},
                help="unannotate first",
            )
        return key, {**notes, self.key: value}

    def apply(self, s: State, plan: tuple[Key, dict[str, Any]]) -> tuple[Any, ...]:
        key, notes = plan
        s.update(key, annotations=notes)
        return ()


@primitive("unannotate")
class Unannotate(Primitive):
    """Take a note away; nothing happens if it is not there.

    rewrite:   for i in T.serial(n, annotations={"key": value}): S[i]  -->  for i in range(n): S[i]
    """

    target: BlockRV | LoopRV
    key: str

    def check(self, s: State) -> tuple[Key, dict[str, Any]]:
        key, node = target_of(s, self.target)
        return key, {k: v for k, v in node.annotations.items() if k != self.key}

    def apply(self, s: State, plan: tuple[Key, dict[str, Any]]) -> tuple[Any, ...]:
        key, notes = plan
        s.update(key, annotations=notes)
        return ()


def target_of(s: State, target: BlockRV | LoopRV) -> tuple[Key, Block | For]:
    if isinstance(target, BlockRV):
        block = s.block(target)
        return block.name, block
    loop = s.loop(target)
    return loop.var, loop


def plain(s: State, value: Any, depth: int = 0) -> Any:
    """A value as data that prints and goes through JSON."""
    if isinstance(value, ExprRV):
        return s.value(value)
    if isinstance(value, (tuple, list)) and depth < MOST_NESTED:
        return tuple([plain(s, v, depth + 1) for v in value])
    if value is None or type(value) in (str, bool) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is int and LOW <= value <= HIGH:
        return value
    raise ScheduleError(
        f"an annotation cannot hold {shown(value)}",
        help="use strings, finite numbers, bools, None, and tuples of them",
    )


def same_value(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)  # unlike ==, tells 1 from True and 1.0


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

    def annotate(self, target: BlockRV | LoopRV, key: str, value: Any) -> None:
        """Note something on a block or loop; see `Annotate`. A list becomes a tuple."""
        self.run(Annotate(target, key, as_operand(value)))

    def unannotate(self, target: BlockRV | LoopRV, key: str) -> None:
        """Take a note away; see `Unannotate`."""
        self.run(Unannotate(target, key))


def as_operand(value: Any, depth: int = 0) -> Any:
    """The value of an annotation with tuples for lists, and plain numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)) and depth < MOST_NESTED:
        return tuple([as_operand(v, depth + 1) for v in value])
    if value is not None and not isinstance(value, (str, bool, int, float, ExprRV)):
        raise TypeError(
            "annotate: value must be a string, number, bool, None, drawn value, or a tuple of such, "
            f"got {shown(value)}"
        )
    return value
