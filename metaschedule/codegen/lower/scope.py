"""What may be assumed inside a loop or under a condition.

A value loaded from memory may be overwritten inside, so extents and conditions with loads in them say
nothing that lasts. Neither does an extent that is one of many (`SIZED`): code that was made for it has
numbers in it where another extent has others, and is the same otherwise.
"""

from __future__ import annotations

from ... import ir
from ...arith import Domain
from ...ir.annotations import SIZED


def inside(domain: Domain, loop: ir.For) -> Domain:
    """`domain` in the body of `loop`."""
    if ir.has_load(loop.extent) or SIZED.is_on(loop):
        return domain.with_fact(ir.binary(">=", loop.var, 0))
    return domain.with_loop(loop.var, loop.extent)


def assume(domain: Domain, cond: ir.Expr) -> Domain:
    """`domain` where `cond` held on entry."""
    return domain if ir.has_load(cond) else domain.with_fact(cond)


def is_harmless(e: ir.Expr) -> bool:
    """Whether an expression may be evaluated where the program would not: no reads, no traps."""
    for x in ir.subexpressions(e):
        if isinstance(x, ir.Load):
            return False
        if isinstance(x, ir.Binary) and x.op in ("//", "%") and ir.is_integer(x.dtype) and not ir.as_int(x.b):
            return False
    return True
