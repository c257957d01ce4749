"""What may be assumed inside a loop or under a condition.

A value loaded from memory may be overwritten inside, so extents and conditions with loads in them say
nothing that lasts.
"""

from __future__ import annotations

from ...arith import Domain
from ...ir import Binary, Expr, For, Load, as_int, binary, is_integer, subexpressions


def inside(domain: Domain, loop: For) -> Domain:
    """`domain` in the body of `loop`."""
    if has_load(loop.extent):
        return domain.with_fact(binary(">=", loop.var, 0))
    return domain.with_loop(loop.var, loop.extent)


def given(domain: Domain, cond: Expr) -> Domain:
    """`domain` where `cond` held on entry."""
    return domain if has_load(cond) else domain.with_fact(cond)


def has_load(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in subexpressions(e))


def is_harmless(e: Expr) -> bool:
    """Whether an expression may be evaluated where the program would not: no reads, no traps."""
    for x in subexpressions(e):
        if isinstance(x, Load):
            return False
        if isinstance(x, Binary) and x.op in ("//", "%") and is_integer(x.dtype) and not as_int(x.b):
            return False
    return True
