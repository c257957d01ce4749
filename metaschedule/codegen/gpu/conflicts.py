"""Whether two accesses of different threads, or of different blocks, may be to one element.

Both are written as an instance each of one system (`affine`): blocks in common, threads that differ, in x or
in y or in z, indices that are equal. If it has no solution, the accesses meet in one thread only.

    S[t] = ...; ... = S[t]        t = t' + d, d >= 1 and t = t' : no solution, no barrier
    S[t] = ...; ... = S[63 - t]   t = 63 - t', t' = t + d       : t = 0, d = 63; a barrier
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ... import ir
from ...affine.instance import WIDE, Instance
from ...affine.nest import NO_LOOPS
from ...affine.system import System
from ...arith import Domain, simplify
from ..lower.accesses import Use
from ..lower.scope import assume, inside
from .model import Axes


def may_meet(a: Use, b: Use, axes: Axes, apart: Collection[str], common: Collection[ir.Var] = ()) -> bool:
    """Whether the accesses `a` and `b` may touch one element where an axis of `apart` differs. Loops of
    `common` and other axes of the same unit are in the same iteration for both."""
    if not apart or a.buffer is not b.buffer or not (a.is_store or b.is_store):
        return False
    units = {axis.partition(".")[0] for axis in apart}
    if ir.loads(*a.indices, *b.indices):
        # Whatever is loaded: they meet only where the other indices are equal.
        first = with_plain_indices(a, b)
        return meet_by(first, first if a is b else with_plain_indices(b, a), axes, apart, common, units)
    flat = flatten_use(a, axes), flatten_use(b, axes) if a is not b else None
    if not meet_by(flat[0], flat[1] or flat[0], axes, apart, common, units):
        return False
    return meet_by(a, b, axes, apart, common, units)


def meet_by(
    a: Use, b: Use, axes: Axes, apart: Collection[str], common: Collection[ir.Var], units: set[str]
) -> bool:
    for at, axis in enumerate(apart):
        for first, then in ((a, b), (b, a)) if a is not b else ((a, b),):
            if not is_apart(first, then, axes, (tuple(apart), at, axis), common, units):
                return True
    return False


def with_plain_indices(use: Use, other: Use) -> Use:
    """An access in the dimensions in which neither it nor another one has an index that is loaded."""
    pairs = zip(use.indices, other.indices, strict=True)
    return replace(use, indices=tuple([index for index, there in pairs if not ir.loads(index, there)]))


def flatten_use(use: Use, axes: Axes) -> Use:
    """An access by its place in the dense buffer: what was cut into digits is often whole again there.

    (f // 690 % 230) * 690 + (f // 3 % 230) * 3 + f % 3 = f for f < 158700
    """
    place: ir.Expr = ir.const(0)
    for index, stride in zip(use.indices, ir.dense_strides(use.buffer.shape), strict=True):
        place = place + index * stride
    domain = Domain({axes.vars[name]: size for name, size in axes.extents.items()})
    for loop in use.loops:
        if loop.kind not in ir.GPU_AXES:
            domain = inside(domain, loop)
    for guard in use.guards:
        domain = assume(domain, guard)
    return replace(use, indices=(simplify(place, domain),))


def is_apart(
    a: Use,
    b: Use,
    axes: Axes,
    which: tuple[tuple[str, ...], int, str],
    common: Collection[ir.Var],
    units: set[str],
) -> bool:
    """Whether no element is common where one axis is greater for `b` and those before it are equal."""
    apart, at, axis = which
    system = System()
    one = Instance(system, NO_LOOPS)
    other = Instance(system, NO_LOOPS, twin=one)
    for name, var in axes.vars.items():
        size = axes.extents[name]
        here = one.known[var] = one.fresh(0, size - 1, var)
        if name == axis:
            if size <= 1:
                return True
            other.known[var] = here.plus(one.fresh(1, size - 1))
            one.require(other.known[var], 0, size - 1)
        elif name in apart and apart.index(name) > at:
            other.known[var] = other.fresh(0, size - 1, var)
        elif name.partition(".")[0] in units or is_outer(name, units):
            other.known[var] = here
        else:
            other.known[var] = other.fresh(0, size - 1, var)
    shared = list(common)
    for use, instance in ((a, one), (b, other)):
        used = {v for e in (*use.indices, *use.guards) for v in ir.free_vars(e)}
        for loop in use.loops:
            if loop.var in instance.known or loop.var not in used:
                continue
            count = loop.fixed_extent
            if instance is other and any(v is loop.var for v in shared) and loop.var in one.known:
                instance.known[loop.var] = one.known[loop.var]
            else:
                instance.known[loop.var] = instance.fresh(0, (WIDE if count is None else count) - 1, loop.var)
        for guard in use.guards:
            instance.assume(guard)
    for mine, theirs in zip(a.indices, b.indices, strict=True):
        # An instance knows what it has in common with its twin by the object.
        same = mine if ir.same_expr(mine, theirs) else theirs
        one.require(one.value(mine).plus(other.value(same), -1), 0, 0)
    return system.is_empty() is True


def is_outer(name: str, units: set[str]) -> bool:
    """Whether an axis is of blocks, where threads are asked about."""
    return name.startswith("blockIdx") and "threadIdx" in units
