"""`stride`: how many elements of memory an access moves with a variable, by the buffer's layout.

A of shape (8, 16), dense:     A[2 * i, j + k]     i: 32 elements, j: 1, k: 1
with strides (1, 8):           A[2 * i, j + k]     i: 2 elements, j: 8, k: 8
A[i // 2, j], A[Table[i], j]   i: None, it varies
A[i, j]                        k: 0, it stands still
"""

from __future__ import annotations

from ..ir import Expr, Load, Store, Var
from .form import form_of, uses


def stride(access: Load | Store, var: Var) -> int | None:
    """How many elements an access moves with a variable; None if that varies."""
    total = 0
    for index, step in zip(access.indices, access.buffer.strides, strict=True):
        moved = coefficient(index, var)
        if moved is None:
            return None
        total += moved * step
    return total


def coefficient(e: Expr, var: Var) -> int | None:
    """By how much an index moves with a variable; None if that is not a constant."""
    moved = 0
    for term, factor in form_of(e).terms:
        if term is var:
            moved += factor
        elif uses(term, var):
            return None
    return moved
