"""Lower bounds of polynomials over a domain, by elimination.

Read `lower` first. Every step replaces an atom by something that bounds it *at every point of
the domain*: a loop variable by 0 or by its extent minus one (an expression, so that symbols
cancel), a quotient `x // d` by `x / d` or `(x - d + 1) / d`, a minimum by either operand. What
is left is summed as constant intervals. Facts are combined with positive multiples, at most two
of them. Effort is bounded: when it is spent the answer is the best so far, never a wrong one.
Upper bounds are lower bounds of the negation.

Refuses: nonlinear occurrences of a variable (its interval is used), products of facts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..ir import Var
from . import polynomial as poly
from .interval import LEAVES, Interval, interval, quick, times
from .polynomial import ONE, Atom, Composite, Poly

if TYPE_CHECKING:
    from .domain import Domain

Cases = list[tuple[Poly, int, "Domain"]]  # polynomial, what it has been scaled by, where

FACTS_DEEP = 2
STEPS = 32
STEPS_WITH_FACTS = 16


def lower(p: Poly, domain: Domain, goal: int | None = None) -> int | None:
    """A constant that p never goes below. At `goal` the search for a better one ends."""
    best, _, final = quick(p, domain)
    if is_reached(best, goal):
        return best
    return search_bound(p, domain, goal, best, final)


def upper(p: Poly, domain: Domain, goal: int | None = None) -> int | None:
    """A constant that p never goes above."""
    _, best, final = quick(p, domain)
    if best is not None:
        if goal is not None and best <= goal:
            return best
        best = -best
    found = search_bound(poly.scale(p, -1), domain, None if goal is None else -goal, best, final)
    return None if found is None else -found


def both(p: Poly, domain: Domain) -> Interval:
    """Lower and upper bound."""
    low, high, final = quick(p, domain)
    if final and not facts_matter(p, domain):
        return low, high
    low = search_bound(p, domain, None, low, final)
    high = search_bound(poly.scale(p, -1), domain, None, None if high is None else -high, final)
    return low, None if high is None else -high


def search_bound(p: Poly, domain: Domain, goal: int | None, best: int | None, final: bool) -> int | None:
    """A better lower bound than `best`; `final` says that only facts can give one."""
    if not final:
        best = better(best, Search(STEPS).run(p, goal, domain, 0))
    if not is_reached(best, goal) and facts_matter(p, domain):
        best = better(best, Search(STEPS_WITH_FACTS).run(p, goal, domain, FACTS_DEEP))
    return best


def is_reached(value: int | None, goal: int | None) -> bool:
    return value is not None and goal is not None and value >= goal


def better(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def facts_matter(p: Poly, domain: Domain) -> bool:
    """Whether facts on sums could say more of p."""
    facts = domain.inequalities
    if not facts:
        return False
    if domain.symbolic:
        return len(p) > (ONE in p)
    mentioned = domain.mentioned
    for m in p:
        for atom in m:
            if isinstance(atom, Composite):
                if any(v in mentioned for v in atom.vars):
                    return True
            elif atom in mentioned:
                return True
    return False


class Search:
    """One bounded search. The domain of a step may have more facts than that of the first: a case
    of a select knows its condition."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def run(self, p: Poly, goal: int | None, domain: Domain, deep: int) -> int | None:
        best, _, final = quick(p, domain)
        if is_reached(best, goal) or self.steps <= 0 or (final and not deep):
            return best
        self.steps -= 1
        if deep:
            for q, by in self.less_facts(p, domain):
                value = self.run(q, None if goal is None else by * (goal - 1) + 1, domain, deep - 1)
                if value is not None:
                    best = better(best, -(-value // by))
                    if is_reached(best, goal):
                        return best
        atom = self.pick(p, domain)
        if atom is not None:
            for cases in self.alternatives(p, atom, domain):
                worst: int | None = None
                for q, by, where in cases:
                    target = None if goal is None else by * (goal - 1) + 1
                    value = self.run(q, target, where, deep)
                    if value is None:
                        break
                    value = -(-value // by)
                    worst = value if worst is None else min(worst, value)
                else:
                    best = better(best, worst)
                    if is_reached(best, goal):
                        return best
        return best

    def less_facts(self, p: Poly, domain: Domain) -> list[tuple[Poly, int]]:
        """p minus positive multiples of facts, each cancelling a monomial; and p's scale in it."""
        found: list[tuple[Poly, int]] = []
        for fact in domain.inequalities:
            for m, c in p.items():
                d = fact.get(m)
                if d is None or not m or (c > 0) != (d > 0):
                    continue
                g = math.gcd(c, d)
                by = abs(d) // g
                found.append((poly.add(poly.scale(p, by), fact, -(abs(c) // g)), by))
        return found

    def pick(self, p: Poly, domain: Domain) -> Atom | None:
        """The atom to eliminate: the deepest composite, else the innermost variable that intervals
        would treat badly."""
        chosen: Composite | None = None
        inner: Var | None = None
        position = -1
        for m in p:
            for atom in m:
                if isinstance(atom, Composite):
                    if atom.kind in LEAVES:
                        continue
                    if chosen is None or atom.height > chosen.height:
                        chosen = atom
                elif len(m) > 1 or atom in domain.symbolic:
                    at = domain.position.get(atom, -1)  # pyright: ignore[reportArgumentType]
                    if at > position:
                        inner, position = atom, at  # pyright: ignore[reportAssignmentType]
        return inner if chosen is None else chosen

    def alternatives(self, p: Poly, atom: Atom, domain: Domain) -> list[Cases]:
        """Ways to bound p without `atom`: each a list of cases that together cover the domain."""
        parts = poly.split(p, atom)
        if parts is None:
            low, high = domain.interval(atom)
            if low is None or high is None or high - low > 1:
                return []
            return [[self.put(p, atom, v, domain) for v in (low, high)]]
        factor, rest = parts
        sign = self.sign(factor, domain)
        if isinstance(atom, Var):
            return self.variable(atom, factor, rest, sign, domain)
        assert isinstance(atom, Composite)
        kind, args = atom.kind, atom.args
        if kind == "//":
            return self.quotient(atom, factor, rest, sign, domain)
        if kind == "select":
            condition, a, b = args
            yes = (poly.add(poly.multiply(factor, a), rest), 1, domain.case(condition))
            no = (poly.add(poly.multiply(factor, b), rest), 1, domain.case(~condition))
            return [[yes, no]]
        if kind in ("min", "max"):
            a, b = [(poly.add(poly.multiply(factor, x), rest), 1, domain) for x in args]
            either = sign is not None and (sign < 0) == (kind == "min")
            return [[a], [b]] if either else [[a, b]]
        if kind == "div":
            return self.symbolic_quotient(atom, factor, rest, sign, domain)
        return []

    def put(self, p: Poly, atom: Atom, value: int, domain: Domain) -> tuple[Poly, int, Domain]:
        out: Poly = {}
        only = {atom}
        for m, c in p.items():
            kept = tuple([x for x in m if x not in only])
            term = {kept: c * value ** (len(m) - len(kept))}
            out = poly.add(out, term)
        return {m: c for m, c in out.items() if c}, 1, domain

    def sign(self, factor: Poly, domain: Domain) -> int | None:
        """1 if the factor is nowhere negative, -1 if nowhere positive, None if not known."""
        value = poly.as_constant(factor)
        if value is not None:
            return 1 if value >= 0 else -1
        if is_reached(self.run(factor, 0, domain, 0), 0):
            return 1
        if is_reached(self.run(poly.scale(factor, -1), 0, domain, 0), 0):
            return -1
        return None

    def variable(self, var: Var, factor: Poly, rest: Poly, sign: int | None, domain: Domain) -> list[Cases]:
        low, high = domain.interval(var)
        ways: list[Poly] = []
        if sign is None:
            if low is not None and high is not None and low == high:
                ways.append(poly.scale(factor, low))
            else:
                least, _ = times(interval(factor, domain), (low, high))
                ways += [poly.constant(least)] if least is not None else []
        elif sign > 0:
            ways += [poly.scale(factor, low)] if low is not None else []
        else:
            extent = domain.extent_of(var)
            if extent is not None:
                ways.append(poly.multiply(factor, poly.shift(extent, -1)))
            if high is not None and (extent is None or poly.as_constant(extent) is None):
                ways.append(poly.scale(factor, high))
            elif high is not None:
                ways = [poly.scale(factor, high)]
        return [[(poly.add(way, rest), 1, domain)] for way in ways]

    def quotient(
        self, atom: Composite, factor: Poly, rest: Poly, sign: int | None, domain: Domain
    ) -> list[Cases]:
        x, d = atom.args
        ways: list[Cases] = []
        if sign is not None:
            near = poly.shift(x, 1 - d) if sign > 0 else x
            ways.append([(poly.add(poly.multiply(factor, near), rest, d), d, domain)])
        low, high = domain.interval(atom)
        end = None if sign is None else low if sign > 0 else high
        if end is not None:
            ways.append([(poly.add(poly.scale(factor, end), rest), 1, domain)])
        return ways

    def symbolic_quotient(
        self, atom: Composite, factor: Poly, rest: Poly, sign: int | None, domain: Domain
    ) -> list[Cases]:
        """q = x // y only as part of k * y * q, which is between k * (x - y + 1) and k * x."""
        x, y = atom.args
        ways: list[Cases] = []
        first = next(iter(y), None)
        if first is not None and first in factor:
            k = factor[first] // y[first]
            if k and not poly.add(factor, y, -k) and is_reached(self.run(y, 1, domain, 0), 1):
                near = poly.shift(poly.add(x, y, -1), 1) if k > 0 else x
                ways.append([(poly.add(rest, near, k), 1, domain)])
        low, high = domain.interval(atom)
        end = None if sign is None else low if sign > 0 else high
        if end is not None:
            ways.append([(poly.add(poly.scale(factor, end), rest), 1, domain)])
        return ways
