"""What follows from the definitions of variables that were split or fused.

A `Split` variable is a number with digits, a `FusedDigit` a digit of a fused loop; the loops at the bottom
are the *leaf loops*. A block below a split runs only where the number is below its extent, so a variable
takes every value below its extent whatever it was made of.

    split(i of 60, [4, 16])  i = i0 * 16 + i1      Split((i0, i1)), where i0 * 16 + i1 < 60
    fuse(j of 6, k of 10)    j = f // 10           FusedDigit(f, (j, k), 0)
                             k = f % 10            FusedDigit(f, (j, k), 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir import Block, Expr, Var, as_int
from .constraint import Constraint, constraints_of
from .form import form_of, variables

if TYPE_CHECKING:
    from .nest import Nest, Variables


@dataclass(slots=True, eq=False)
class Split:
    """The variable is the number with these digits, the first the most significant."""

    digits: tuple[Var, ...]


@dataclass(slots=True, eq=False)
class FusedDigit:
    """The variable is digit `index` of `whole`, whose digits were `digits`."""

    whole: Var
    digits: tuple[Var, ...]
    index: int


Definition = Split | FusedDigit


def leaf_loops_of(s: Nest, exprs: Iterable[Expr]) -> set[Var]:
    """The loops that expressions depend on."""
    found: set[Var] = set()
    for e in exprs:
        for v in variables(e):
            found.update(s.leaf_loops(v))
    return found


def leaf_loops_by_kind(s: Nest, block: Block) -> tuple[set[Var], set[Var]]:
    """The loops behind the spatial and behind the reduce iterators."""
    spatial: set[Var] = set()
    reducing: set[Var] = set()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        found = spatial if it.kind == "spatial" else reducing
        for v in variables(binding):
            found.update(s.leaf_loops(v))
    return spatial, reducing


def determines(s: Nest, known: Iterable[Var], wanted: Iterable[Var]) -> bool:
    """Whether the values of all `wanted` variables follow from those of `known` ones: a number tells its
    digits, all digits of a fused loop the loop; what has one value follows from nothing."""
    definitions = s.definitions
    told = set(known)
    missing = set(wanted) - told
    waiting = list(told)
    parts: dict[Var, set[int]] = {}
    while missing and waiting:
        definition = definitions.get(waiting.pop())
        if definition is None:
            continue
        new = definition.digits
        if type(definition) is FusedDigit:
            have = parts.setdefault(definition.whole, set())
            have.add(definition.index)
            if any(n not in have and s.fixed_extent(d) != 1 for n, d in enumerate(new)):
                continue
            new = (definition.whole,)
        for var in new:
            if var not in told:
                told.add(var)
                missing.discard(var)
                waiting.append(var)
    return all(s.fixed_extent(v) == 1 for v in missing)


def split_digits(s: Nest, var: Var) -> list[tuple[Var, int]] | None:
    """The digits of a variable that was split, the least significant first, with what each counts for; None
    if it was not, or that is no constant."""
    known = s.definitions.get(var)
    strides = digit_strides(s, known.digits) if type(known) is Split else None
    return None if known is None or strides is None else [*zip(known.digits, strides, strict=True)][::-1]


def digit_strides(s: Variables, digits: Sequence[Var]) -> list[int] | None:
    """What each digit of a number counts for; None if that is no constant.

    digits of extents 4, 5, 6: 30, 6, 1"""
    found = [1]
    for digit in reversed(digits[1:]):
        extent = s.extents.get(digit)
        size = None if extent is None else as_int(extent)
        if size is None:
            return None
        found.append(found[-1] * size)
    return found[::-1]


def consists_of(s: Nest, roots: Iterable[Var]) -> set[Var]:
    """The variables that `roots` are made of, themselves and the loops included."""
    found: set[Var] = set()
    waiting = list(roots)
    while waiting:
        var = waiting.pop()
        if var not in found:
            found.add(var)
            known = s.definitions.get(var)
            if known is not None:
                waiting += known.digits if isinstance(known, Split) else (known.whole,)
    return found


def are_independent(s: Nest, roots: Iterable[Var]) -> bool:
    """Whether all combinations of values of the variables occur while their loops run: none is needed twice,
    but that they may be different digits of one fused loop."""
    taken: set[Var] = set()
    divided: set[Var] = set()  # fused loops of which parts are taken
    parts: set[tuple[Var, int]] = set()
    waiting = list(roots)
    while waiting:
        var = waiting.pop()
        if var in taken or var in divided:
            return False
        taken.add(var)
        known = s.definitions.get(var)
        while type(known) is FusedDigit:
            if known.whole in taken or (known.whole, known.index) in parts:
                return False
            parts.add((known.whole, known.index))
            if known.whole in divided:
                known = None
            else:
                divided.add(known.whole)
                known = s.definitions.get(known.whole)
        if known is not None:
            waiting += known.digits
    return True


def is_definition_test(s: Nest, test: Expr) -> bool:
    """Whether a conjunct only says that a variable is below its extent."""
    found = constraints_of(test)
    return found is not None and all(is_definition_limit(s, constraint) for constraint in found)


def is_definition_limit(s: Nest, constraint: Constraint) -> bool:
    """Whether a constraint follows from a variable being below its extent: i < n + 2, and i - n < 3, do from
    an extent of n + 2."""
    (terms, _), low, high = constraint
    if low != -math.inf:
        return not terms and low <= 0
    if len(terms) == 1:  # mostly
        ((var, factor),) = terms
        fixed = s.fixed_extent(var) if factor == 1 and type(var) is Var else None
        return fixed is not None and high >= fixed - 1
    for var, factor in terms:
        extent = s.extents.get(var) if factor == 1 and type(var) is Var else None
        if extent is not None:
            limit = form_of(extent)
            others = {x: -c for x, c in terms if x is not var}
            return dict(limit.terms) == others and high >= limit.const - 1
    return False


def excludes_nothing(s: Nest, tests: Iterable[Expr], roots: Sequence[Var]) -> bool:
    """Whether `roots` take all their values where some tests hold: each says that a variable is below its
    extent, and the variable is one that they are made of, or that has nothing to do with them.

    h = h0 * 3 + h1 where h < 7: leaves out no h, but some of h0 and h1"""
    parts = known = {*roots}
    for test in tests:
        if not is_definition_test(s, test):
            return False
        for var in variables(test):
            if var in known:
                continue
            if parts is known:
                parts = consists_of(s, roots)
            if var not in parts and not divides(s, var) and not parts.isdisjoint(s.leaf_loops(var)):
                return False
    return True


def divides(s: Nest, var: Var) -> bool:
    """Whether a variable was split into loops of which each combination is a value of it."""
    known, extent = s.definitions.get(var), s.fixed_extent(var)
    if not isinstance(known, Split) or extent is None:
        return False
    sizes = [s.fixed_extent(d) for d in known.digits]
    return None not in sizes and math.prod([n for n in sizes if n is not None]) <= extent
