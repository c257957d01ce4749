"""`is_injective`: whether different points have different indices.

(i // 4, i % 4) of 0 <= i < 12: i and i + d with d >= 1 would have 4 * q + r = i = i + d
(i + j, i) of i, j: where i is equal, j and j + d give i + j = i + j + d: for no d >= 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Expr, Var
from .instance import Instance
from .nest import Nest
from .system import System


def is_injective(
    nest: Nest, indices: Sequence[Expr], extents: Mapping[Var, int], guards: Sequence[Expr] = ()
) -> bool | None:
    """Whether no two points of these variables, at which the guards hold, have the same indices; None if that
    is not known. Two points differ in a first variable: by which is tried in turn."""
    answer: bool | None = True
    variables = list(extents.items())
    for at, (_, size) in enumerate(variables):
        if size <= 1:
            continue
        system = System()
        one = Instance(system, nest)
        other = Instance(system, nest, twin=one)
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
        for index in indices:
            one.require(one.value(index).plus(other.value(index), -1), 0, 0)
        found = system.is_empty()
        if found is False:
            return False
        answer = None if found is None else answer
    return answer
