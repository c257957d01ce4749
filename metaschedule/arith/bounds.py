"""Lower bounds of polynomials over a domain, by elimination.

Read `lower` first. Every step replaces an atom by something that bounds it *at every point of the
domain*: a loop variable by 0 or by its extent minus one (an expression, so that symbols cancel), a
quotient `x // d` by `x / d` or `(x - d + 1) / d`, a minimum by either operand. What is left is summed as
constant intervals. Facts are combined with positive multiples, at most two of them. Effort is bounded:
when it is spent the answer is the best so far, never a wrong one. Upper bounds are lower bounds of the
negation.

Refuses: nonlinear occurrences of a variable (its interval is used), products of facts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..ir import Var, integer_limits
from .polynomial import ONE, Atom, Composite, Poly, add, as_constant, multiply, scale, shift, split

if TYPE_CHECKING:
    from .domain import Domain

Interval = tuple[int | None, int | None]
Cases = list[tuple[Poly, int, "Domain"]]  # polynomial, what it has been scaled by, where

UNKNOWN: Interval = (None, None)
FACTS_DEEP = 2
STEPS = 48


def lower(p: Poly, domain: Domain, goal: int | None = None) -> int | None:
    """A constant that p never goes below. At `goal` the search for a better one ends."""
    best = interval(p, domain)[0]
    if reached(best, goal):
        return best
    simple = is_simple(p, domain)
    if not simple:
        best = better(best, Search(domain, STEPS).run(p, goal, domain, 0))
    if domain.inequalities and not reached(best, goal) and (p.keys() != {ONE} and p):
        best = better(best, Search(domain, STEPS).run(p, goal, domain, FACTS_DEEP))
    return best


def upper(p: Poly, domain: Domain, goal: int | None = None) -> int | None:
    found = lower(scale(p, -1), domain, None if goal is None else -goal)
    return None if found is None else -found


def reached(value: int | None, goal: int | None) -> bool:
    return value is not None and goal is not None and value >= goal


def better(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def is_simple(p: Poly, domain: Domain) -> bool:
    """Whether intervals are all there is to know, facts aside."""
    symbolic = domain.symbolic
    for m in p:
        if len(m) > 1:
            return False
        if m:
            atom = m[0]
            if isinstance(atom, Composite):
                if atom.kind not in ("load", "expr"):
                    return False
            elif atom in symbolic:
                return False
    return True


# --- intervals ------------------------------------------------------------------------------------


def interval(p: Poly, domain: Domain) -> Interval:
    """Constant bounds of the monomials, summed."""
    low: int | None = 0
    high: int | None = 0
    for m, c in p.items():
        if len(m) == 1:
            a, b = domain.interval(m[0])
        elif not m:
            a = b = 1
        else:
            a, b = domain.interval(m[0])
            for atom in m[1:]:
                a, b = times((a, b), domain.interval(atom))
        if c < 0:
            a, b = b, a
        low = None if low is None or a is None else low + c * a
        high = None if high is None or b is None else high + c * b
    return low, high


def times(x: Interval, y: Interval) -> Interval:
    a, b = x
    c, d = y
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    return UNKNOWN


def atom_interval(atom: Atom, domain: Domain) -> Interval:
    """What is known of an atom by itself; `Domain.interval` adds facts and remembers."""
    if isinstance(atom, Var):
        extent = domain.extent_of(atom)
        if extent is None:
            return UNKNOWN if atom.dtype == "int64" else integer_limits(atom.dtype)
        high = upper(extent, domain)
        return 0, None if high is None else max(high - 1, 0)
    assert isinstance(atom, Composite)
    kind, args = atom.kind, atom.args
    if kind == "//":
        low, high = lower(args[0], domain), upper(args[0], domain)
        return (
            None if low is None else low // args[1],
            None if high is None else high // args[1],
        )
    if kind in ("min", "max"):
        return extremum_interval(kind, args[0], args[1], domain)
    if kind == "select":
        condition, a, b = args
        yes, no = domain.with_fact(condition), domain.with_fact(~condition)
        lows = (lower(a, yes), lower(b, no))
        highs = (upper(a, yes), upper(b, no))
        return (
            None if lows[0] is None or lows[1] is None else min(lows[0], lows[1]),
            None if highs[0] is None or highs[1] is None else max(highs[0], highs[1]),
        )
    if kind == "div":
        return quotient_interval(args[0], args[1], domain)
    if kind == "load":
        data = args[0].data
        if data is not None and data.size:
            return int(data.min()), int(data.max())
        return UNKNOWN if args[0].dtype == "int64" else integer_limits(args[0].dtype)
    expr = args[0]
    if getattr(expr, "name", None) == "abs" and expr.dtype == "int64":
        return 0, None
    if getattr(getattr(expr, "a", None), "dtype", None) == "bool":
        return 0, 1  # a cast condition
    return UNKNOWN if expr.dtype == "int64" else integer_limits(expr.dtype)


def extremum_interval(kind: str, a: Poly, b: Poly, domain: Domain) -> Interval:
    pick = min if kind == "min" else max
    lows = [lower(a, domain), lower(b, domain)]
    highs = [upper(a, domain), upper(b, domain)]
    # One bound of the minimum needs both operands, the other is given by either.
    both, either = (lows, highs) if kind == "min" else (highs, lows)
    known = [x for x in either if x is not None]
    needs = None if None in both else pick([x for x in both if x is not None])
    has = pick(known) if known else None
    return (needs, has) if kind == "min" else (has, needs)


def quotient_interval(a: Poly, b: Poly, domain: Domain) -> Interval:
    """Of a floor division by a polynomial: known only if that is certainly positive."""
    least = lower(b, domain, 1)
    if least is None or least < 1:
        return UNKNOWN
    most = upper(b, domain)
    low, high = lower(a, domain), upper(a, domain)
    if low is not None:
        low = low // least if low < 0 else low // most if most is not None else 0
    if high is not None:
        high = high // least if high >= 0 else high // most if most is not None else -1
    return low, high


# --- elimination ----------------------------------------------------------------------------------


class Search:
    """One bounded search. `domain` at each step may carry more facts than the first (a select's)."""

    def __init__(self, domain: Domain, steps: int) -> None:
        self.domain = domain
        self.steps = steps

    def run(self, p: Poly, goal: int | None, domain: Domain, deep: int) -> int | None:
        best = interval(p, domain)[0]
        if reached(best, goal) or self.steps <= 0 or not p:
            return best
        self.steps -= 1
        if deep:
            for q, by in self.less_facts(p, domain):
                value = self.run(q, None if goal is None else by * (goal - 1) + 1, domain, deep - 1)
                if value is not None:
                    best = better(best, -(-value // by))
                    if reached(best, goal):
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
                    if reached(best, goal):
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
                found.append((add(scale(p, by), fact, -(abs(c) // g)), by))
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
                    if atom.kind in ("load", "expr"):
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
        parts = split(p, atom)
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
            yes = (add(multiply(factor, a), rest), 1, domain.with_fact(condition))
            no = (add(multiply(factor, b), rest), 1, domain.with_fact(~condition))
            return [[yes, no]]
        if kind in ("min", "max"):
            a, b = [(add(multiply(factor, x), rest), 1, domain) for x in args]
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
            out = add(out, term)
        return {m: c for m, c in out.items() if c}, 1, domain

    def sign(self, factor: Poly, domain: Domain) -> int | None:
        """1 if the factor is nowhere negative, -1 if nowhere positive, None if not known."""
        value = as_constant(factor)
        if value is not None:
            return 1 if value >= 0 else -1
        if reached(self.run(factor, 0, domain, 0), 0):
            return 1
        if reached(self.run(scale(factor, -1), 0, domain, 0), 0):
            return -1
        return None

    def variable(
        self, var: Var, factor: Poly, rest: Poly, sign: int | None, domain: Domain
    ) -> list[Cases]:
        low, high = domain.interval(var)
        ways: list[Poly] = []
        if sign is None:
            if low is not None and high is not None and low == high:
                ways.append(scale(factor, low))
            else:
                a, b = times(interval(factor, domain), (low, high))
                ways += [{ONE: a}] if a else [{}] if a == 0 else []
        elif sign > 0:
            ways += [scale(factor, low)] if low is not None else []
        else:
            extent = domain.extent_of(var)
            if extent is not None:
                ways.append(multiply(factor, shift(extent, -1)))
            if high is not None and (extent is None or as_constant(extent) is None):
                ways.append(scale(factor, high))
            elif high is not None:
                ways = [scale(factor, high)]
        return [[(add(way, rest), 1, domain)] for way in ways]

    def quotient(
        self, atom: Composite, factor: Poly, rest: Poly, sign: int | None, domain: Domain
    ) -> list[Cases]:
        x, d = atom.args
        ways: list[Cases] = []
        if sign is not None:
            near = shift(x, 1 - d) if sign > 0 else x
            ways.append([(add(multiply(factor, near), rest, d), d, domain)])
        low, high = domain.interval(atom)
        end = None if sign is None else low if sign > 0 else high
        if end is not None:
            ways.append([(add(scale(factor, end), rest), 1, domain)])
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
            if k and not add(factor, y, -k) and reached(self.run(y, 1, domain, 0), 1):
                near = shift(add(x, y, -1), 1) if k > 0 else x
                ways.append([(add(rest, near, k), 1, domain)])
        low, high = domain.interval(atom)
        end = None if sign is None else low if sign > 0 else high
        if end is not None:
            ways.append([(add(scale(factor, end), rest), 1, domain)])
        return ways
