"""Primitives for notes on blocks and loops: annotate, unannotate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ScheduleError
from ...ir import Block, For
from ...ir.annotations import annotation_problem
from ...validation import HIGH, LOW, describe_value
from ..state import Key, State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive

MOST_NESTED = 8  # tuples in tuples, of an annotation


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
        return plain(s, s.value(value), depth)
    if isinstance(value, (tuple, list)) and depth < MOST_NESTED:
        return tuple([plain(s, v, depth + 1) for v in value])
    if value is None or type(value) in (str, bool) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is int and LOW <= value <= HIGH:
        return value
    raise ScheduleError(
        f"an annotation cannot hold {describe_value(value)}",
        help="use strings, finite numbers, bools, None, and tuples of them",
    )


def same_value(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)  # unlike ==, tells 1 from True and 1.0


class AnnotationSteps(Steps):
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
            f"got {describe_value(value)}"
        )
    return value
