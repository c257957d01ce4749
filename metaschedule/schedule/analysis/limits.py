"""Sizes that index arithmetic can hold, as it has 64 bits and wraps without a word; and how large expressions
may grow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ... import ir
from ...errors import ScheduleError
from ...validation import HIGH
from ..state import Key, State

LARGEST_ELEMENT = 8  # bytes
MOST_NODES = 1 << 16  # of a block's expressions: y = x + x, inlined n times, is 2**n of them


def check_count(count: int, what: str, marks: Mapping[Any, str]) -> None:
    """Refuse what 63 bits cannot count."""
    if count > HIGH:
        raise ScheduleError(
            f"{what} would be about 2**{count.bit_length() - 1}: index arithmetic has 63 bits", marks=marks
        )


def check_elements(extents: Iterable[int], what: str, marks: Mapping[Any, str]) -> None:
    """Refuse a buffer whose bytes 63 bits cannot count."""
    count = math.prod(max(1, n) for n in extents)
    check_count(count * LARGEST_ELEMENT, f"the bytes of {what}", marks)


def check_inlined(buffer: ir.Buffer, value: ir.Expr, body: ir.Body, marks: Mapping[Any, str]) -> None:
    """Refuse to put `value` wherever `body` reads `buffer` if that becomes too large or too deep."""
    around = list(ir.expressions(body))
    reads = sum([type(e) is ir.Load and e.buffer is buffer for e in around])
    size = sum([1 for _ in ir.subexpressions(value)])
    if size * reads > MOST_NODES:
        raise ScheduleError(f"the expressions would have more than {MOST_NODES} parts", marks)
    if size + len(around) > ir.MOST_DEPTH:  # else they cannot be that deep
        deepest = max(ir.height(e) for s in ir.walk(body) for e in ir.own_expressions(s))
        if deepest + ir.height(value) > ir.MOST_DEPTH:
            raise ScheduleError(f"expressions would be more than {ir.MOST_DEPTH} inside each other", marks)


def check_nest(s: State, loop: ir.Var, iterations: int) -> None:
    """Refuse a loop of more iterations than it had where all loops of its nest together run too often.

    A number whose digits are loops is at most the product of their extents, so then no index wraps, also if
    digits have been split so that they overhang: i = i_0 * 4 + i_1, i_0 = j_0 * 2**61 + j_1 does wrap.
    """
    around = math.prod(s.fixed_extent(v) or 1 for v in s.loops_around(loop))
    check_count(
        around * iterations * deepest(s, loop),
        f"the iterations of the loop over {loop.name} and those around and inside it",
        {loop: f"{iterations} iterations"},
    )


def deepest(s: State, key: Key) -> int:
    """The most iterations that the loops inside a node have together."""
    most = 1
    for child in s.children[key]:
        own = (s.fixed_extent(child) or 1) if isinstance(child, ir.Var) else 1
        most = max(most, own * deepest(s, child))
    return most
