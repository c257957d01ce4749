"""`Constraint`: a condition as a sum that lies between bounds. The one reader of `x < c`.

i * 2 + 3 < 9              2 * i <= 5
0 <= i and i < n           i >= 0;  i - n <= -1
i // 4 == 2                1 * (i // 4) between 2 and 2
i != 3, i < 3 or j < 3     nothing that is one sum: None

`bound_of` is the same for those who cut tiles by it: a value that stops before a limit, or starts there.

i0 * 6 + i1 < 128          i0 * 6 + i1 stops before 128
2 - i <= 0                 i starts at 2
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from .. import ir
from ..arith import conjuncts
from .form import Form, form_of, sum_of


class Constraint(NamedTuple):
    """`low <= sum of terms <= high`; infinities for no bound. The constant is in the bounds."""

    form: Form
    low: float
    high: float


class Bound(NamedTuple):
    """`value < limit` or, where it is the least that the value may be, `value >= limit`."""

    value: ir.Expr
    limit: int
    is_least: bool


BOUNDS: dict[str, tuple[float, float]] = {  # of a - b, where the comparison holds
    "<": (-math.inf, -1),
    "<=": (-math.inf, 0),
    ">": (1, math.inf),
    ">=": (0, math.inf),
    "==": (0, 0),
}


@lru_cache(maxsize=8192)
def constraints_of(test: ir.Expr) -> tuple[Constraint, ...] | None:
    """What a condition says, as sums that must all lie between bounds; None if there is more to it."""
    if isinstance(test, ir.Const):
        return (Constraint(Form((), 0), 0 if test.value else 1, math.inf),)
    if not isinstance(test, ir.Binary):
        return None
    if test.op == "and":
        a, b = constraints_of(test.a), constraints_of(test.b)
        return None if a is None or b is None else a + b
    if test.op not in BOUNDS or test.a.dtype != "int64":
        return None
    terms: dict[ir.Expr, int] = {}
    a, b = form_of(test.a), form_of(test.b)
    for form, sign in ((a, 1), (b, -1)):
        for x, c in form.terms:
            terms[x] = terms.get(x, 0) + sign * c
    low, high = BOUNDS[test.op]
    const = a.const - b.const
    form = Form(tuple([(x, c) for x, c in terms.items() if c]), 0)
    return (Constraint(form, low - const, high - const),)


@lru_cache(maxsize=8192)
def bound_of(test: ir.Expr) -> Bound | None:
    """What a comparison says of one value, if it bounds it from one side; None if it does not. A value is a
    sum without a constant, as it is written if it is written so."""
    found = constraints_of(test)
    if not isinstance(test, ir.Binary) or found is None or len(found) != 1:
        return None
    form, low, high = found[0]
    if not form.terms or (low == -math.inf) == (high == math.inf):
        return None
    if all(factor < 0 for _, factor in form.terms):
        form, low, high = Form(tuple([(x, -factor) for x, factor in form.terms]), 0), -high, -low
    written = form_of(test.a)
    value = test.a if not written.const and dict(written.terms) == dict(form.terms) else sum_of(form)
    return Bound(value, int(low), True) if high == math.inf else Bound(value, int(high) + 1, False)


@lru_cache(maxsize=4096)
def upper_limits(predicate: tuple[ir.Expr, ...]) -> dict[ir.Var, int]:
    """What conditions say that single variables, none of which is ever negative, are less than: i < 6 of i,
    and 2 * i + 3 * j < 8 that i < 4 and j < 3."""
    found: dict[ir.Var, int] = {}
    for (terms, _), _, high in all_constraints(predicate):
        if high == math.inf or any(type(x) is not ir.Var or factor < 0 for x, factor in terms):
            continue
        for x, factor in terms:
            assert type(x) is ir.Var
            limit = int(high) // factor + 1
            found[x] = min(found.get(x, limit), limit)
    return found


def remainders(condition: ir.Expr) -> list[tuple[ir.Expr, int, int]]:
    """(e, n, r) of each conjunct `e % n == r`: what holds once in n times."""
    found: list[tuple[ir.Expr, int, int]] = []
    for (terms, _), low, high in all_constraints(conjuncts(condition)):
        if low == high and len(terms) == 1:
            ((e, factor),) = terms
            if isinstance(e, ir.Binary) and e.op == "%" and factor == 1 and (size := ir.as_int(e.b) or 0) > 0:
                found.append((e.a, size, int(low)))
    return found


def all_constraints(tests: Iterable[ir.Expr]) -> list[Constraint]:
    """What conditions say together, as far as it is sums between bounds."""
    return [c for test in tests for c in constraints_of(test) or ()]
