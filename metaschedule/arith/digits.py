"""Loops rewritten until what is bound to them is a sum of digits.

Read `Loops.__init__`: each round fuses or splits one group of variables, by a division; then
`sums` reads the digits off. `iter_map.py` has the questions that this answers.

Refuses (`sums` gives None): products of variables, loads, quotients of sums that skip or repeat
values, divisors of one variable that do not divide each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .. import ir
from .canonical import canonical
from .division import floordiv
from .domain import Domain
from .express import express
from .polynomial import ONE, Atom, Composite, Poly, atoms
from .simplify import simplify

ROUNDS = 16  # each round removes a variable, so that few are needed


@dataclass(eq=False)
class Digit:
    """(source // lower) % extent, a value in [0, extent)."""

    source: ir.Expr
    lower: int
    extent: int


@dataclass(eq=False)
class IterSum:
    """base + sum of scale * digit"""

    terms: tuple[tuple[int, Digit], ...]
    base: int


class Loops:
    """Bindings over loop variables, rewritten until each divided variable stands alone."""

    def __init__(self, bindings: Sequence[ir.Expr], extents: Mapping[ir.Var, int]) -> None:
        self.extents = dict(extents)
        self.original = tuple(extents)
        self.meaning: dict[ir.Var, ir.Expr] = {}  # new variable -> what it counts, in loops
        self.replaced: list[dict[ir.Var, ir.Expr]] = []  # old variables -> expressions of newer ones
        self.digits: dict[ir.Var, list[Digit]] = {}
        self.dependent: set[Digit] = set()  # digits of which not every combination occurs
        self.offsets: dict[ir.Var, int] = {}  # added to a variable before it is cut into digits
        self.empty = any(n <= 0 for n in self.extents.values())
        self.exprs = list(bindings)
        self.update()
        for _ in range(ROUNDS):
            if self.empty or not self.use_division():
                break

    def replace(self, values: dict[ir.Var, ir.Expr], new: dict[ir.Var, int]) -> None:
        self.exprs = [ir.substitute(self.tidy(e), values) for e in self.exprs]
        for var in values:
            del self.extents[var]
        self.extents.update(new)
        self.replaced.append(values)
        self.update()

    def update(self) -> None:
        self.domain = Domain(self.extents)
        self.bindings = [canonical(e, self.domain) for e in self.exprs]

    def tidy(self, e: ir.Expr) -> ir.Expr:
        """e with those parts simplified that are sums of digits. A division that is not is kept as
        written: what it divides may be a sum that counts, which a canonical form can take apart."""
        p = canonical(e, self.domain)
        if all(is_digit(atom) for atom in atoms(p)):
            return express(p, self.domain)
        return ir.map_operands(e, self.tidy)

    def in_loops(self, e: ir.Expr) -> ir.Expr:
        """An expression of our variables in terms of the loops."""
        return simplify(ir.substitute(e, self.meaning))

    # --- divisions ---

    def use_division(self) -> bool:
        if all(is_digit(atom) for p in self.bindings for atom in atoms(p)):
            return False
        # As written first: canonical forms may have taken a sum that counts apart.
        return any(self.settle(e) for e in self.exprs) or any(self.prepare_all(p) for p in self.bindings)

    def settle(self, e: ir.Expr) -> bool:
        """Whether some division in e, innermost first, had to be, and was, prepared."""
        if any(self.settle(child) for child in ir.operands(e)):
            return True
        if not isinstance(e, ir.Binary) or e.op not in ("//", "%") or not (d := ir.as_int(e.b)):
            return False
        p = canonical(e.a, self.domain)
        if all(is_digit(atom) for atom in atoms(floordiv(p, d, self.domain))):
            return False
        parts = counter(p, self.extents)
        if parts is not None:
            self.fuse(parts)
            return True
        return any(self.split_inside(atom) for atom in atoms(p))

    def prepare_all(self, p: Poly, inside: bool = False) -> bool:
        """Whether some quotient in p had to be, and was, prepared."""
        return any(
            isinstance(atom, Composite) and atom.kind == "//" and self.prepare(atom, inside)
            for atom in atoms(p)
        )

    def prepare(self, q: Composite, inside: bool) -> bool:
        """Fuses what q divides, or splits a variable that is divided inside another division."""
        x = q.args[0]
        if self.prepare_all(x, inside=True):
            return True
        if is_digit(q):
            return inside and self.split_inside(q)
        parts = counter(x, self.extents)
        if parts is None:
            return False
        self.fuse(parts)
        return True

    def split_inside(self, q: Atom) -> bool:
        """Splits the variable of a quotient, if it divides the extent."""
        if not isinstance(q, Composite) or not is_digit(q) or ONE in q.args[0]:
            return False
        ((var,),) = q.args[0]
        if self.extents.get(var, 1) % q.args[1]:
            return False
        self.split(var, q.args[1])
        return True

    def fuse(self, parts: dict[ir.Var, int]) -> None:
        """Replaces variables by one that counts their sum."""
        size = math.prod([self.extents[v] for v in parts])
        fused = ir.Var("fused")
        total: ir.Expr = ir.as_expr(0)
        values: dict[ir.Var, ir.Expr] = {}
        for var, step in reversed(parts.items()):
            total = total + var * step
            values[var] = fused // step % self.extents[var]
        self.meaning[fused] = self.in_loops(total)
        self.replace(values, {fused: size})

    def split(self, var: ir.Var, d: int) -> None:
        outer, inner = ir.Var("outer"), ir.Var("inner")
        self.meaning[outer] = self.in_loops(var // d)
        self.meaning[inner] = self.in_loops(var % d)
        self.replace({var: outer * d + inner}, {outer: self.extents[var] // d, inner: d})

    # --- digits ---

    def sums(self) -> list[IterSum] | None:
        """The bindings as sums of digits."""
        divisors: dict[ir.Var, dict[int, int]] = {v: {} for v in self.extents}  # divisor -> offset
        for p in self.bindings:
            for m in p:
                if len(m) > 1:
                    return None
                if not m or (isinstance(m[0], ir.Var) and m[0] in divisors):
                    continue
                q = m[0]
                if not isinstance(q, Composite) or not is_digit(q):
                    return None
                x, d = q.args
                var, offset = next(n[0] for n in x if n), x.get(ONE, 0)
                if var not in divisors:
                    return None
                if divisors[var].setdefault(d, offset) != offset:
                    return None
        if not all(self.number(var, used) for var, used in divisors.items()):
            return None
        return [self.sum(p) for p in self.bindings]

    def number(self, var: ir.Var, used: dict[int, int]) -> bool:
        """The digits of a variable (plus an offset that all its quotients share)."""
        steps = sorted({1, *used})
        offset = used[steps[-1]] if used else 0
        if any(b % a for a, b in pairwise(steps)):
            return False
        if any((offset - used[d]) % d for d in used):
            return False
        self.offsets[var] = offset
        source = simplify(self.meaning.get(var, var) + offset)
        top = (offset + self.extents[var] - 1) // steps[-1] + 1
        counts = [b // a for a, b in pairwise(steps)] + [top]
        self.digits[var] = [Digit(source, low, n) for low, n in zip(steps, counts)]
        if offset or self.extents[var] % steps[-1]:
            self.dependent.update(self.digits[var])
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

    def solve(self, known: Mapping[Digit, ir.Expr]) -> dict[ir.Var, ir.Expr]:
        """The loop variables, given the digits."""
        if self.empty:
            return dict.fromkeys(self.original, ir.as_expr(0))
        values: dict[ir.Var, ir.Expr] = {}
        for var, digits in self.digits.items():
            value: ir.Expr = ir.as_expr(0)
            for digit in reversed(digits):
                if digit in known:
                    value = value + known[digit] * digit.lower
            values[var] = value - self.offsets[var]
        for step in reversed(self.replaced):
            for var, e in step.items():
                values[var] = ir.substitute(e, values)
        return {var: values[var] for var in self.original}


def is_digit(atom: Atom) -> bool:
    """Whether an atom is a variable, or a quotient of nothing but a variable and a constant."""
    if isinstance(atom, ir.Var):
        return True
    if atom.kind != "//":
        return False
    found = [(m, c) for m, c in atom.args[0].items() if m]
    return len(found) == 1 and found[0][1] == 1 and len(m := found[0][0]) == 1 and isinstance(m[0], ir.Var)


def conjuncts(condition: ir.Expr) -> list[ir.Expr]:
    if isinstance(condition, ir.Binary) and condition.op == "and":
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def counter(p: Poly, extents: Mapping[ir.Var, int]) -> dict[ir.Var, int] | None:
    """The variables of a sum that takes every value from 0 on exactly once (constant aside),
    innermost first, with their steps; None if it is no such sum."""
    parts: list[tuple[int, ir.Var]] = []
    for m, c in p.items():
        if not m:
            continue
        if len(m) != 1 or not isinstance(m[0], ir.Var) or m[0] not in extents or c <= 0:
            return None
        parts.append((c, m[0]))
    parts.sort(key=lambda part: part[0])
    step = 1
    for c, var in parts:
        if c != step:
            return None
        step *= extents[var]
    return {var: c for c, var in parts} or None
