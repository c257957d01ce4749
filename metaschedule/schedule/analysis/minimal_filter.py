"""Winograd's minimal filtering F(m, r): m neighbouring results of r taps out of m + r - 1 products.

Data and taps are taken as polynomials, multiplied by their values at m + r - 1 points, and the product is
read off from there. Each of the three steps is a small matrix: `data` gives the values of m + r - 1
neighbouring elements, `taps` those of the filter, `results` the sums out of the products.

>>> f = minimal_filter(2, 3)
>>> [[str(x) for x in row] for row in f.taps]
[['-1', '0', '0'], ['1/2', '1/2', '1/2'], ['1/2', '-1/2', '1/2'], ['0', '0', '1']]
>>> round(f.amplification, 2)
1.29
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Matrix = tuple[tuple[Fraction, ...], ...]
# Small ones, and their negatives and reciprocals, keep the matrices small; infinity comes after them.
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))
MOST_POINTS = len(POINTS) + 1


@dataclass(frozen=True)
class MinimalFilter:
    data: Matrix  # [point][element]
    taps: Matrix  # [point][tap]
    results: Matrix  # [result][point]

    @property
    def amplification(self) -> float:
        """How many times as large rounding errors of results are as those of adding the terms up directly:
        products are as large as the rows of both transforms, and results collect their errors."""
        sizes = [square(d) * square(t) for d, t in zip(self.data, self.taps, strict=True)]
        worst = max(sum(a * a * n for a, n in zip(row, sizes, strict=True)) for row in self.results)
        return math.sqrt(worst / len(self.taps[0]))


@lru_cache(maxsize=64)
def minimal_filter(results: int, taps: int) -> MinimalFilter:
    """F(results, taps), which has `results + taps - 1` products: at most `MOST_POINTS`."""
    points = POINTS[: results + taps - 2]
    assert len(points) == results + taps - 2, "too many points"
    others = [[q for q in points if q is not p] for p in points]
    scale = [
        math.prod([p - q for q in rest], start=Fraction(1)) for p, rest in zip(points, others, strict=True)
    ]
    return MinimalFilter(
        data=(*[(*polynomial_of_roots(rest), Fraction(0)) for rest in others], polynomial_of_roots(points)),
        taps=(
            *[tuple([p**k / s for k in range(taps)]) for p, s in zip(points, scale, strict=True)],
            last(taps),
        ),
        results=tuple([(*[p**k for p in points], last(results)[k]) for k in range(results)]),
    )


def last(count: int) -> tuple[Fraction, ...]:
    """What a polynomial is at infinity: its last coefficient."""
    return tuple([Fraction(int(k == count - 1)) for k in range(count)])


def polynomial_of_roots(roots: tuple[Fraction, ...] | list[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the polynomial with these roots, the lowest first."""
    found = [Fraction(1)]
    for root in roots:
        found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def square(row: tuple[Fraction, ...]) -> Fraction:
    return sum((x * x for x in row), Fraction(0))
