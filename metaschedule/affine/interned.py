"""Index expressions made once, so that replays share them, and what is known of them.

Variables of replays are shared (`State.fresh`), so a sum over them is asked for again and again.
"""

from __future__ import annotations

from functools import lru_cache

from ..ir import INDEX, Binary, Const, Expr, Var, binary, substitute


@lru_cache(maxsize=8192)
def number(value: int) -> Const:
    return Const(value, INDEX)


@lru_cache(maxsize=8192)
def less(e: Expr, limit: Expr) -> Expr:
    """`e < limit`, as the operators build it."""
    return binary("<", e, limit)


@lru_cache(maxsize=8192)
def product(a: Expr, b: Expr) -> Expr:
    """`a * b`, likewise."""
    return a * b


@lru_cache(maxsize=8192)
def replaced(e: Expr, old: tuple[Var, ...], new: tuple[Expr, ...]) -> Expr:
    """`e` with other expressions for variables."""
    return substitute(e, dict(zip(old, new, strict=True)))


@lru_cache(maxsize=8192)
def times(e: Expr, factor: int) -> Expr:
    """`e * factor` as the operators build it, without looking at types."""
    return e if factor == 1 else Binary("*", e, number(factor), INDEX)


@lru_cache(maxsize=8192)
def plus(e: Expr | None, other: Expr | int) -> Expr:
    """`e + other`, likewise; `other` if there is no `e`."""
    if isinstance(other, int):
        if e is None:
            return number(other)
        if other < 0:
            return Binary("-", e, number(-other), INDEX)
        return Binary("+", e, number(other), INDEX) if other else e
    return other if e is None else Binary("+", e, other, INDEX)
