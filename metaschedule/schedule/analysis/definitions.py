"""What follows from the definitions of variables that were split or fused.

A `Split` variable is a number with digits, a `Part` a digit of a fused loop; the loops at the bottom are the
*leaves*. A block below a split runs only where the number is below its extent, so a variable takes every
value below its extent whatever it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...ir import Binary, Block, Expr, Iter, Var, as_int, free_vars
from ..linear import Sum, linear
from ..state import Part, Split, State


class Iteration(dict[Var, Expr]):
    """Iterators with what they are bound to, compared by identity."""

    __slots__ = ()
    __eq__ = object.__eq__

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return id(self)


NO_ITERATORS = Iteration()


def iteration(block: Block) -> Iteration:
    """The iterators of a block with their bindings."""
    return _iteration(block.iters, block.bindings)


@lru_cache(maxsize=4096)
def _iteration(iters: tuple[Iter, ...], bindings: tuple[Expr, ...]) -> Iteration:
    return Iteration({it.var: binding for it, binding in zip(iters, bindings, strict=True)})


@lru_cache(maxsize=8192)
def bound_sum(e: Expr, iters: Iteration) -> Sum | None:
    """An index over iterators as a sum over what they are bound to; None if it is no sum of them."""
    if not iters:
        return linear(e)
    terms: dict[Expr, int] = {}
    found, offset = linear(e)
    for var, c in found:
        if type(var) is not Var:
            return None
        more, start = linear(iters.get(var, var))
        offset += c * start
        for x, k in more:
            terms[x] = terms.get(x, 0) + c * k
    return tuple([(x, c) for x, c in terms.items() if c]), offset


def variables(e: Expr) -> tuple[Var, ...]:
    """`free_vars`, worked out once per expression."""
    return (e,) if type(e) is Var else _variables(e)


@lru_cache(maxsize=8192)
def _variables(e: Expr) -> tuple[Var, ...]:
    return tuple(free_vars(e))


def leaves_of(s: State, exprs: Iterable[Expr]) -> set[Var]:
    """The loops that expressions depend on."""
    found: set[Var] = set()
    for e in exprs:
        for v in variables(e):
            found.update(s.leaves(v))
    return found


def leaves_by_kind(s: State, block: Block) -> tuple[set[Var], set[Var]]:
    """The loops behind the spatial and behind the reduce iterators."""
    spatial: set[Var] = set()
    reducing: set[Var] = set()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        found = spatial if it.kind == "spatial" else reducing
        for v in variables(binding):
            found.update(s.leaves(v))
    return spatial, reducing


def tell(s: State, known: Iterable[Var], wanted: Iterable[Var]) -> bool:
    """Whether the values of all `wanted` variables follow from those of `known` ones: a number tells its
    digits, all parts of a fused loop tell the loop; what has one value needs no telling."""
    definitions = s.definitions
    waiting = list(known)
    told = set(waiting)
    missing = {v for v in wanted if v not in told and s.fixed_extent(v) != 1}
    parts: dict[Var, set[int]] = {}
    while missing and waiting:
        definition = definitions.get(waiting.pop())
        if definition is None:
            continue
        new = definition.digits
        if type(definition) is Part:
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
    return not missing


def consists_of(s: State, roots: Iterable[Var]) -> set[Var]:
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


def are_independent(s: State, roots: Iterable[Var]) -> bool:
    """Whether all combinations of values of the variables occur while their loops run: none is needed twice,
    but that they may be different parts of one fused loop."""
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
        while type(known) is Part:
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


def is_definition_test(s: State, test: Expr) -> bool:
    """Whether a conjunct only says that a variable is below its extent. It excludes no instance."""
    if not (isinstance(test, Binary) and test.op == "<" and type(test.a) is Var):
        return False
    extent = s.extents.get(test.a)
    if extent is None or test.b is extent:
        return extent is not None
    limit, size = as_int(test.b), as_int(extent)
    return limit is not None and size is not None and limit >= size
