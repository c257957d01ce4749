"""What follows from the definitions of variables that were split or fused.

A `Split` variable is a number with digits, a `Part` a digit of a fused loop; the loops at the bottom are the
*leaves*. A block below a split runs only where the number is below its extent, so a variable takes every
value below its extent whatever it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ...ir import Binary, Block, Expr, Var, as_int, free_vars
from ..state import Part, Split, State


@lru_cache(maxsize=4096)
def iteration(block: Block) -> dict[Var, Expr]:
    """The iterators of a block with their bindings."""
    return {it.var: binding for it, binding in zip(block.iters, block.bindings, strict=True)}


def variables(e: Expr) -> Sequence[Var]:
    """`free_vars`, worked out once per expression."""
    return (e,) if type(e) is Var else _variables(e)


@lru_cache(maxsize=8192)
def _variables(e: Expr) -> Sequence[Var]:
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
    pairs = list(zip(block.iters, block.bindings, strict=True))
    return (
        leaves_of(s, [b for it, b in pairs if it.kind == "spatial"]),
        leaves_of(s, [b for it, b in pairs if it.kind == "reduce"]),
    )


def told_by(s: State, known: Iterable[Var]) -> set[Var]:
    """The variables whose values follow from those of others: a number tells its digits, all parts of a fused
    loop tell the loop."""
    waiting = list(known)
    found = set(waiting)
    parts: dict[Var, set[int]] = {}
    while waiting:
        definition = s.definitions.get(waiting.pop())
        new: tuple[Var, ...] = ()
        if isinstance(definition, Split):
            new = definition.digits
        elif isinstance(definition, Part):
            have = parts.setdefault(definition.whole, set())
            have.add(definition.index)
            if all(n in have or s.fixed_extent(d) == 1 for n, d in enumerate(definition.digits)):
                new = (definition.whole,)
        for var in new:
            if var not in found:
                found.add(var)
                waiting.append(var)
    return found


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
        while isinstance(known, Part):
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
