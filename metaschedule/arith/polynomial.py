"""Integer polynomials over atoms: the canonical form in which index expressions are compared.

A polynomial is a dict from monomial to a nonzero integer coefficient; a monomial is a tuple of
atoms (the empty one carries the constant). An atom is a variable or a `Composite`: something of
integer value that is not a sum of products, such as `x // 4` or `A[i]`. Two polynomials are the
same value if they are the same dict; the order of a dict is the order of first appearance and
decides only how it prints.

Read `Composite` first. Nothing here knows of ranges; `bounds.py` does. Beware that atoms include
`Var`, whose `==` builds an expression: atoms are compared by dict and set lookups, never by `in`
on a tuple.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ..ir import Expr, Var, free_vars


class Composite:
    """An integer that is opaque to polynomial arithmetic. `kind` says what `args` hold:

    - "//": (polynomial, positive int); "div": (polynomial, polynomial), a divisor of unknown value
    - "min", "max": (polynomial, polynomial); "select": (condition, polynomial, polynomial)
    - "load": (buffer, index polynomials); "expr": (any other integer expression,)

    `key` is what equality means: equal keys, equal values at every point.
    """

    __slots__ = ("args", "hash", "height", "key", "kind", "name", "vars")

    def __init__(self, kind: str, args: tuple[Any, ...], key: Hashable) -> None:
        self.kind = kind
        self.args = args
        self.key = key
        self.hash = hash((kind, key))
        self.vars: dict[Var, None] = {}
        self.height = 1  # a composite is never inside one of the same height
        for arg in args:
            if type(arg) is dict:
                self._take(arg)
            elif isinstance(arg, Expr):
                self.vars.update(dict.fromkeys(free_vars(arg)))
            elif kind == "load" and type(arg) is tuple:
                for index in arg:
                    self._take(index)
        self.name = f"{kind} {' '.join([v.name for v in self.vars])}"

    def _take(self, p: Poly) -> None:
        for atom in atoms(p):
            if isinstance(atom, Composite):
                self.vars.update(atom.vars)
                self.height = max(self.height, atom.height + 1)
            else:
                self.vars[atom] = None  # pyright: ignore[reportArgumentType]

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Composite)
            and self.hash == other.hash
            and self.kind == other.kind
            and self.key == other.key
        )


Atom = Var | Composite
Monomial = tuple[Atom, ...]
Poly = dict[Monomial, int]

ONE: Monomial = ()


def constant(value: int) -> Poly:
    return {ONE: value} if value else {}


def as_constant(p: Poly) -> int | None:
    """The value of a polynomial without atoms."""
    if not p:
        return 0
    return p.get(ONE) if len(p) == 1 else None


def add(p: Poly, q: Poly, times: int = 1) -> Poly:
    """p + times * q"""
    out = p.copy()
    for m, c in q.items():
        total = out.get(m, 0) + times * c
        if total:
            out[m] = total
        elif m in out:
            del out[m]
    return out


def shift(p: Poly, value: int) -> Poly:
    """p + value"""
    return add(p, {ONE: value}) if value else p


def scale(p: Poly, times: int) -> Poly:
    if times == 1:
        return p
    return {m: c * times for m, c in p.items()} if times else {}


def multiply(p: Poly, q: Poly) -> Poly:
    if (value := as_constant(q)) is not None:
        return scale(p, value)
    if (value := as_constant(p)) is not None:
        return scale(q, value)
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            mono = product(m, n)
            total = out.get(mono, 0) + c * d
            if total:
                out[mono] = total
            else:
                del out[mono]
    return out


def product(m: Monomial, n: Monomial) -> Monomial:
    """Factors in the order of their names, so that `i * n` and `n * i` are one monomial.

    Two variables of one name may stay in either order: an equality is missed, none is invented.
    """
    if not m or not n:
        return m or n
    return tuple(sorted(m + n, key=lambda atom: atom.name))


def freeze(p: Poly) -> Hashable:
    """What two equal polynomials have in common, whatever their order."""
    return frozenset(p.items())


def atoms(p: Poly) -> Iterable[Atom]:
    """The atoms of the monomials, each once, in order of first appearance."""
    return dict.fromkeys([atom for m in p for atom in m])


def variables(p: Poly) -> dict[Var, None]:
    """Every variable on which the value depends, also inside composites."""
    found: dict[Var, None] = {}
    for atom in atoms(p):
        if isinstance(atom, Composite):
            found.update(atom.vars)
        else:
            found[atom] = None  # pyright: ignore[reportArgumentType]
    return found


def split(p: Poly, atom: Atom) -> tuple[Poly, Poly] | None:
    """(A, B) with p = A * atom + B, if p is linear in the atom (which may be inside composites)."""
    only = {atom}
    factor: Poly = {}
    rest: Poly = {}
    for m, c in p.items():
        without = [x for x in m if x not in only]
        missing = len(m) - len(without)
        if missing == 0:
            rest[m] = c
        elif missing == 1:
            factor[tuple(without)] = c
        else:
            return None
    return factor, rest
