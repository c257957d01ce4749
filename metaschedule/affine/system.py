"""`System`: bounded integers under linear constraints. One question: is there a solution?

Whatever is asked of accesses ("do two iterations touch one element?", "is something read that was not
written?") is a system whose solutions are the counter-examples. A split, a fused loop, a division and a
remainder are all equations over bounded integers, so nothing has to be known about loops here.

    Two iterations v and v + d of a loop over 16 columns, each touching 4 * v .. 4 * v + 3:
        4 * v + a = 4 * (v + d) + b,  0 <= a, b <= 3,  1 <= d <= 15
    v cancels; 4 * d = a - b <= 3 leaves no d >= 1: the iterations touch different elements.

`is_empty` eliminates equations that have a variable with factor 1 or -1, tightens bounds until nothing moves,
and then tries values of the variable with the fewest. It counts what it tries: past `budget` the answer is
"unknown".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

Terms = dict[int, int]  # factors by the number of the variable
MOST_TRIED = 400  # values; what is provable takes few
MOST_ROUNDS = 12  # of tightening: bounds that creep by one would take as many rounds as there are values


class Empty(Exception):
    """There is no solution."""


class System:
    """Variables are numbers 0, 1, ...; each has bounds. Constraints say `low <= sum(terms) <= high`.

    >>> s = System()
    >>> a, b, d = s.variable(0, 3), s.variable(0, 3), s.variable(1, 15)
    >>> s.require({d: 4, a: -1, b: 1}, 0, 0)
    >>> s.is_empty()
    True
    """

    __slots__ = ("bounds", "rows")

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def variable(self, low: int, high: int) -> int:
        """A new variable between these values, inclusive."""
        self.bounds.append((low, high))
        return len(self.bounds) - 1

    def require(self, terms: Mapping[int, int], low: float, high: float) -> None:
        """Constrain a sum; infinities for no bound."""
        self.rows.append(({v: c for v, c in terms.items() if c}, low, high))

    def copy(self) -> System:
        new = System()
        new.bounds, new.rows = self.bounds.copy(), self.rows.copy()
        return new

    def is_empty(self, budget: int = MOST_TRIED) -> bool | None:
        """Whether there is certainly no solution (True), certainly one (False), or it is not known (None)."""
        if any(low > high for low, high in self.bounds):
            return True
        try:
            bounds, rows = eliminate(self.bounds, self.rows)
            return Solver(budget).is_empty(bounds, rows)
        except Empty:
            return True


# --- equations ------------------------------------------------------------------------------------

Row = tuple[tuple[tuple[int, int], ...], float, float]  # ((variable, factor), ...), low, high


def eliminate(
    bounds: Iterable[tuple[int, int]], rows: Iterable[tuple[Terms, float, float]]
) -> tuple[list[tuple[int, int]], list[Row]]:
    """The system without the variables that an equation gives: `x = sum` leaves `low <= sum <= high` behind.

    i + 4 * j - k = 0 with 0 <= i <= 3: i goes, and leaves 0 <= k - 4 * j <= 3 behind.
    2 * i - 2 * j = 1 has no solution for any bounds: factors are divided by what they have in common first.
    """
    limits = list(bounds)
    equations: list[tuple[Terms, int]] = []
    others: list[tuple[Terms, float, float]] = []
    for terms, low, high in rows:
        fixed = sum(c * limits[v][0] for v, c in terms.items() if limits[v][0] == limits[v][1])
        moving = {v: c for v, c in terms.items() if limits[v][0] != limits[v][1]}
        if low == high:
            equations.append((moving, int(low) - fixed))
        else:
            others.append((moving, low - fixed, high - fixed))
    given: list[tuple[int, Terms, int]] = []
    kept: list[tuple[Terms, int]] = []
    while equations:
        terms, value = divide_out(*equations.pop())
        if not terms:
            continue
        unit = min(
            (v for v, c in terms.items() if abs(c) == 1), key=lambda v: len_of(v, equations), default=None
        )
        if unit is None:
            kept.append((terms, value))
            continue
        sign = terms[unit]
        # unit = sign * (value - rest)
        rest = {v: -sign * c for v, c in terms.items() if v != unit}
        given.append((unit, rest, sign * value))
        equations = [substitute_equation(e, unit, rest, sign * value) for e in equations]
        kept = [substitute_equation(e, unit, rest, sign * value) for e in kept]
        others = [
            (new, low - shift, high - shift)
            for terms, low, high in others
            for new, shift in [replace_variable(terms, unit, rest, sign * value)]
        ]
        others.append((rest, limits[unit][0] - sign * value, limits[unit][1] - sign * value))
        limits[unit] = (0, 0)  # it is nowhere any more
        if any(abs(c) == 1 for terms, _ in kept for c in terms.values()):
            equations, kept = equations + kept, []
    out: list[Row] = []
    for terms, value in kept:
        terms, value = divide_out(terms, value)
        if terms:
            out.append((tuple(terms.items()), value, value))
    for terms, low, high in others:
        row = tighten_row(terms, low, high)
        if row is not None:
            out.append(row)
    return limits, out


def len_of(var: int, equations: Iterable[tuple[Terms, int]]) -> int:
    return sum(var in terms for terms, _ in equations)


def divide_out(terms: Terms, value: int) -> tuple[Terms, int]:
    """An equation without the common divisor of its factors."""
    terms = {v: c for v, c in terms.items() if c}
    common = math.gcd(*terms.values())
    if common == 0:
        if value:
            raise Empty
        return {}, 0
    if value % common:
        raise Empty
    return {v: c // common for v, c in terms.items()}, value // common


def tighten_row(terms: Terms, low: float, high: float) -> Row | None:
    """A constraint without the common divisor of its factors; None if it says nothing."""
    terms = {v: c for v, c in terms.items() if c}
    if not terms:
        if low > 0 or high < 0:
            raise Empty
        return None
    common = math.gcd(*terms.values())
    if common > 1:
        terms = {v: c // common for v, c in terms.items()}
        low = low if low == -math.inf else -(-int(low) // common)
        high = high if high == math.inf else int(high) // common
    if low > high:
        raise Empty
    return tuple(terms.items()), low, high


def replace_variable(terms: Terms, var: int, rest: Terms, value: int) -> tuple[Terms, int]:
    """Terms with `rest + value` for a variable; the constant that comes out apart."""
    factor = terms.get(var)
    if factor is None:
        return terms, 0
    new = {v: c for v, c in terms.items() if v != var}
    for v, c in rest.items():
        new[v] = new.get(v, 0) + factor * c
    return new, factor * value


def substitute_equation(equation: tuple[Terms, int], var: int, rest: Terms, value: int) -> tuple[Terms, int]:
    terms, shift = replace_variable(equation[0], var, rest, value)
    return terms, equation[1] - shift


# --- search ---------------------------------------------------------------------------------------


class Solver:
    """Tightens bounds and tries values, within a budget."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def is_empty(self, bounds: list[tuple[int, int]], rows: list[Row]) -> bool | None:
        try:
            rows = tighten(bounds, rows)
        except Empty:
            return True
        if not rows:
            return False  # what is left is free
        free = [v for terms, _, _ in rows for v, _ in terms if bounds[v][0] < bounds[v][1]]
        if not free:  # `tighten` fixed them last, and nothing has looked at the constraints since
            sums = [sum(c * bounds[v][0] for v, c in terms) for terms, _, _ in rows]
            return not all(low <= x <= high for x, (_, low, high) in zip(sums, rows, strict=True))
        var = min(free, key=lambda v: bounds[v][1] - bounds[v][0])
        low, high = bounds[var]
        middle = (low + high) // 2
        halves = (
            [(n, n) for n in range(low, high + 1)] if high - low < 8 else [(low, middle), (middle + 1, high)]
        )
        for half in halves:
            self.budget -= 1
            if self.budget < 0:
                return None
            answer = self.is_empty([*bounds[:var], half, *bounds[var + 1 :]], rows)
            if answer is not True:
                return answer
        return True


def tighten(bounds: list[tuple[int, int]], rows: list[Row]) -> list[Row]:
    """Narrow the bounds by every constraint, in place; gives the constraints that still say something.

    10 <= 2 * i + j <= 11 with i <= 7, j <= 3: 2 * i is at least 10 - 3 and at most 11, so i is 4 or 5.
    """
    for _ in range(MOST_ROUNDS):
        moved = False
        kept: list[Row] = []
        for row in rows:
            terms, low, high = row
            least = most = 0
            for v, c in terms:
                a, b = bounds[v]
                least, most = (least + c * a, most + c * b) if c > 0 else (least + c * b, most + c * a)
            if least > high or most < low:
                raise Empty
            if low <= least and most <= high:
                continue  # it holds whatever the values
            check_divisible(bounds, row)
            kept.append(row)
            for v, c in terms:
                a, b = bounds[v]
                # what the other terms leave to c * v
                if c > 0:
                    first = a if low == -math.inf else max(a, -(-(int(low) - most + c * b) // c))
                    last = b if high == math.inf else min(b, (int(high) - least + c * a) // c)
                else:
                    first = a if high == math.inf else max(a, -((int(high) - least + c * b) // -c))
                    last = b if low == -math.inf else min(b, (int(low) - most + c * a) // c)
                if first > last:
                    raise Empty
                if first > a or last < b:
                    bounds[v] = first, last
                    moved = True
                    least += c * (first - a) if c > 0 else c * (last - b)
                    most += c * (last - b) if c > 0 else c * (first - a)
        rows = kept
        if not moved or not rows:
            break
    return rows


def check_divisible(bounds: list[tuple[int, int]], row: Row) -> None:
    """Raises if what the variables that have a value leave is between two multiples of the other factors:
    4 * p - 4 * q = 3 * d has no solution where d is 1."""
    terms, low, high = row
    common = fixed = 0
    for v, c in terms:
        a, b = bounds[v]
        if a == b:
            fixed += c * a
        else:
            common = math.gcd(common, c)
    if common > 1 and high < math.inf and low > (int(high) - fixed) // common * common + fixed:
        raise Empty
