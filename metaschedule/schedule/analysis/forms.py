"""What linear forms of indices say about the iterations of a loop that touch the same elements.

A `Form` is an index as a sum of the *moving* loop (or its digits, if it was made by fuse), what stands
*fixed* around it, and what ranges *inside*. An index that is not linear in this way has no form (None),
which proves nothing.

A fused loop may have been split again by more than its rows: the moving loop is then a digit of the fused
one, and no digit of it is the row or the column. These are unknowns of their own: where both must agree, the
fused loop does, and so do its digits (`tell`).

    fuse(6, 10), split by 16:  f = f0 * 16 + f1,  x[f // 10, f % 10]
    equal elements: equal f // 10 and f % 10, so equal f, so equal f1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir import Var

# (stride, extent): the part (v // stride) % extent of the moving loop v; (variable, extent): a variable that
# the moving loop drives together with others.
Digit = tuple[int | Var, float]


class Form:
    """`sum(moving) + sum(fixed) + sum(inner) + base`, the inner variables ranging over their extents."""

    __slots__ = ("base", "extents", "fixed", "high", "inner", "low", "moving")

    def __init__(self, base: int) -> None:
        self.moving: dict[Digit, int] = {}
        self.fixed: dict[Any, int] = {}
        self.inner: dict[Var, int] = {}
        self.extents: dict[Var, int] = {}  # of the inner variables
        self.base = self.low = self.high = base  # least and greatest of inner + base

    def add_inner(self, var: Var, scale: int, extent: int) -> None:
        self.inner[var] = self.inner.get(var, 0) + scale
        self.extents[var] = extent
        reach = scale * max(extent - 1, 0)
        if reach < 0:
            self.low += reach
        else:
            self.high += reach

    def add_fixed(self, key: Any, scale: int) -> None:
        add_term(self.fixed, key, scale)

    def add_moving(self, digit: Digit, scale: int) -> None:
        add_term(self.moving, digit, scale)

    def widened(self, count: int) -> Form:
        """The form of `count` values from each on."""
        new = Form(self.base)
        new.moving, new.fixed, new.low, new.high = self.moving, self.fixed, self.low, self.high
        new.inner, new.extents = self.inner.copy(), self.extents.copy()
        new.add_inner(Var("w"), 1, count)
        return new


def add_term(terms: dict[Any, int], key: Any, scale: int) -> None:
    total = terms.get(key, 0) + scale
    if total:
        terms[key] = total
    else:
        terms.pop(key, None)


def digits_in_common(forms: Sequence[Form], known: set[Digit]) -> set[Digit]:
    """The digits of the moving loop that must be equal wherever two of the forms are."""
    first = forms[0]
    if not first.moving:
        return set()
    low, high = first.low, first.high
    for f in forms[1:]:
        if f.moving != first.moving or f.fixed != first.fixed:
            return set()
        low, high = min(low, f.low), max(high, f.high)
    moving = [(abs(c), d) for d, c in first.moving.items() if d not in known]
    moving.sort(key=by_scale, reverse=True)
    found = leading(moving, high - low)
    if len(found) < len(moving):
        found |= leading(moving, remainder_spread(forms, moving))
    return found


def by_scale(term: tuple[int, Digit]) -> tuple[int, float]:
    return term[0], term[1][1]


def leading(moving: list[tuple[int, Digit]], spread: float) -> set[Digit]:
    """The digits, largest scale first, that outweigh everything below them."""
    found: set[Digit] = set()
    for at, (c, digit) in enumerate(moving):
        if c <= spread + sum(below * (d[1] - 1) for below, d in moving[at + 1 :]):
            break
        found.add(digit)
    return found


def remainder_spread(forms: Sequence[Form], moving: list[tuple[int, Digit]]) -> float:
    """How far forms can be apart when inner variables of larger scale must agree: their scales are multiples
    of a number that the rest does not reach."""
    top = moving[0][0]
    large = [c for f in forms for c in f.inner.values() if abs(c) > top]
    if not large:
        return math.inf
    low, high = math.inf, -math.inf
    for f in forms:
        reaches = [c * max(f.extents[v] - 1, 0) for v, c in f.inner.items() if abs(c) <= top]
        low = min(low, f.base + sum(r for r in reaches if r < 0))
        high = max(high, f.base + sum(r for r in reaches if r > 0))
    spread = high - low
    total = spread + sum(c * (d[1] - 1) for c, d in moving)
    return spread if total < math.gcd(*large) else math.inf


def fixes_loop(digits: set[Digit], extent: int | None) -> bool:
    """Whether equal digits mean equal iterations of a loop."""
    own = [(stride, n) for stride, n in digits if type(stride) is int]
    if any(stride == 1 and (n == math.inf or n == extent) for stride, n in own):
        return True
    if extent is None:
        return False
    covered: float = 1
    for stride, n in sorted(own):
        if stride == covered:
            covered *= n
    return covered >= extent


def same_iteration(rows: list[list[Form | None]], extent: int | None) -> bool:
    """Whether accesses that meet in an element are of one iteration. `rows`: the forms of each access."""
    return fixes_loop(same_digits(rows, extent), extent)


def same_digits(rows: list[list[Form | None]], extent: int | None) -> set[Digit]:
    """Digits that are equal for accesses that meet in an element: all that are seen to be, or as many as tell
    the iteration."""
    known: set[Digit] = set()
    columns = [column for column in zip(*rows, strict=True) if None not in column]
    for _ in columns:  # what one dimension tells may help another
        before = len(known)
        for column in columns:
            known |= digits_in_common(column, known)
        if len(known) == before or fixes_loop(known, extent):
            break
    return known


def never_ahead(first: list[Form | None], second: list[Form | None], extent: int | None) -> bool:
    """Whether what `first` touches in a later iteration is certainly not what `second` touches in an earlier
    one: along some dimension, `first` moves away from it."""
    for a, b in zip(first, second, strict=True):
        if a is None or b is None or a.moving != b.moving or a.fixed != b.fixed or len(a.moving) != 1:
            continue
        digit, scale = next(iter(a.moving.items()))
        ahead = scale + a.low - b.high > 0 if scale > 0 else scale + a.high - b.low < 0
        if ahead and fixes_loop({digit}, extent):
            return True
    return False


def are_apart(first: list[Form | None], second: list[Form | None]) -> bool:
    """Whether two accesses share no element in any iterations: along some dimension, one ends before the
    other begins."""
    for a, b in zip(first, second, strict=True):
        if a is not None and b is not None and a.fixed == b.fixed:
            (low, high), (other_low, other_high) = span(a), span(b)
            if high < other_low or other_high < low:
                return True
    return False


def span(form: Form) -> tuple[float, float]:
    """Least and greatest value over all iterations, but for what is fixed."""
    low, high = float(form.low), float(form.high)
    for (_, extent), scale in form.moving.items():
        reach = scale * max(extent - 1, 0)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high
