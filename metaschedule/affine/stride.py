"""`stride`: how many elements of memory an access moves with a variable, by the buffer's layout.

A of shape (8, 16), dense:     A[2 * i, j + k]     i: 32 elements, j: 1, k: 1
with strides (1, 8):           A[2 * i, j + k]     i: 2 elements, j: 8, k: 8
A[i // 2, j], A[Table[i], j]   i: None, it varies
A[i, j]                        k: 0, it stands still

Extents may say more: A[i // 4, j % 8] with 0 <= i < 4 and 0 <= j < 8 does not move with i, and by one with j.
That i and i + 1 are any other distance apart is a system without a solution.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import ir
from ..arith import simplify
from .cover import holds
from .form import form_of, uses
from .instance import Instance, Linear
from .interned import number
from .nest import NO_LOOPS
from .system import System


def stride(
    access: ir.Load | ir.Store, var: ir.Var, extents: Mapping[ir.Var, int] | None = None
) -> int | None:
    """How many elements an access moves with a variable; None if that varies, as far as `extents` tell."""
    total = 0
    for index, step in zip(access.indices, access.buffer.strides, strict=True):
        moved = coefficient(index, var)
        if moved is None and extents is not None:
            moved = constant_step(index, var, extents)
        if moved is None:
            return None
        total += moved * step
    return total


def constant_step(e: ir.Expr, var: ir.Var, extents: Mapping[ir.Var, int]) -> int | None:
    """By how much an index moves as a variable goes on by one; None if that is not certainly one number."""
    if ir.loads(e) or any(v not in extents for v in ir.free_vars(e)) or extents[var] < 2:
        return None
    system = System()
    one, other = Instance(system, NO_LOOPS), Instance(system, NO_LOOPS)
    for v in ir.free_vars(e):
        one.known[v] = other.known[v] = one.fresh(0, extents[v] - 1 - (v is var))
    other.known[var] = one.known[var].plus(Linear({}, 1))
    moved = other.value(e).plus(one.value(e), -1)
    step = value_at(e, {var: 1}) - value_at(e, {})
    return step if holds(system, moved, step, step) else None


def value_at(e: ir.Expr, values: Mapping[ir.Var, int]) -> int:
    """The value of an index without loads where variables are 0, but for some."""
    found = simplify(ir.substitute(e, {v: number(values.get(v, 0)) for v in ir.free_vars(e)}))
    assert isinstance(found, ir.Const)
    return int(found.value)


def coefficient(e: ir.Expr, var: ir.Var) -> int | None:
    """By how much an index moves with a variable; None if that is not a constant."""
    moved = 0
    for term, factor in form_of(e).terms:
        if term is var:
            moved += factor
        elif uses(term, var):
            return None
    return moved
