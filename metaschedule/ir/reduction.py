"""Stores that combine an element with a term."""

from __future__ import annotations

from collections.abc import Container

from .expr import Binary, Expr, Load
from .stmt import Store
from .structural import same_exprs
from .visit import subexpressions


def reduction_term(s: Store, operators: Container[str]) -> tuple[str, Expr] | None:
    """(operator, term) of `buffer[i] = buffer[i] op term`; the term is free of the buffer."""
    value = s.value
    if not isinstance(value, Binary) or value.op not in operators:
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(own, Load)
            and own.buffer is s.buffer
            and same_exprs(own.indices, s.indices)
            and not any(isinstance(x, Load) and x.buffer is s.buffer for x in subexpressions(term))
        ):
            return value.op, term
    return None
