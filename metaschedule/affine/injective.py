"""`is_injective`: whether different points touch different elements.

(i // 4, i % 4) of 0 <= i < 12: i and i + d with d >= 1 would have 4 * q + r = i = i + d
(i + j, i) of i, j: where i is equal, j and j + d give i + j = i + j + d: for no d >= 1
4 elements from 4 * i on: 4 * i + k = 4 * (i + d) + k' means 4 * d = k - k' <= 3: for no d >= 1
(i // 4,) of 0 <= i < 12: i = 0 and i + d = 1 have 0 in common

Of divisions of large numbers the system knows little. If that gives no answer, a variable is counted by the
digits that its divisions cut it into: w // 448, w // 2 % 224, w % 2 of 0 <= w < 103040 are a, b, c with
w = 448 * a + 2 * b + c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..arith import Domain, simplify
from ..ir import Binary, Const, Expr, Var, as_int, subexpressions, substitute
from .alias import require_common_index
from .instance import WIDE, Instance
from .interned import number
from .nest import NO_LOOPS
from .system import System


def is_injective(
    ranges: Sequence[tuple[Expr, Expr]], extents: Mapping[Var, int | None], guards: Sequence[Expr] = ()
) -> bool | None:
    """Whether no two points of these variables, at which the guards hold, have an element of a region in
    common; None if that is not known. An extent of None is any number. Two points differ in a first variable:
    by which is tried in turn.

    X[4 * i + j : 4 * i + j + 2], i < 3, j < 2. Points whose i differs by d: 4 * d = j + a - (j' + b) <= 2
    (a, b < 2), so there is no d. Points of one i whose j differs by d: d = a - b, and that is 1 for a = 1,
    b = 0: element 1 belongs to j = 0 and to j = 1. The answer is False.
    """
    if are_plain(ranges, extents):
        return True
    answer = compare_points(ranges, extents, guards)
    if answer is None and (cut := cut_into_digits(ranges, extents)) is not None:
        return compare_points(*cut, ()) or None  # of all numbers that have these digits, whatever the guards
    return answer


def compare_points(
    ranges: Sequence[tuple[Expr, Expr]], extents: Mapping[Var, int | None], guards: Sequence[Expr]
) -> bool | None:
    """The answer of `is_injective`, by a system for each variable that two points may differ in."""
    answer: bool | None = True
    variables = [(var, WIDE if count is None else count) for var, count in extents.items()]
    for at, (_, size) in enumerate(variables):
        if size <= 1:
            continue
        system = System()
        one = Instance(system, NO_LOOPS)
        other = Instance(system, NO_LOOPS, twin=one)
        for n, (var, count) in enumerate(variables):
            here = one.known[var] = one.fresh(0, count - 1, var)
            if n < at:
                other.known[var] = here
            elif n == at:
                other.known[var] = here.plus(one.fresh(1, count - 1))
                one.require(other.known[var], 0, count - 1)
            else:
                other.known[var] = other.fresh(0, count - 1, var)
        for test in guards:
            one.assume(test)
            other.assume(test)
        for mine in ranges:
            require_common_index(one, mine, other, mine)
        found = system.is_empty()
        if found is False:
            return False
        answer = None if found is None else answer
    return answer


def cut_into_digits(
    ranges: Sequence[tuple[Expr, Expr]], extents: Mapping[Var, int | None]
) -> tuple[list[tuple[Expr, Expr]], dict[Var, int | None]] | None:
    """The same for digits of the variables that are divided; None if no divisors of one divide each other."""
    cuts = find_cuts([e for pair in ranges for e in pair])
    values: dict[Var, Expr] = {}
    found: dict[Var, int | None] = {}
    for var, size in extents.items():
        steps = sorted({1, *cuts.get(var, ())})
        divided = all(b % a == 0 for a, b in zip(steps, steps[1:], strict=False))
        if size is None or len(steps) == 1 or not divided:
            found[var] = size
            continue
        total: Expr = number(0)
        for step, above in zip(steps, [*steps[1:], None], strict=True):
            digit = Var(var.name)
            found[digit] = -(-size // step) if above is None else above // step
            total = total + digit * step
        values[var] = total
    if not values:
        return None
    domain = Domain({v: n for v, n in found.items() if n is not None})
    return [(simplify(substitute(a, values), domain), substitute(b, values)) for a, b in ranges], found


def find_cuts(exprs: Sequence[Expr]) -> dict[Var, set[int]]:
    """Where divisions cut variables into digits: v // 6 % 4 between 1 and 6, and 6 and 24."""
    cuts: dict[Var, set[int]] = {}
    for e in (x for whole in exprs for x in subexpressions(whole)):
        if not isinstance(e, Binary) or e.op not in ("//", "%") or not (size := as_int(e.b)) or size < 1:
            continue
        below = e.a
        step = 1
        if isinstance(below, Binary) and below.op == "//" and (by := as_int(below.b)) and by > 0:
            below, step = below.a, by
        if isinstance(below, Var):
            cuts.setdefault(below, set()).update({step, step * size})
    return cuts


def is_one_to_one(
    indices: Sequence[Expr], extents: Mapping[Var, int | None], guards: Sequence[Expr] = ()
) -> bool:
    """Whether different points certainly have different indices: `is_injective` of single elements."""
    return is_injective([(index, number(1)) for index in indices], extents, guards) is True


def are_plain(ranges: Sequence[tuple[Expr, Expr]], extents: Mapping[Var, int | None]) -> bool:
    """Whether each variable that takes several values is an index of its own."""
    plain = {start for start, _ in ranges if type(start) is Var}
    single = all(type(count) is Const and as_int(count) == 1 for _, count in ranges)
    return single and all(var in plain or (size is not None and size <= 1) for var, size in extents.items())
