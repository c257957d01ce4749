"""`Form`: an index as a sum of variables with factors, read once per expression.

Forms are over the variables of the definitions and know no extents, so replays share them. What is no sum
stays whole, as one term.

    2 * (i + 4 * j) - i + 3   is  1 * i + 8 * j + 3
    i // 4 * 8 + 1            is  8 * (i // 4) + 1
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .. import ir
from .interned import minus, plus, times


class Form(NamedTuple):
    """`sum(x * factor) + const`; each x is a variable, or what is not linear."""

    terms: tuple[tuple[ir.Expr, int], ...]
    const: int


def form_of(e: ir.Expr) -> Form:
    """An index as a sum."""
    if type(e) is ir.Var:
        return _single(e)
    if type(e) is ir.Const:
        return Form((), int(e.value))
    return _form(e)


@lru_cache(maxsize=8192)
def _single(e: ir.Var) -> Form:
    return Form(((e, 1),), 0)


@lru_cache(maxsize=8192)
def _form(e: ir.Expr) -> Form:
    terms: dict[ir.Expr, int] = {}
    const = _collect(e, 1, terms)
    return Form(tuple([(x, c) for x, c in terms.items() if c]), const)


def _collect(e: ir.Expr, factor: int, terms: dict[ir.Expr, int]) -> int:
    """Add `e * factor`; gives the constant part."""
    if type(e) is ir.Const:
        return int(e.value) * factor
    if type(e) is ir.Binary:
        if e.op == "+" or e.op == "-":
            first = _collect(e.a, factor, terms)
            return first + _collect(e.b, factor if e.op == "+" else -factor, terms)
        if e.op == "*":
            for a, b in ((e.a, e.b), (e.b, e.a)):
                if type(b) is ir.Const:
                    return _collect(a, factor * int(b.value), terms)
    terms[e] = terms.get(e, 0) + factor
    return 0


def sum_of(form: Form) -> ir.Expr:
    """The expression that a form is of, terms first."""
    value: ir.Expr | None = None
    for x, factor in form.terms:
        if value is not None and factor < 0:
            value = minus(value, times(x, -factor))
        else:
            value = plus(value, times(x, factor))
    return plus(value, form.const) if form.const or value is None else value


def variables(e: ir.Expr) -> tuple[ir.Var, ...]:
    """`free_vars`, worked out once per expression."""
    return (e,) if type(e) is ir.Var else _variables(e)


@lru_cache(maxsize=8192)
def _variables(e: ir.Expr) -> tuple[ir.Var, ...]:
    return tuple(ir.free_vars(e))


def uses(e: ir.Expr, var: ir.Var) -> bool:
    return any(x is var for x in variables(e))


# --- over what iterators are bound to -------------------------------------------------------------


class Iteration(dict[ir.Var, ir.Expr]):
    """Iterators with what they are bound to, compared by identity."""

    __slots__ = ()
    __eq__ = object.__eq__
    if TYPE_CHECKING:

        def __hash__(self) -> int: ...  # pyright: ignore[reportIncompatibleVariableOverride]
    else:
        __hash__ = object.__hash__


NO_ITERATORS = Iteration()


def iteration(block: ir.Block) -> Iteration:
    """The iterators of a block with their bindings."""
    return _iteration(block.iters, block.bindings)


@lru_cache(maxsize=4096)
def _iteration(iters: tuple[ir.Iter, ...], bindings: tuple[ir.Expr, ...]) -> Iteration:
    return Iteration({it.var: binding for it, binding in zip(iters, bindings, strict=True)})


@lru_cache(maxsize=8192)
def bound_form(e: ir.Expr, iters: Iteration) -> Form | None:
    """An index over iterators as a sum over what they are bound to; None if it is no sum of them."""
    if not iters:
        return form_of(e)
    terms: dict[ir.Expr, int] = {}
    found, const = form_of(e)
    for var, c in found:
        if type(var) is not ir.Var:
            return None
        more, start = form_of(iters.get(var, var))
        const += c * start
        for x, k in more:
            terms[x] = terms.get(x, 0) + c * k
    return Form(tuple([(x, c) for x, c in terms.items() if c]), const)
