"""`Form`: an index as a sum of variables with factors, read once per expression.

Forms are over the variables of the definitions and know no extents, so replays share them. What is no sum
stays whole, as one term.

    2 * (i + 4 * j) - i + 3   is  1 * i + 8 * j + 3
    i // 4 * 8 + 1            is  8 * (i // 4) + 1
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..ir import Binary, Block, Const, Expr, Iter, Var, free_vars


class Form(NamedTuple):
    """`sum(x * factor) + const`; each x is a variable, or what is not linear."""

    terms: tuple[tuple[Expr, int], ...]
    const: int


ZERO = Form((), 0)


def form_of(e: Expr) -> Form:
    """An index as a sum."""
    if type(e) is Var:
        return _single(e)
    if type(e) is Const:
        return Form((), int(e.value))
    return _form(e)


@lru_cache(maxsize=8192)
def _single(e: Var) -> Form:
    return Form(((e, 1),), 0)


@lru_cache(maxsize=8192)
def _form(e: Expr) -> Form:
    terms: dict[Expr, int] = {}
    const = _collect(e, 1, terms)
    return Form(tuple([(x, c) for x, c in terms.items() if c]), const)


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


def variables(e: Expr) -> tuple[Var, ...]:
    """`free_vars`, worked out once per expression."""
    return (e,) if type(e) is Var else _variables(e)


@lru_cache(maxsize=8192)
def _variables(e: Expr) -> tuple[Var, ...]:
    return tuple(free_vars(e))


def uses(e: Expr, var: Var) -> bool:
    return any(x is var for x in variables(e))


# --- over what iterators are bound to -------------------------------------------------------------


class Iteration(dict[Var, Expr]):
    """Iterators with what they are bound to, compared by identity."""

    __slots__ = ()
    __eq__ = object.__eq__

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return id(self)


NO_ITERATORS = Iteration()


def iteration(block: Block) -> Iteration:
    """The iterators of a block with their bindings."""
    return _iteration(block.iters, block.bindings)


@lru_cache(maxsize=4096)
def _iteration(iters: tuple[Iter, ...], bindings: tuple[Expr, ...]) -> Iteration:
    return Iteration({it.var: binding for it, binding in zip(iters, bindings, strict=True)})


@lru_cache(maxsize=8192)
def bound_form(e: Expr, iters: Iteration) -> Form | None:
    """An index over iterators as a sum over what they are bound to; None if it is no sum of them."""
    if not iters:
        return form_of(e)
    terms: dict[Expr, int] = {}
    found, const = form_of(e)
    for var, c in found:
        if type(var) is not Var:
            return None
        more, start = form_of(iters.get(var, var))
        const += c * start
        for x, k in more:
            terms[x] = terms.get(x, 0) + c * k
    return Form(tuple([(x, c) for x, c in terms.items() if c]), const)
