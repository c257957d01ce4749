"""Where a claim is made: loop variables with extents, and facts.

Read `Domain` first. `bounds.py` has the algorithm behind `bounds`, `prove.py` the one behind
`prove`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping

from ..ir import Expr, Var
from . import polynomial as poly
from .bounds import both, lower, upper
from .canonical import canonical
from .comparison import tighten
from .interval import Interval, interval
from .polynomial import ONE, Atom, Composite, Poly
from .prove import consequences, holds, remember
from .ranges import atom_interval

CASES = 2


class Domain:
    """Loop variables with their extents (outermost first), and facts known of them. Immutable.

    A variable ranges over [0, extent). An extent may be any integer expression of outer variables,
    of free variables (unknown integers) or of loads. A point of the domain gives every variable a
    value in its range such that all facts hold; so each extent is at least 1 at every point, and
    where there is no point every claim is true.

    >>> i, j = Var("i"), Var("j")
    >>> triangle = Domain({i: 8, j: i + 1})
    >>> triangle.bounds(i - j)
    (0, 7)
    >>> triangle.prove(j <= i)
    True
    """

    __slots__ = (
        "cases", "empty", "extents", "facts", "inequalities", "intervals", "known", "mentioned", "polys",
        "position", "ranges", "singletons", "symbolic",
    )  # fmt: skip

    def __init__(self, extents: Mapping[Var, Expr | int] = {}, facts: Iterable[Expr] = ()) -> None:
        self.extents: dict[Var, Expr | int] = {}
        self.facts: tuple[Expr, ...] = ()
        self.polys: dict[Var, Poly] = {}  # extents
        self.position: dict[Var, int] = {}  # depth of the loop
        self.symbolic: set[Var] = set()  # variables whose extent is not a constant
        self.singletons: dict[Atom, int] = {}  # atoms that have one value
        self.ranges: dict[Atom, Interval] = {}  # what facts say of single atoms
        self.inequalities: list[Poly] = []  # what facts say of sums: each is >= 0
        self.mentioned: dict[Var, None] = {}  # variables of the inequalities
        self.known: dict[Hashable, bool] = {}  # conditions that are not of integers
        self.intervals: dict[Atom, Interval] = {}  # memory of `interval`
        self.empty = False
        self.cases = 0  # how many selects deep we are
        for var, extent in extents.items():
            self._declare(var, extent)
        for fact in facts:
            self._assume(fact)

    @staticmethod
    def keeping_names(extents: Mapping[Var, Expr | int]) -> Domain:
        """A domain in which a variable of extent 1 keeps its name, where `simplify` puts 0 elsewhere."""
        new = Domain(extents)
        new.singletons.clear()
        return new

    def with_loop(self, var: Var, extent: Expr | int) -> Domain:
        """This domain with one more loop, innermost."""
        new = self._copy()
        new._declare(var, extent)
        return new

    def with_fact(self, condition: Expr) -> Domain:
        """The points of this domain at which `condition` holds."""
        new = self._copy()
        new._assume(condition)
        return new

    def bounds(self, e: Expr) -> tuple[int | None, int | None]:
        """Constants that an integer expression never goes below or above (None: not known)."""
        p = canonical(e, self)
        return both(p, self)

    def is_between(self, e: Expr, low: int, high: int) -> bool:
        """True only if an integer expression is at least `low` and at most `high` at every point: what
        `bounds` would show, but the search ends as soon as it is known.

        >>> i, j = Var("i"), Var("j")
        >>> Domain({i: 4, j: 3}).is_between(i * 3 + j, 0, 11)
        True
        """
        p = canonical(e, self)
        least = lower(p, self, low)
        if least is None or least < low:
            return False
        most = upper(p, self, high)
        return most is not None and most <= high

    def exact_bounds(self, e: Expr) -> tuple[int, int] | None:
        """Smallest and largest value, if both are certainly attained (in a domain with any point).

        That is known of linear expressions of variables with constant extents that no fact and no
        other extent restricts.
        """
        p = canonical(e, self)
        if self.empty:
            return None
        for m in p:
            if len(m) > 1 or (m and (isinstance(m[0], Composite) or m[0] in self.symbolic)):
                return None
            if m and m[0] not in self.polys:
                return None
        used = poly.variables(p).keys()
        restricted: dict[Var, None] = {}
        for fact in self.inequalities:
            restricted.update(poly.variables(fact))
        for atom in self.ranges:
            restricted.update(poly.variables({(atom,): 1}))
        # A fact that is not of integers may restrict anything it mentions; we do not look inside.
        if used & restricted.keys() or (used and self.known):
            return None
        low, high = interval(p, self)
        return None if low is None or high is None else (low, high)

    def values(self, e: Expr, low: int, high: int) -> range:
        """Those from `low` to `high` that a sum can have, as far as its coefficients tell.

        >>> i, j = Var("i"), Var("j")
        >>> Domain({i: 5, j: 2}).values(i * 6 + j * 4 + 1, 0, 9)
        range(1, 10, 2)
        """
        p = canonical(e, self)
        step = math.gcd(*[c for m, c in p.items() if m]) or 1
        return range(low + (p.get((), 0) - low) % step, high + 1, step)

    def prove(self, condition: Expr) -> bool:
        """True only if `condition` holds at every point; False says nothing."""
        return holds(condition, self)

    # --- for the rest of the package ---

    def extent_of(self, var: Var) -> Poly | None:
        return self.polys.get(var)

    def interval(self, atom: Atom) -> Interval:
        """Constant bounds of an atom."""
        found = self.intervals.get(atom)
        if found is None:
            self.intervals[atom] = None, None  # an extent that mentions its own variable ends here
            low, high = atom_interval(atom, self)
            if atom in self.ranges:
                low, high = intersection((low, high), self.ranges[atom])
            found = self.intervals[atom] = (low, high)
        return found

    def case(self, condition: Expr) -> Domain:
        """As `with_fact`, for one branch of a select. Facts may be about that very select, so that
        cases of cases would have no end: past a few this is the domain itself."""
        if self.cases == CASES:
            return self
        new = self._copy()
        new.cases += 1
        new._assume(condition)
        return new

    def _copy(self) -> Domain:
        new = Domain.__new__(Domain)
        new.extents = self.extents.copy()
        new.facts = self.facts
        new.polys = self.polys.copy()
        new.position = self.position.copy()
        new.symbolic = self.symbolic.copy()
        new.singletons = self.singletons.copy()
        new.ranges = self.ranges.copy()
        new.inequalities = self.inequalities.copy()
        new.mentioned = self.mentioned.copy()
        new.known = self.known.copy()
        new.intervals = {}
        new.empty = self.empty
        new.cases = self.cases
        return new

    def _declare(self, var: Var, extent: Expr | int) -> None:
        p = poly.constant(extent) if isinstance(extent, int) else canonical(extent, self)
        self.extents[var] = extent
        self.polys[var] = p
        self.position[var] = len(self.position)
        self.intervals = {}
        value = poly.as_constant(p)
        if value is None:
            self.symbolic.add(var)
            self._learn(poly.shift(p, -1))
        elif value <= 0:
            self.empty = True
        elif value == 1:
            self.singletons[var] = 0

    def _assume(self, fact: Expr) -> None:
        self.facts = (*self.facts, fact)
        polys, others = consequences(fact, self)
        for p in polys:
            self._learn(p)
        for condition, truth in others:
            key, truth = remember(condition, truth, self)
            self.known[key] = truth

    def _learn(self, p: Poly) -> None:
        """Note that p >= 0."""
        p = tighten(p)
        low = interval(p, self)[0]
        if low is not None and low >= 0:
            return
        self.intervals = {}
        if poly.as_constant(p) is not None:
            self.empty = True
        elif len(p) - (ONE in p) == 1 and len(m := next(m for m in p if m)) == 1:
            self._narrow(m[0], p[m], p.get(ONE, 0))
        else:
            others = self.inequalities
            self.inequalities = [*others, p]
            self.mentioned.update(poly.variables(p))
            for other in others:
                for q in combinations(p, other):
                    if len(q) - (ONE in q) == 1:  # two facts on sums are one on a single atom
                        self._learn(q)

    def _narrow(self, atom: Atom, c: int, k: int) -> None:
        """Note that c * atom + k >= 0, where c is 1 or -1."""
        new: Interval = (-k, None) if c > 0 else (None, k)
        self.ranges[atom] = intersection(self.ranges.get(atom, (None, None)), new)
        low, high = self.interval(atom)
        if low is not None and high is not None:
            if low > high:
                self.empty = True
            elif low == high:
                self.singletons[atom] = low
        if not isinstance(atom, Composite):
            return
        # What is inside the atom is restricted as well.
        if atom.kind == "//":
            x, d = atom.args
            self._learn(poly.shift(x, d * k) if c > 0 else poly.add(poly.constant(d * k + d - 1), x, -1))
        elif atom.kind == ("min" if c > 0 else "max"):
            for x in atom.args:
                self._learn(poly.shift(poly.scale(x, c), k))


def combinations(p: Poly, q: Poly) -> Iterator[Poly]:
    """Sums of positive multiples of p and q in which a monomial cancels."""
    for m, c in p.items():
        d = q.get(m, 0) if m else 0
        if c * d < 0:
            yield poly.add(poly.scale(p, abs(d)), q, abs(c))


def intersection(a: Interval, b: Interval) -> Interval:
    lows = [x for x in (a[0], b[0]) if x is not None]
    highs = [x for x in (a[1], b[1]) if x is not None]
    return max(lows, default=None), min(highs, default=None)
