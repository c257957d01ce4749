"""`find_inverse`: the iterators of a block from the indices of an element that it touches.

    X[4 * i + j, k], 0 <= i < 8, 0 <= j < 4:  i = a // 4, j = a % 4, k = b of the element (a, b)
    X[2 * i]:                                 i = a // 2, of even elements only: not `full`
    X[i + j]:                                 none: element 3 is touched by (0, 3) and by (1, 2)

`preimage` is the same for a box of elements: 8 values of 4 * i + j from 16 * t on are those of i from
4 * t on, 2 of them, and all of j.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .. import ir
from ..arith import Domain, iteration_map, relax, simplify
from .form import form_of
from .interned import number
from .view import Interval, View

Solve = Callable[[Sequence[ir.Expr]], dict[ir.Var, ir.Expr]]


@dataclass(slots=True)
class Inverse:
    """Indices as a function of iterators that has an inverse: `solve` gives the iterators from the values."""

    ranges: list[tuple[int, int]]  # first and last value of each index
    full: bool  # every point of the box is reached
    solve: Solve


@lru_cache(maxsize=4096)
def find_inverse(iters: tuple[ir.Iter, ...], indices: tuple[ir.Expr, ...]) -> Inverse | None:
    """None if iterators with different values may have the same indices, or that is not known."""
    extents: dict[ir.Var, int] = {}
    for it in iters:
        size = ir.as_int(it.extent)
        if size is None:
            return None
        extents[it.var] = size
    plain = [i for i in indices if isinstance(i, ir.Var)]
    if len(plain) == len(set(plain)) and all(isinstance(i, (ir.Var, ir.Const)) for i in indices):
        units = [v for v in extents if v not in set(plain)]
        if any(extents[v] != 1 for v in units) or any(v not in extents for v in plain):
            return None

        def pick(values: Sequence[ir.Expr]) -> dict[ir.Var, ir.Expr]:
            found: dict[ir.Var, ir.Expr] = {v: ir.Const(0, ir.INDEX) for v in units}
            found.update((i, x) for i, x in zip(indices, values, strict=True) if isinstance(i, ir.Var))
            return found

        ranges = [
            (0, extents[i] - 1) if isinstance(i, ir.Var) else (ir.as_int(i) or 0, ir.as_int(i) or 0)
            for i in indices
        ]
        return Inverse(ranges, True, pick)
    if ir.loads(*indices):
        return None
    mapped = iteration_map(indices, extents)
    if mapped is None or not mapped.injective:
        return solve_sums(extents, indices)
    return Inverse(
        list(mapped.ranges),
        mapped.surjective,
        lambda values: {v: simplify(x) for v, x in mapped.solve(values).items()},
    )


def solve_sums(extents: Mapping[ir.Var, int], indices: Sequence[ir.Expr]) -> Inverse | None:
    """The inverse of indices among which there are enough sums to solve for the variables one by one.

    X[i + 2 * j, i - j]:  a - b = 3 * j, so j = (a - b) // 3, and i = (a + 2 * b) // 3, of some elements"""
    domain = Domain(extents)
    ranges: list[tuple[int, int]] = []
    for index in indices:
        low, high = domain.bounds(index)
        if low is None or high is None:
            return None
        ranges.append((low, high))
    wanted = [v for v, n in extents.items() if n != 1]
    # One row for each sum: its factors, then which sums it is made of, then its constant.
    rows: list[list[Fraction]] = []
    sums = [n for n, e in enumerate(indices) if all(x in extents for x, _ in form_of(e).terms)]
    for n in sums:
        terms, const = form_of(indices[n])
        own = [*[dict(terms).get(v, 0) for v in wanted], *[int(m == n) for m in sums], -const]
        rows.append([Fraction(x) for x in own])
    for at in range(len(wanted)):
        pivot = next((row for row in rows[at:] if row[at]), None)
        if pivot is None:
            return None
        rows.remove(pivot)
        pivot = [x / pivot[at] for x in pivot]
        rows = [[x - row[at] * p for x, p in zip(row, pivot, strict=True)] for row in rows]
        rows.insert(at, pivot)

    def solve(values: Sequence[ir.Expr]) -> dict[ir.Var, ir.Expr]:
        found: dict[ir.Var, ir.Expr] = {v: ir.Const(0, ir.INDEX) for v in extents}
        for var, row in zip(wanted, rows):
            divisor = math.lcm(*[x.denominator for x in row])
            *factors, const = [int(x * divisor) for x in row[len(wanted) :]]
            total = sum([values[n] * c for n, c in zip(sums, factors, strict=True) if c], number(const))
            found[var] = simplify(total // divisor)
        return found

    return Inverse(ranges, False, solve)


def find_shifted_variable(index: ir.Expr) -> tuple[ir.Var | None, int] | None:
    """(variable, offset) of `v`, `v + c`, `c + v`, `v - c` or (None, c) of a constant."""
    if type(index) is ir.Var:
        return index, 0
    terms, offset = form_of(index)
    if not terms:
        return None, offset
    (var, factor), *rest = terms
    return (var, offset) if isinstance(var, ir.Var) and factor == 1 and not rest else None


def preimage(
    view: View, iters: Sequence[ir.Iter], indices: Sequence[ir.Expr], box: Sequence[Interval]
) -> dict[ir.Var, Interval]:
    """Per iterator an interval of all values with which `indices` may lie in a box; an iterator that is not
    there may have any."""
    found: dict[ir.Var, Interval] = {}
    whole = True
    for index, x in zip(indices, box, strict=True):
        shifted = find_shifted_variable(index)
        if shifted is None:
            whole = False
        elif shifted[0] is not None:
            found[shifted[0]] = x.move(-shifted[1])
    if whole:
        return found
    known = find_inverse(tuple(iters), tuple(indices))
    if known is None:
        return found
    # The element at distances d from the start of the box.
    distances = {ir.Var("d"): x.extent for x in box}
    elements = [view.s.resolve(x.start_plus(d)) for x, d in zip(box, distances, strict=True)]
    for var, value in known.solve(elements).items():
        if var in found:
            continue
        hull = relax(value, distances, view.domain)
        count = None if hull is None else view.domain.bounds(hull[1])[1]
        if hull is not None and count is not None:
            start = ir.as_int(hull[0])
            found[var] = Interval({}, start or 0, max(count, 0), hull[0] if start is None else None)
    return found
