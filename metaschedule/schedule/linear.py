"""Index expressions as sums of variables, read once per expression."""

from __future__ import annotations

from functools import lru_cache

from ..ir import INDEX, Binary, Const, Expr, Var, binary, free_vars, substitute

Sum = tuple[tuple[tuple[Expr, int], ...], int]  # variables, or what is not linear, with factors; a constant


def linear(e: Expr) -> Sum:
    """An index as a sum."""
    if type(e) is Var:
        return ((e, 1),), 0
    if type(e) is Const:
        return (), int(e.value)
    return _linear(e)


@lru_cache(maxsize=8192)
def _linear(e: Expr) -> Sum:
    terms: dict[Expr, int] = {}
    offset = _collect(e, 1, terms)
    return tuple([(x, c) for x, c in terms.items() if c]), offset


def _collect(e: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Add `e * factor`; gives the constant part."""
    if type(e) is Const:
        return int(e.value) * factor
    if type(e) is Binary:
        if e.op == "+" or e.op == "-":
            first = _collect(e.a, factor, terms)
            return first + _collect(e.b, factor if e.op == "+" else -factor, terms)
        if e.op == "*":
            for a, b in ((e.a, e.b), (e.b, e.a)):
                if type(b) is Const:
                    return _collect(a, factor * int(b.value), terms)
    terms[e] = terms.get(e, 0) + factor
    return 0


def uses(e: Expr, var: Var) -> bool:
    return any(x is var for x in free_vars(e))


# What follows is made once, so that replays share it, and what is known of it.


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
