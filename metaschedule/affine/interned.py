"""Index expressions made once, so that replays share them, and what is known of them.

Variables of replays are shared (`State.fresh`), so a sum over them is asked for again and again.
"""

from __future__ import annotations

from functools import lru_cache

from .. import ir


@lru_cache(maxsize=8192)
def number(value: int) -> ir.Const:
    return ir.Const(value, ir.INDEX)


@lru_cache(maxsize=8192)
def less(e: ir.Expr, limit: ir.Expr) -> ir.Expr:
    """`e < limit`, as the operators build it."""
    return ir.binary("<", e, limit)


@lru_cache(maxsize=8192)
def product(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`a * b`, likewise."""
    return a * b


@lru_cache(maxsize=8192)
def substitute_interned(e: ir.Expr, old: tuple[ir.Var, ...], new: tuple[ir.Expr, ...]) -> ir.Expr:
    """`e` with other expressions for variables."""
    return ir.substitute(e, dict(zip(old, new, strict=True)))


@lru_cache(maxsize=8192)
def times(e: ir.Expr, factor: int) -> ir.Expr:
    """`e * factor` as the operators build it, without looking at types."""
    return e if factor == 1 else ir.Binary("*", e, number(factor), ir.INDEX)


@lru_cache(maxsize=8192)
def minus(e: ir.Expr, other: ir.Expr) -> ir.Expr:
    """`e - other`, likewise."""
    return ir.Binary("-", e, other, ir.INDEX)


@lru_cache(maxsize=8192)
def plus(e: ir.Expr | None, other: ir.Expr | int) -> ir.Expr:
    """`e + other`, likewise; `other` if there is no `e`."""
    if isinstance(other, int):
        if e is None:
            return number(other)
        if other < 0:
            return ir.Binary("-", e, number(-other), ir.INDEX)
        return ir.Binary("+", e, number(other), ir.INDEX) if other else e
    return other if e is None else ir.Binary("+", e, other, ir.INDEX)
