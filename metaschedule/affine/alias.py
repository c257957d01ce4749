"""`may_alias`: whether different iterations of a loop touch one element.

for i in range(8):           write X[4 * i + j], 0 <= j < 4: iterations i and i + d meet where
    for j in range(4):       4 * i + j = 4 * (i + d) + j', so 4 * d = j - j' <= 3: for no d >= 1
        X[4 * i + j] = ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..ir import Expr, Region, Var, as_int
from .instance import WIDE, Instance, Linear
from .nest import Nest
from .system import System


class Access(NamedTuple):
    """A region that the instances of a block touch, over iterators that are bound to `iters`, where all
    `guards` hold."""

    region: Region
    iters: Mapping[Var, Expr]
    guards: tuple[Expr, ...]
    is_write: bool


def may_alias(nest: Nest, around: Sequence[Var], moving: Var, a: Access, b: Access) -> bool | None:
    """Whether two accesses touch one element in different iterations of the loop `moving`, the loops around
    it standing still: True if they do, False if they certainly do not, None if that is not known."""
    extent = nest.extents[moving]
    last = as_int(extent)
    last = WIDE if last is None else last - 1
    known: bool | None = False
    for low, high in ((1, last), (-last, -1)):
        if low > high or (a is b and low < 0):
            continue  # a meets itself in either order alike
        found = meeting(nest, around, moving, a, b, (low, high)).is_empty()
        if found is False:
            return True
        known = None if found is None else known
    return known


def meeting(
    nest: Nest, around: Iterable[Var], moving: Var, a: Access, b: Access, distance: tuple[int, int]
) -> System:
    """The instances of `a`, and those of `b` so many iterations later, that touch one element."""
    system = System()
    first = Instance(system, nest)
    common = {v: first.variable(v) for v in around}
    here = first.variable(moving)
    there = here.plus(first.fresh(*distance))
    extent = as_int(nest.extents[moving])
    if extent is not None:
        first.require(there, 0, extent - 1)
    one = Instance(system, nest, {**common, moving: here}, a.iters)
    other = Instance(system, nest, {**common, moving: there}, b.iters, twin=one)
    for instance, access in ((one, a), (other, b)):
        for test in access.guards:
            instance.assume(test)
    for mine, theirs in zip(a.region.ranges, b.region.ranges, strict=True):
        meet(one, mine, other, theirs)
    return system


def meet(one: Instance, mine: tuple[Expr, Expr], other: Instance, theirs: tuple[Expr, Expr]) -> None:
    """Require that two ranges have an index in common: start + k = start' + k', each k below its extent."""
    index = one.value(mine[0]).plus(other.value(theirs[0]), -1)
    one.require(index.plus(offset(one, mine[1])).plus(offset(other, theirs[1]), -1), 0, 0)


def offset(instance: Instance, extent: Expr) -> Linear:
    """A number from 0 on, below an extent."""
    count = as_int(extent)
    if count == 1:
        return Linear({})
    new = instance.fresh(0, WIDE if count is None else count - 1)
    if count is None:
        instance.require(new.plus(instance.value(extent), -1), -float("inf"), -1)
    return new
