"""`Constraint`: a condition as a sum that lies between bounds. The one reader of `x < c`.

i * 2 + 3 < 9              2 * i <= 5
0 <= i and i < n           i >= 0;  i - n <= -1
i // 4 == 2                1 * (i // 4) between 2 and 2
i != 3, i < 3 or j < 3     nothing that is one sum: None
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ..ir import Binary, Const, Expr, Var
from .form import Form, form_of


class Constraint(NamedTuple):
    """`low <= sum of terms <= high`; infinities for no bound. The constant is in the bounds."""

    form: Form
    low: float
    high: float

    @property
    def upper_limit(self) -> tuple[Var, int] | None:
        """(x, c) if this says `x < c` of a variable and no more."""
        if self.low != -math.inf or len(self.form.terms) != 1:
            return None
        ((x, factor),) = self.form.terms
        return (x, int(self.high) + 1) if factor == 1 and type(x) is Var else None


BOUNDS: dict[str, tuple[float, float]] = {  # of a - b, where the comparison holds
    "<": (-math.inf, -1),
    "<=": (-math.inf, 0),
    ">": (1, math.inf),
    ">=": (0, math.inf),
    "==": (0, 0),
}


@lru_cache(maxsize=8192)
def constraints_of(test: Expr) -> tuple[Constraint, ...] | None:
    """What a condition says, as sums that must all lie between bounds; None if there is more to it."""
    if isinstance(test, Const):
        return (Constraint(Form((), 0), 0 if test.value else 1, math.inf),)
    if not isinstance(test, Binary):
        return None
    if test.op == "and":
        a, b = constraints_of(test.a), constraints_of(test.b)
        return None if a is None or b is None else a + b
    if test.op not in BOUNDS or test.a.dtype != "int64":
        return None
    terms: dict[Expr, int] = {}
    a, b = form_of(test.a), form_of(test.b)
    for form, sign in ((a, 1), (b, -1)):
        for x, c in form.terms:
            terms[x] = terms.get(x, 0) + sign * c
    low, high = BOUNDS[test.op]
    const = a.const - b.const
    form = Form(tuple([(x, c) for x, c in terms.items() if c]), 0)
    return (Constraint(form, low - const, high - const),)


@lru_cache(maxsize=4096)
def upper_limits(predicate: tuple[Expr, ...]) -> dict[Var, int]:
    """What conditions say that single variables are less than, as the tests of splits that may not divide."""
    found: dict[Var, int] = {}
    for constraint in all_constraints(predicate):
        if limit := constraint.upper_limit:
            found.setdefault(*limit)
    return found


def all_constraints(tests: Iterable[Expr]) -> list[Constraint]:
    """What conditions say together, as far as it is sums between bounds."""
    return [c for test in tests for c in constraints_of(test) or ()]
