"""Indices as linear forms, seen from one loop.

`Forms` sorts the variables of an index into the *moving* loop (or its digits, if it was made by fuse), what
stands *fixed* around it, and what ranges *inside*; each index is then a sum of the three. Definitions are
used as they are (a split variable is a number with digits, a fused loop has parts), so nothing is simplified
and a form costs microseconds. An index that is not linear in this way has no form (None), which proves
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir import Binary, Const, Expr, Region, Var, as_int, expr_key
from ..state import Part, Split, State

Digit = tuple[int, float]  # (stride, extent): the part (v // stride) % extent of a loop v


@dataclass(slots=True)
class Form:
    """`sum(moving) + sum(fixed) + sum(inner) + base`, the inner variables ranging over their extents."""

    moving: dict[Digit, int] = field(default_factory=dict)
    fixed: dict[Any, int] = field(default_factory=dict)
    inner: dict[Var, int] = field(default_factory=dict)
    extents: dict[Var, int] = field(default_factory=dict)  # of the inner variables
    base: int = 0
    low: int = 0  # least and greatest of inner + base
    high: int = 0

    def add_inner(self, var: Var, scale: int, extent: int) -> None:
        self.inner[var] = self.inner.get(var, 0) + scale
        self.extents[var] = extent
        reach = scale * max(extent - 1, 0)
        self.low += min(reach, 0)
        self.high += max(reach, 0)


class Forms:
    """Makes forms. `moving` is a loop, `inner` are the loops that range while it stands still."""

    def __init__(self, s: State, moving: Var | None, inner: Iterable[Var]) -> None:
        self.s = s
        self.moving = moving
        self.inner = set(inner)

    def region(self, region: Region, values: Mapping[Var, Expr]) -> list[Form | None]:
        """A form for each dimension; `values` are the bindings of the block's iterators."""
        found: list[Form | None] = []
        for start, extent in region.ranges:
            form, count = self.expr(start, values), as_int(extent)
            if form is not None and count != 1:
                if count is None:
                    form = None
                else:
                    form.add_inner(Var("w"), 1, count)
            found.append(form)
        return found

    def expr(self, e: Expr, values: Mapping[Var, Expr] = {}) -> Form | None:
        form = Form()
        return form if self.add(form, e, 1, values) else None

    def add(self, form: Form, e: Expr, scale: int, values: Mapping[Var, Expr]) -> bool:
        """Add `scale * e`; False if it is not linear."""
        if isinstance(e, Var):
            value = values.get(e)
            return self.add_var(form, e, scale) if value is None else self.add(form, value, scale, {})
        if isinstance(e, Const):
            if type(e.value) is not int:
                return False
            form.base += scale * e.value
            form.low += scale * e.value
            form.high += scale * e.value
            return True
        if isinstance(e, Binary):
            if e.op in ("+", "-"):
                sign = scale if e.op == "+" else -scale
                return self.add(form, e.a, scale, values) and self.add(form, e.b, sign, values)
            if e.op == "*":
                for a, b in ((e.a, e.b), (e.b, e.a)):
                    factor = as_int(b)
                    if factor is not None:
                        return not factor or self.add(form, a, scale * factor, values)
            return not values and self.add_fixed(form, e, scale)
        return False

    def add_fixed(self, form: Form, e: Binary, scale: int) -> bool:
        """A quotient or another operation of variables that stand still."""
        whole = self.s.resolve(e)
        stack: list[Expr] = [whole]
        while stack:
            x = stack.pop()
            if type(x) is Binary:
                stack += (x.a, x.b)
            elif type(x) is Var:
                if x is self.moving or x in self.inner:
                    return False
            elif type(x) is not Const:
                return False
        add_term(form.fixed, expr_key(whole), scale)
        return True

    def add_var(self, form: Form, var: Var, scale: int) -> bool:
        s = self.s
        if var is self.moving:
            extent = s.fixed_extent(var)
            add_term(form.moving, (1, math.inf if extent is None else extent), scale)
            return True
        if var in s.extents and s.fixed_extent(var) == 1:
            return True  # it is 0
        if var in self.inner:
            return self.add_range(form, var, scale)
        known = s.definitions.get(var)
        if known is None:
            add_term(form.fixed, var, scale)
            return True
        leaves = set(s.leaves(var))
        if leaves <= self.inner:
            return self.add_range(form, var, scale)
        if isinstance(known, Split):
            for digit in reversed(known.digits):
                if not self.add_var(form, digit, scale):
                    return False
                extent = s.fixed_extent(digit)
                if extent is None and digit is not known.digits[0]:
                    return False
                scale *= extent or 0
            return True
        if self.moving is not None and alias(s, known.whole) is self.moving:
            stride, extent = stride_of(s, known), s.fixed_extent(var)
            if stride is None or extent is None:
                return False
            add_term(form.moving, (stride, extent), scale)
            return True
        if self.moving in leaves or not leaves.isdisjoint(self.inner):
            return False
        add_term(form.fixed, expr_key(s.resolve(var)), scale)
        return True

    def add_range(self, form: Form, var: Var, scale: int) -> bool:
        # Whatever it was made of, a variable takes each value below its extent: a split is guarded.
        extent = self.s.fixed_extent(var)
        if extent is None:
            return False
        form.add_inner(var, scale, extent)
        return True


def add_term(terms: dict[Any, int], key: Any, scale: int) -> None:
    total = terms.get(key, 0) + scale
    if total:
        terms[key] = total
    else:
        terms.pop(key, None)


def alias(s: State, var: Var) -> Var:
    """The loop that a variable is another name for (merged, or split into one), else itself."""
    known = s.definitions.get(var)
    while isinstance(known, Split) and len(known.digits) == 1:
        var = known.digits[0]
        known = s.definitions.get(var)
    return var


def stride_of(s: State, part: Part) -> int | None:
    extents = [s.fixed_extent(d) for d in part.digits[part.index + 1 :]]
    return None if None in extents else math.prod(n for n in extents if n is not None)


# --- what equal elements say about the moving loop ------------------------------------------------


def digits_in_common(forms: list[Form], known: set[Digit]) -> set[Digit]:
    """The digits of the moving loop that must be equal wherever two of the forms are."""
    first = forms[0]
    if not first.moving or any(f.moving != first.moving or f.fixed != first.fixed for f in forms):
        return set()
    moving = sorted(
        ((abs(c), d) for d, c in first.moving.items() if d not in known), key=lambda x: x[0], reverse=True
    )
    spread = max(f.high for f in forms) - min(f.low for f in forms)
    found = leading(moving, spread)
    if moving and len(found) < len(moving):
        found |= leading(moving, remainder_spread(forms, moving))
    return found


def leading(moving: list[tuple[int, Digit]], spread: float) -> set[Digit]:
    """The digits, largest scale first, that outweigh everything below them."""
    found: set[Digit] = set()
    for at, (c, digit) in enumerate(moving):
        if c <= spread + sum(below * (d[1] - 1) for below, d in moving[at + 1 :]):
            break
        found.add(digit)
    return found


def remainder_spread(forms: list[Form], moving: list[tuple[int, Digit]]) -> float:
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
    if any(stride == 1 and (n == math.inf or n == extent) for stride, n in digits):
        return True
    if extent is None:
        return False
    covered: float = 1
    for stride, n in sorted(digits):
        if stride == covered:
            covered *= n
    return covered >= extent


def same_iteration(rows: list[list[Form | None]], extent: int | None) -> bool:
    """Whether accesses that meet in an element are of one iteration. `rows`: the forms of each access."""
    known: set[Digit] = set()
    columns = [list(column) for column in zip(*rows, strict=True)]
    for _ in columns:  # what one dimension tells may help another
        before = len(known)
        for column in columns:
            forms = [f for f in column if f is not None]
            if len(forms) == len(column):
                known |= digits_in_common(forms, known)
        if fixes_loop(known, extent):
            return True
        if len(known) == before:
            break
    return False


def never_ahead(first: list[Form | None], second: list[Form | None], extent: int | None) -> bool:
    """Whether what `first` touches in a later iteration is certainly not what `second` touches in an earlier
    one: along some dimension, `first` moves away from it."""
    for a, b in zip(first, second, strict=True):
        if a is None or b is None or a.moving != b.moving or a.fixed != b.fixed or len(a.moving) != 1:
            continue
        digit, scale = next(iter(a.moving.items()))
        ahead = scale + a.low - b.high > 0 if scale > 0 else scale + a.high - b.low < 0
        if ahead and digit[0] == 1 and digit[1] in (math.inf, extent):
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
