"""Quasi-affine iterator maps: what bindings do to the points of a loop nest.

Read `iteration_map` and `IterationMap` first. Loop variables are rewritten until every binding
is a sum of *digits*, scale * ((source // lower) % extent): loops that are divided as a sum
(fused, then split) are replaced by one variable that counts that sum. Digits of one source that
cover all its divisors are independent, so that values tell the loops as numbers tell their digits.

Refuses (None): products of variables, loads, quotients of sums that skip or repeat values,
divisors of one loop that do not divide each other. Answers of an `IterationMap` are True only if
certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir import Expr, Var
from .bounds import both
from .digits import Digit, IterSum, Loops
from .express import TooLarge
from .polynomial import Poly


@dataclass(eq=False)
class IterationMap:
    """Bindings as sums of digits of the loops.

    `ranges` are first and last value of each binding, a box that all values lie in. `injective`:
    distinct loop points certainly give distinct binding tuples.
    `surjective`: every point of the box is certainly reached.
    """

    bindings: tuple[IterSum, ...]
    ranges: tuple[tuple[int, int], ...]
    injective: bool
    surjective: bool
    loops: Loops
    order: tuple[tuple[int, tuple[tuple[int, Digit], ...]], ...]  # which binding gives which digits

    def solve(self, values: Sequence[Expr]) -> dict[Var, Expr]:
        """The loop variables, given the values of the bindings (of an injective map)."""
        if not self.injective:
            raise ValueError("the map is not known to be injective")
        known: dict[Digit, Expr] = {}
        for at, fresh in self.order:
            rest = values[at] - self.bindings[at].base
            for c, digit in self.bindings[at].terms:
                if digit in known:
                    rest = rest - known[digit] * c
            # A negative digit counts down from its end.
            for c, digit in fresh:
                rest = rest - c * (digit.extent - 1) if c < 0 else rest
            for c, digit in fresh:  # largest scale first: what is left is smaller than the scale
                value = rest // abs(c)
                rest = rest % abs(c)
                known[digit] = value if c > 0 else digit.extent - 1 - value
        return self.loops.solve(known)


def iteration_map(bindings: Sequence[Expr], extents: Mapping[Var, int]) -> IterationMap | None:
    """How `bindings` map the points of the loops `extents`.

    >>> i, j = Var("i"), Var("j")
    >>> iteration_map([i * 4 + j], {i: 8, j: 4}).surjective
    True
    >>> iteration_map([i * 3 + j], {i: 8, j: 4}).injective
    False
    """
    try:
        loops = Loops(bindings, extents)
    except TooLarge:
        return None
    if loops.empty:
        nothing = tuple([IterSum((), 0) for _ in bindings])
        return IterationMap(nothing, ((0, -1),) * len(bindings), True, False, loops, ())
    sums = loops.sums()
    if sums is None:
        return None
    digits = [d for found in loops.digits.values() for d in found if d.extent > 1]
    order = decode(sums, digits)
    ranges = tuple([span(s, p, loops) for s, p in zip(sums, loops.bindings, strict=True)])
    injective = order is not None
    # As many points as the box has: a map into it that never repeats reaches all.
    box = math.prod([last - first + 1 for first, last in ranges])
    full = injective and box == math.prod(loops.extents.values())
    return IterationMap(tuple(sums), ranges, injective, full, loops, tuple(order or ()))


def decode(
    sums: Sequence[IterSum], digits: Sequence[Digit]
) -> list[tuple[int, tuple[tuple[int, Digit], ...]]] | None:
    """An order of bindings in which each determines new digits, until all are known."""
    known: set[Digit] = set()
    order: list[tuple[int, tuple[tuple[int, Digit], ...]]] = []
    waiting = list(range(len(sums)))
    while waiting:
        progress = False
        for at in list(waiting):
            fresh = [(c, d) for c, d in sums[at].terms if d not in known]
            fresh.sort(key=lambda term: abs(term[0]))
            reach = 0
            for c, d in fresh:
                if abs(c) <= reach:
                    break
                reach += abs(c) * (d.extent - 1)
            else:
                waiting.remove(at)
                progress = True
                if fresh:
                    order.append((at, tuple(reversed(fresh))))
                    known.update(d for _, d in fresh)
        if not progress:
            break
    return order if all(d in known for d in digits) else None


def span(s: IterSum, p: Poly, loops: Loops) -> tuple[int, int]:
    """First and last value: that of the digits, or tighter if they are not independent."""
    first = s.base + sum([c * (d.extent - 1) for c, d in s.terms if c < 0])
    last = s.base + sum([c * (d.extent - 1) for c, d in s.terms if c > 0])
    if not any(d in loops.dependent for _, d in s.terms):
        return first, last
    low, high = both(p, loops.domain)
    return (
        first if low is None else max(first, low),
        last if high is None else min(last, high),
    )
