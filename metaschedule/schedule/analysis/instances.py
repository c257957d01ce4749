"""Which loops drive which iterators of a block, and whether every instance runs once.

Bindings speak of variables that may have been split or fused; the loops behind them are their *leaves*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...arith import Domain, iteration_map, simplify
from ...errors import ScheduleError
from ...ir import (
    Binary,
    Block,
    Const,
    Expr,
    Iter,
    Load,
    Var,
    as_int,
    const,
    free_vars,
    subexpressions,
    substitute,
)
from ..state import ROOT, Key, Part, Split, State

ZERO = const(0)


def leaves_of(s: State, exprs: Iterable[Expr]) -> set[Var]:
    """The loops that expressions depend on."""
    found: set[Var] = set()
    for e in exprs:
        for v in (e,) if type(e) is Var else free_vars(e):
            found.update(s.leaves(v))
    return found


def leaves_by_kind(s: State, block: Block) -> tuple[set[Var], set[Var]]:
    """The loops behind the spatial and behind the reduce iterators."""
    pairs = list(zip(block.iters, block.bindings, strict=True))
    return (
        leaves_of(s, [b for it, b in pairs if it.kind == "spatial"]),
        leaves_of(s, [b for it, b in pairs if it.kind == "reduce"]),
    )


def check_kinds_apart(s: State, block: Block) -> tuple[set[Var], set[Var]]:
    """`leaves_by_kind`; raises if a loop drives iterators of both kinds, or loaded values do."""
    for e in (*block.bindings, *block.predicate):
        if type(e) is not Var and any(isinstance(x, Load) for x in subexpressions(e)):
            raise ScheduleError(
                f"where block {block.name!r} runs depends on loaded values: {e}",
                marks={block.name: "its bindings or predicate load"},
            )
    spatial, reducing = leaves_by_kind(s, block)
    for var in s.loops_around(block.name) if not spatial.isdisjoint(reducing) else ():
        if var in spatial and var in reducing:
            raise ScheduleError(
                f"the loop over {var.name} drives spatial and reduction iterators of block {block.name!r}",
                marks={var: "both spatial and reduction"},
                help="do not fuse loops of the two kinds",
            )
    return spatial, reducing


def enclosing_iters(s: State, key: Key) -> tuple[Iter, ...]:
    """The iterators of the block that a node is in."""
    scope = s.scope(key)
    return s.nodes[scope].iters if scope is not ROOT else ()


def domain_within(s: State, key: Key) -> Domain:
    """The loops around a node, and the iterators of the block that they are in."""
    domain = Domain({it.var: it.extent for it in enclosing_iters(s, key)})
    for var in s.loops_around(key):
        domain = domain.with_loop(var, s.resolve(s.extents[var]))
    return domain


def check_once(s: State, block: Block, loops: Sequence[Var]) -> None:
    """Raises unless distinct points of `loops` (those outside being fixed) are distinct instances."""
    if _are_read_off(s, block, loops):
        return
    inside = set(loops)
    extents = {it.var: as_int(it.extent) for it in enclosing_iters(s, block.name)}
    extents |= {v: s.fixed_extent(v) for v in s.loops_around(block.name)}
    outer = [v for v in extents if v not in inside]
    known = {v: n for v, n in extents.items() if n is not None}
    bindings = [s.resolve(b) for b in block.bindings]
    mapped = None
    if len(known) == len(extents):
        mapped = iteration_map([*bindings, *outer], known, [s.resolve(c) for c in block.predicate])
    if mapped is None or not mapped.injective:
        raise ScheduleError(
            f"an instance of block {block.name!r} may run more than once in its loops",
            marks={block.name: "its bindings do not tell its iterations apart", **dict.fromkeys(loops, "")},
        )


def _are_read_off(s: State, block: Block, loops: Sequence[Var]) -> bool:
    """Whether every loop is, or is a part of, variables that the block is bound to as they are."""
    bound = {b for b in block.bindings if type(b) is Var}
    wholes: dict[Var, list[Var]] = {}
    for var, known in s.definitions.items():
        for digit in known.digits if isinstance(known, Split) else (known.whole,):
            wholes.setdefault(digit, []).append(var)

    def is_known(var: Var) -> bool:
        if var in bound or s.fixed_extent(var) == 1:
            return True
        above = wholes.get(var)
        return above is not None and all(map(is_known, above))

    return all(map(is_known, loops))


def is_count(s: State, e: Expr, loops: set[Var]) -> bool:
    """Whether a condition is `v < n`, n positive, for a variable that was split into some of `loops` (and
    never fused): true where they are 0, and true for smaller values of them where it is true for larger."""
    if not (isinstance(e, Binary) and e.op == "<" and type(e.a) is Var and (as_int(e.b) or 0) > 0):
        return False

    def is_split(var: Var) -> bool:
        known = s.definitions.get(var)
        if isinstance(known, Part):
            return False
        return var in loops if known is None else all(map(is_split, known.digits))

    return is_split(e.a)


def at_zero(s: State, e: Expr, loops: set[Var]) -> Expr:
    """`e` in terms of the loops that exist, those of `loops` being 0."""
    return substitute(s.resolve(e), dict.fromkeys(loops, ZERO))


def init_predicate(s: State, block: Block, reducing: set[Var]) -> list[Expr]:
    """Where the `init` runs: the conjuncts at the first iteration of the reduction. Raises unless the
    reduction iterators are 0 there."""
    found: list[Expr] = []
    for c in block.predicate:
        if not leaves_of(s, [c]) & reducing:
            found.append(c)
        elif not is_count(s, c, reducing):
            found.append(at_zero(s, c, reducing))
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "reduce" and type(binding) is not Var:
            first = simplify(at_zero(s, binding, reducing), domain_within(s, block.name))
            if not (isinstance(first, Const) and first.value == 0):
                raise ScheduleError(
                    f"{it.var.name} of block {block.name!r} starts at {first}: its init may not run first",
                    marks={block.name: f"{it.var.name} is bound to {s.resolve(binding)}"},
                )
    return found


def check_not_empty(s: State, loops: Iterable[Var]) -> None:
    """Raises unless each loop certainly has an iteration."""
    for var in loops:
        if (s.fixed_extent(var) or 0) < 1:
            raise ScheduleError(
                f"the loop over {var.name} may be empty, and the init would not run",
                marks={var: f"its extent is {s.resolve(s.extents[var])}"},
            )
