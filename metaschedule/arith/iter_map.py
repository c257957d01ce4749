"""Quasi-affine iterator maps: what bindings do to the points of a loop nest.

Read `iteration_map` and `IterationMap` first. Loop variables are rewritten until every binding is a sum
of *digits*, scale * ((source // lower) % extent): loops that are divided as a sum (fused, then split) are
replaced by one variable that counts that sum, and so are loops that a predicate bounds as a sum (a split
that does not divide). Digits of one source that cover all its divisors are independent, so questions of
injectivity become questions of positional number systems.

Refuses (None): products of variables, loads, quotients of sums that skip or repeat values, divisors of
one loop that do not divide each other. Answers of an `IterationMap` are True only if certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir import Expr, Var, as_expr, substitute
from .bounds import lower, upper
from .canonical import canonical
from .domain import Domain
from .polynomial import ONE, Composite, Poly, add, atoms, scale
from .prove import consequences
from .simplify import simplify

ROUNDS = 16


@dataclass(eq=False)
class Digit:
    """(source // lower) % extent, a value in [0, extent)."""

    source: Expr
    lower: int
    extent: int


@dataclass(eq=False)
class IterSum:
    """base + sum of scale * digit"""

    terms: tuple[tuple[int, Digit], ...]
    base: int


@dataclass(eq=False)
class IterationMap:
    """Bindings as sums of digits of the loops.

    `ranges` are first and last value of each binding, a box that all values lie in. `injective`:
    distinct loop points (that satisfy the predicate) certainly give distinct binding tuples.
    `surjective`: every point of the box is certainly reached.
    """

    bindings: tuple[IterSum, ...]
    ranges: tuple[tuple[int, int], ...]
    injective: bool
    surjective: bool
    loops: Loops
    order: tuple[tuple[int, tuple[tuple[int, Digit], ...]], ...]  # which binding gives which digits

    @property
    def bijective(self) -> bool:
        return self.injective and self.surjective

    def solve(self, values: Sequence[Expr]) -> dict[Var, Expr]:
        """The loop variables, given the values of the bindings (of an injective map)."""
        if not self.injective:
            raise ValueError("the map is not known to be injective")
        known: dict[Digit, Expr] = {}
        for at, fresh in self.order:
            rest = values[at] - self.bindings[at].base
            for c, digit in self.bindings[at].terms:
                if digit in known:
                    rest = rest - known[digit] * c
            # A negative digit counts down from its end.
            for c, digit in fresh:
                rest = rest - c * (digit.extent - 1) if c < 0 else rest
            for c, digit in fresh:  # largest scale first: what is left is smaller than the scale
                value = rest // abs(c)
                rest = rest % abs(c)
                known[digit] = value if c > 0 else digit.extent - 1 - value
        return self.loops.solve(known)


def iteration_map(
    bindings: Sequence[Expr], extents: Mapping[Var, int], predicate: Sequence[Expr] = ()
) -> IterationMap | None:
    """How `bindings` map the points of the loops `extents` at which `predicate` holds.

    >>> i, j = Var("i"), Var("j")
    >>> iteration_map([i * 4 + j], {i: 8, j: 4}).bijective
    True
    >>> iteration_map([i * 3 + j], {i: 8, j: 4}).injective
    False
    >>> iteration_map([i * 3 + j], {i: 8, j: 4}, [j < 3]).bijective
    True
    """
    loops = Loops(bindings, extents, predicate)
    if loops.empty:
        nothing = tuple([IterSum((), 0) for _ in bindings])
        return IterationMap(nothing, ((0, -1),) * len(bindings), True, False, loops, ())
    sums = loops.sums()
    if sums is None:
        return None
    digits = [d for found in loops.digits.values() for d in found if d.extent > 1]
    order = decode(sums, digits)
    ranges = tuple([span(s, b, loops.domain) for s, b in zip(sums, loops.bindings, strict=True)])
    injective = order is not None
    # As many points as the box has: a map into it that never repeats reaches all.
    box = math.prod([last - first + 1 for first, last in ranges])
    full = injective and not loops.predicate and box == math.prod(loops.extents.values())
    return IterationMap(tuple(sums), ranges, injective, full, loops, tuple(order or ()))


def decode(
    sums: Sequence[IterSum], digits: Sequence[Digit]
) -> list[tuple[int, tuple[tuple[int, Digit], ...]]] | None:
    """An order of bindings in which each determines new digits, until all are known."""
    known: set[Digit] = set()
    order: list[tuple[int, tuple[tuple[int, Digit], ...]]] = []
    waiting = list(range(len(sums)))
    while waiting:
        progress = False
        for at in list(waiting):
            fresh = [(c, d) for c, d in sums[at].terms if d not in known]
            fresh.sort(key=lambda term: abs(term[0]))
            reach = 0
            for c, d in fresh:
                if abs(c) <= reach:
                    break
                reach += abs(c) * (d.extent - 1)
            else:
                waiting.remove(at)
                progress = True
                if fresh:
                    order.append((at, tuple(reversed(fresh))))
                    known.update(d for _, d in fresh)
        if not progress:
            break
    return order if all(d in known for d in digits) else None


def span(s: IterSum, p: Poly, domain: Domain) -> tuple[int, int]:
    """First and last value: by digits and by bounds, whichever is tighter."""
    first = s.base + sum([c * (d.extent - 1) for c, d in s.terms if c < 0])
    last = s.base + sum([c * (d.extent - 1) for c, d in s.terms if c > 0])
    low, high = lower(p, domain), upper(p, domain)
    return (
        first if low is None else max(first, low),
        last if high is None else min(last, high),
    )


class Loops:
    """Bindings over loop variables, rewritten until each divided variable stands alone."""

    def __init__(
        self, bindings: Sequence[Expr], extents: Mapping[Var, int], predicate: Sequence[Expr]
    ) -> None:
        self.extents = dict(extents)
        self.original = tuple(extents)
        self.meaning: dict[Var, Expr] = {}  # new variable -> what it counts, in loops
        self.replaced: list[dict[Var, Expr]] = []  # old variables -> expressions of newer ones
        self.exprs = list(bindings)
        self.predicate = list(predicate)
        self.digits: dict[Var, list[Digit]] = {}
        self.offsets: dict[Var, int] = {}  # added to a variable before it is cut into digits
        self.empty = any(n <= 0 for n in self.extents.values())
        self.update()
        for _ in range(ROUNDS):
            if self.empty or not (self.use_predicate() or self.use_division()):
                break

    def update(self) -> None:
        self.domain = Domain(self.extents)
        self.bindings = [canonical(e, self.domain) for e in self.exprs]

    def replace(self, values: dict[Var, Expr], new: dict[Var, int]) -> None:
        for var in values:
            del self.extents[var]
        self.extents.update(new)
        self.replaced.append(values)
        self.exprs = [substitute(e, values) for e in self.exprs]
        self.predicate = [substitute(e, values) for e in self.predicate]
        self.update()

    def in_loops(self, e: Expr) -> Expr:
        """An expression of our variables in terms of the loops."""
        return simplify(substitute(e, self.meaning))

    # --- predicates ---

    def use_predicate(self) -> bool:
        """Turns one conjunct that bounds a loop, or a sum that counts, into an extent."""
        for at, condition in enumerate(self.predicate):
            polys, others = consequences(condition, self.domain)
            if others or len(polys) > 1:
                parts = conjuncts(condition)
                if len(parts) > 1:
                    self.predicate[at : at + 1] = parts
                    return True
                continue
            if not polys or lower(polys[0], self.domain, 0) in range(2**62):
                del self.predicate[at]
                return True
            p = polys[0]
            if upper(p, self.domain, -1) in range(-(2**62), 0):
                self.empty = True
                return True
            limit = p.get(ONE, 0) + 1
            parts = counter(add(scale(p, -1), {ONE: limit - 1}), self.extents)
            if parts is not None:
                del self.predicate[at]
                self.fuse(parts, limit)
                return True
            if self.prepare_all(p, inside=True):  # a predicate on pieces of a loop
                return True
        return False

    # --- divisions ---

    def use_division(self) -> bool:
        return any(self.prepare_all(p, inside=False) for p in self.bindings)

    def prepare_all(self, p: Poly, inside: bool) -> bool:
        """Whether some quotient in p had to be, and was, prepared."""
        return any(
            isinstance(atom, Composite) and atom.kind == "//" and self.prepare(atom, inside)
            for atom in atoms(p)
        )

    def prepare(self, q: Composite, inside: bool) -> bool:
        """Fuses what q divides, or splits a variable that is divided inside another division."""
        x, d = q.args
        if self.prepare_all(x, inside=True):
            return True
        found = [m[0] for m in x if m]
        if any(len(m) > 1 for m in x) or any(not isinstance(a, Var) for a in found):
            return False
        if len(found) > 1:
            parts = counter({m: c for m, c in x.items() if m}, self.extents)
            if parts is None:
                return False
            self.fuse(parts, math.prod([self.extents[v] for v in parts]))
            return True
        var = found[0]
        assert isinstance(var, Var)
        if inside and x == {(var,): 1} and self.extents.get(var, 1) % d == 0:
            self.split(var, d)
            return True
        return False

    def fuse(self, parts: dict[Var, int], limit: int) -> None:
        """Replaces variables by one that counts their sum, of which the first `limit` values occur."""
        size = min(limit, math.prod([self.extents[v] for v in parts]))
        fused = Var("_".join([v.name for v in reversed(parts)]))
        total: Expr = as_expr(0)
        values: dict[Var, Expr] = {}
        for var, step in reversed(parts.items()):
            total = total + var * step
            values[var] = fused // step % self.extents[var]
        self.meaning[fused] = self.in_loops(total)
        self.replace(values, {fused: size})

    def split(self, var: Var, d: int) -> None:
        outer, inner = Var(var.name + "_0"), Var(var.name + "_1")
        self.meaning[outer] = self.in_loops(var // d)
        self.meaning[inner] = self.in_loops(var % d)
        self.replace({var: outer * d + inner}, {outer: self.extents[var] // d, inner: d})

    # --- digits ---

    def sums(self) -> list[IterSum] | None:
        """The bindings as sums of digits."""
        divisors: dict[Var, dict[int, int]] = {v: {} for v in self.extents}  # divisor -> offset
        for p in self.bindings:
            for m in p:
                if len(m) > 1:
                    return None
                if not m or (isinstance(m[0], Var) and m[0] in divisors):
                    continue
                q = m[0]
                if not isinstance(q, Composite) or q.kind != "//":
                    return None
                x, d = q.args
                found = [n for n in x if n]
                if len(found) != 1 or len(found[0]) != 1 or x[found[0]] != 1:
                    return None
                var, offset = found[0][0], x.get(ONE, 0)
                if not isinstance(var, Var) or var not in divisors:
                    return None
                if divisors[var].setdefault(d, offset) != offset:
                    return None
        if not all([self.number(var, used) for var, used in divisors.items()]):
            return None
        return [self.sum(p) for p in self.bindings]

    def number(self, var: Var, used: dict[int, int]) -> bool:
        """The digits of a variable (plus an offset that all its quotients share)."""
        steps = sorted({1, *used})
        offset = used[steps[-1]] if used else 0
        if any(b % a for a, b in zip(steps, steps[1:])):
            return False
        if any((offset - used[d]) % d for d in used):
            return False
        self.offsets[var] = offset
        source = simplify(self.meaning.get(var, var) + offset)
        top = (offset + self.extents[var] - 1) // steps[-1] + 1
        counts = [b // a for a, b in zip(steps, steps[1:])] + [top]
        self.digits[var] = [Digit(source, low, n) for low, n in zip(steps, counts)]
        return True

    def sum(self, p: Poly) -> IterSum:
        base = p.get(ONE, 0)
        scales: dict[Digit, int] = {}
        for m, c in p.items():
            if not m:
                continue
            atom = m[0]
            if isinstance(atom, Composite):
                x, d = atom.args
                var = next(n[0] for n in x if n)
                base -= c * ((self.offsets[var] - x.get(ONE, 0)) // d)
            else:
                var, d = atom, 1
                base -= c * self.offsets[var]  # pyright: ignore[reportArgumentType]
            for digit in self.digits[var]:  # pyright: ignore[reportArgumentType]
                if digit.lower >= d:
                    scales[digit] = scales.get(digit, 0) + c * (digit.lower // d)
        terms = [(c, digit) for digit, c in scales.items() if c and digit.extent > 1]
        return IterSum(tuple(terms), base)

    def solve(self, known: Mapping[Digit, Expr]) -> dict[Var, Expr]:
        """The loop variables, given the digits."""
        if self.empty:
            return dict.fromkeys(self.original, as_expr(0))
        values: dict[Var, Expr] = {}
        for var, digits in self.digits.items():
            value: Expr = as_expr(0)
            for digit in reversed(digits):
                if digit in known:
                    value = value + known[digit] * digit.lower
            values[var] = value - self.offsets[var]
        for step in reversed(self.replaced):
            for var, e in step.items():
                values[var] = substitute(e, values)
        return {var: values[var] for var in self.original}


def conjuncts(condition: Expr) -> list[Expr]:
    op = getattr(condition, "op", None)
    if op == "and":
        return [*conjuncts(condition.a), *conjuncts(condition.b)]  # pyright: ignore
    return [condition]


def counter(p: Poly, extents: Mapping[Var, int]) -> dict[Var, int] | None:
    """The variables of a sum that takes every value from 0 on exactly once, innermost first, with
    their steps; None if it is no such sum."""
    parts: list[tuple[int, Var]] = []
    for m, c in p.items():
        if len(m) != 1 or not isinstance(m[0], Var) or m[0] not in extents or c <= 0:
            return None
        parts.append((c, m[0]))
    parts.sort(key=lambda part: part[0])
    step = 1
    for c, var in parts:
        if c != step:
            return None
        step *= extents[var]
    return {var: c for c, var in parts} or None
