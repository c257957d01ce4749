"""`is_injective`: whether different points touch different elements.

(i // 4, i % 4) of 0 <= i < 12: i and i + d with d >= 1 would have 4 * q + r = i = i + d
(i + j, i) of i, j: where i is equal, j and j + d give i + j = i + j + d: for no d >= 1
4 elements from 4 * i on: 4 * i + k = 4 * (i + d) + k' means 4 * d = k - k' <= 3: for no d >= 1
(i // 4,) of 0 <= i < 12: i = 0 and i + d = 1 have 0 in common
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Const, Expr, Var, as_int
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
