"""Which loops drive which iterators of a block, and whether every instance runs, and once.

Bindings speak of variables that may have been split or fused; the loops behind them are their *leaves*.

    i of 30, split into i0 of 4 and i1 of 8, where i0 * 8 + i1 < 30: 32 runs of the loops, each of the 30
    points once: splits and fuses lose none (`is_bound_plainly`), so nothing has to be proved
    v bound to i0 * 6 + i1 instead: 6 and 7 come twice (0 * 6 + 6, 1 * 6 + 0), so it is for `covers` to say
    whether every point is reached, and for `is_injective` whether once
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ... import ir
from ...affine.access import make_access
from ...affine.constraint import bound_of
from ...affine.cover import covers
from ...affine.definitions import (
    FusedDigit,
    are_independent,
    determines,
    excludes_nothing,
    leaf_loops_by_kind,
    leaf_loops_of,
)
from ...affine.footprint import clip, find_bounded_iterator
from ...affine.form import NO_ITERATORS, form_of, iteration, variables
from ...affine.injective import is_one_to_one
from ...affine.interned import number
from ...affine.nest import Nest
from ...affine.view import Interval, View
from ...arith import Domain, simplify
from ...errors import ScheduleError
from ..state import ROOT, Key, State
from .effects import touch

ZERO, ONE = ir.const(0), ir.const(1)


def check_kinds_apart(s: State, block: ir.Block) -> tuple[set[ir.Var], set[ir.Var]]:
    """`leaf_loops_by_kind`; raises if a loop drives iterators of both kinds, or loaded values do."""
    for e in (*block.bindings, *block.predicate) if touch(block).loaded else ():
        if ir.loads(e):
            raise ScheduleError(
                f"where block {block.name!r} runs depends on loaded values: {e}",
                marks={block.name: "its bindings or predicate load"},
            )
    spatial, reducing = leaf_loops_by_kind(s, block)
    for var in s.loops_around(block.name) if not spatial.isdisjoint(reducing) else ():
        if var in spatial and var in reducing:
            raise ScheduleError(
                f"the loop over {var.name} drives spatial and reduction iterators of block {block.name!r}",
                marks={var: "both spatial and reduction"},
                help="do not fuse loops of the two kinds",
            )
    return spatial, reducing


def enclosing_iters(s: State, key: Key) -> tuple[ir.Iter, ...]:
    """The iterators of the block that a node is in."""
    scope = s.scope(key)
    return s.nodes[scope].iters if scope is not ROOT else ()


def domain_within(s: State, key: Key) -> Domain:
    """The loops around a node, and the iterators of the block that they are in."""
    domain = Domain({it.var: it.extent for it in enclosing_iters(s, key)})
    for var in s.loops_around(key):
        domain = domain.with_loop(var, s.resolve(s.extents[var]))
    return domain


# --- every instance -------------------------------------------------------------------------------


def covers_domain(s: State, block: ir.Block) -> bool:
    """Whether the loops around a block, within its scope, certainly reach every point of its iterators."""
    if any(ir.as_int(it.extent) == 0 for it in block.iters):
        return True  # there is none
    for key in s.ancestors(block.name):
        if isinstance(key, str):
            break
        if not isinstance(key, ir.Var) or (s.fixed_extent(key) or 0) < 1:
            return False  # under a condition, or in a loop that may be empty
    return is_bound_plainly(s, block) or reaches_all(View(s, s.scope(block.name)), block)


def is_bound_plainly(s: Nest, block: ir.Block) -> bool:
    """Each iterator is a loop of its own or was one, and the predicate is that of splits. Splitting and
    fusing lose no point, so nothing needs to be proved."""
    bound: list[ir.Var] = []
    for it, binding in zip(block.iters, block.bindings, strict=True):
        size = ir.as_int(it.extent)
        if type(binding) is ir.Var:
            if size is None or s.fixed_extent(binding) != size:
                return False
            bound.append(binding)
        elif ir.as_int(binding) != 0 or size != 1:
            return False
    return excludes_nothing(s, block.predicate, bound) and are_independent(s, bound)


def reaches_all(view: View, block: ir.Block) -> bool:
    """Whether the instances of a block inside of a view cover the points of its iterators: seen as elements
    of an array, all that there are have been stored."""
    sizes = [ir.as_int(it.extent) for it in block.iters]
    if None in sizes:
        return False
    points = ir.Buffer("points", tuple([n for n in sizes if n is not None]), "int8")
    all_points = ir.Region(points, tuple([(ZERO, number(n)) for n in points.shape]))
    plain = ir.replace_fields(block, iters=(), bindings=(), predicate=())
    mine = make_access(block, points.region(*[it.var for it in block.iters]), True)
    return covers(view, mine, make_access(plain, all_points, False))


def binds_once(s: State, block: ir.Block, loops: Sequence[ir.Var]) -> bool:
    """Whether no two points of `loops`, whatever those outside of them are at, run the same instance."""
    extents = {it.var: ir.as_int(it.extent) for it in enclosing_iters(s, block.name)}
    extents |= {v: s.fixed_extent(v) for v in s.loops_around(block.name)}
    outer = [v for v in extents if v not in {*loops}]
    bindings, guards = ([s.resolve(e) for e in exprs] for exprs in (block.bindings, block.predicate))
    return is_one_to_one([*bindings, *outer], extents, guards)


class Reach(NamedTuple):
    """The values of an iterator while the loops outside of a view stand still, and constants that none of
    them is before or after."""

    values: Interval
    first: int
    last: int


def reach_of(view: View, block: ir.Block) -> tuple[list[Reach], list[ir.Expr]]:
    """What each iterator of a block, all of constant extents, reaches inside of a view; and the tests of the
    block that say more than that."""
    sizes = [ir.as_int(it.extent) or 0 for it in block.iters]
    if not view.outside and is_bound_plainly(view.s, block):
        return [Reach(Interval({}, 0, n), 0, n - 1) for n in sizes], []
    found: list[Reach] = []
    for binding, n in zip(block.bindings, sizes, strict=True):
        x = clip(view.interval(binding, ONE, block, NO_ITERATORS, n), 0, n - 1)
        found.append(Reach(x, x.offset, x.end - 1) if x.is_fixed else Reach(x, 0, n - 1))
    rest: list[ir.Expr] = []
    bound = [v for b in block.bindings for v in variables(b)]
    for test in block.predicate:
        if excludes_nothing(view.s, [test], bound):
            continue
        bounded = find_bounded_iterator(iteration(block), test)
        if bounded is None:
            rest.append(test)
            continue
        var, low, high = bounded
        at = next(n for n, it in enumerate(block.iters) if it.var is var)
        x, first, last = found[at]
        first, last = max(first, low), min(last, high)
        found[at] = Reach(clip(x, first, last) if x.is_fixed else x, first, last)
    return found, rest


def over_iterators(s: State, block: ir.Block, test: ir.Expr) -> ir.Expr | None:
    """A condition of the loops around a block as one of its iterators; None if it is more than that."""
    known: dict[ir.Var, ir.Expr] = {
        b: it.var for it, b in zip(block.iters, block.bindings, strict=True) if type(b) is ir.Var
    }
    while missing := [v for v in variables(test) if v not in known]:
        for var in missing:
            value = ZERO if s.fixed_extent(var) == 1 else s.definition(var)
            if value is None:
                return None
            test = ir.substitute(test, {var: value})
    return ir.substitute(test, known)


# --- once -----------------------------------------------------------------------------------------


def runs_once_per_point(s: State, block: ir.Block, loops: Sequence[ir.Var]) -> bool:
    """Whether `loops`, the innermost around a block, run every point of its iterators exactly once, and every
    extent is a constant."""
    if (
        is_bound_plainly(s, block)
        and leaf_loops_of(s, block.bindings) <= {*loops}
        and are_told(s, block, loops)
    ):
        return True
    if any(s.fixed_extent(v) is None for v in loops):
        return False
    outermost = s.loops_around(block.name)[-len(loops)] if loops else block.name
    return reaches_all(View(s, s.parent[outermost]), block) and binds_once(s, block, loops)


def check_once(s: State, block: ir.Block, loops: Sequence[ir.Var]) -> None:
    """Raises unless distinct points of `loops` (those outside being fixed) are distinct instances."""
    if not are_told(s, block, loops) and not binds_once(s, block, loops):
        raise ScheduleError(
            f"an instance of block {block.name!r} may run more than once in its loops",
            marks={block.name: "its bindings do not tell its iterations apart", **dict.fromkeys(loops, "")},
        )


def are_told(s: State, block: ir.Block, loops: Sequence[ir.Var]) -> bool:
    """Whether what a block is bound to tells the iterations of loops, those outside being fixed: variables
    as they are, or moved by what is fixed."""
    inside = {*loops}
    found: list[ir.Var] = []
    for binding in block.bindings:
        moving = [x for x, _ in form_of(binding)[0] if not inside.isdisjoint(leaf_loops_of(s, [x]))]
        if len(moving) == 1 and type(moving[0]) is ir.Var:
            found.append(moving[0])
    return determines(s, found, loops)


# --- where the init runs --------------------------------------------------------------------------


def is_count(s: State, e: ir.Expr, loops: set[ir.Var]) -> bool:
    """Whether a condition is `v < n`, n positive, for a variable that was split into some of `loops` (and
    never fused): true where they are 0, and true for smaller values of them where it is true for larger."""
    bound = bound_of(e)
    if bound is None or bound.is_least or type(bound.value) is not ir.Var or bound.limit < 1:
        return False

    return is_split_into(s, bound.value, loops)


# No closure that calls itself: it would be a cycle, and keep the whole state until the next collection.
def is_split_into(s: State, var: ir.Var, loops: set[ir.Var]) -> bool:
    """Whether a variable consists of some of `loops`, by splits alone."""
    known = s.definitions.get(var)
    if known is None:
        return var in loops
    return not isinstance(known, FusedDigit) and all(is_split_into(s, d, loops) for d in known.digits)


def at_zero(s: State, e: ir.Expr, loops: set[ir.Var]) -> ir.Expr:
    """`e` in terms of the loops that exist, those of `loops` being 0."""
    return ir.substitute(s.resolve(e), dict.fromkeys(loops, ZERO))


def init_predicate(s: State, block: ir.Block, reducing: set[ir.Var]) -> list[ir.Expr]:
    """Where the `init` runs: the conjuncts at the first iteration of the reduction. Raises unless the
    reduction iterators are 0 there."""
    found: list[ir.Expr] = []
    for c in block.predicate:
        if not leaf_loops_of(s, [c]) & reducing:
            found.append(c)
        elif not is_count(s, c, reducing):
            found.append(at_zero(s, c, reducing))
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "reduce" and type(binding) is not ir.Var:
            first = simplify(at_zero(s, binding, reducing), domain_within(s, block.name))
            if not (isinstance(first, ir.Const) and first.value == 0):
                raise ScheduleError(
                    f"{it.var.name} of block {block.name!r} starts at {first}: its init may not run first",
                    marks={block.name: f"{it.var.name} is bound to {s.resolve(binding)}"},
                )
    return found


def check_not_empty(s: State, loops: Iterable[ir.Var]) -> None:
    """Raises unless each loop certainly has an iteration."""
    for var in loops:
        if (s.fixed_extent(var) or 0) < 1:
            raise ScheduleError(
                f"the loop over {var.name} may be empty, and the init would not run",
                marks={var: f"its extent is {s.resolve(s.extents[var])}"},
            )
