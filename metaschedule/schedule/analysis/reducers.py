"""Which reductions are known to be commutative and associative.

A block reduces if it has an `init` and its body stores `combine(own value, term)` for every element it
initialises. Known combiners: + * min max of one value, and the tuples of them, element by element; argmax and
argmin as tensor expressions write them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Binary, Block, Const, Expr, Load, Store, TupleStore, same_expr, subexpressions

IDENTITIES = {"+": 0.0, "*": 1.0, "min": float("inf"), "max": float("-inf")}


@dataclass(slots=True)
class Reducer:
    """`stores[n] = stores[n] op terms[n]`, starting from `identities[n]`."""

    ops: tuple[str, ...]
    stores: tuple[Store, ...]
    terms: tuple[Expr, ...]
    identities: tuple[Expr, ...]


def find_reducer(block: Block) -> Reducer | None:
    """The reduction of a block, if it is one that commutes."""
    if not block.init or not any(it.kind == "reduce" for it in block.iters):
        return None
    updates, starts = _stores(block.body), _stores(block.init)
    if updates is None or starts is None or len(updates) != len(starts):
        return None
    ops: list[str] = []
    terms: list[Expr] = []
    for update, start in zip(updates, starts, strict=True):
        if start.buffer is not update.buffer or not all(map(same_expr, start.indices, update.indices)):
            return None
        found = reduction_term(update)
        if found is None or not isinstance(start.value, Const):
            return None
        ops.append(found[0])
        terms.append(found[1])
    own = {u.buffer for u in updates}
    if any(isinstance(x, Load) and x.buffer in own for t in terms for x in subexpressions(t)):
        return None
    return Reducer(tuple(ops), tuple(updates), tuple(terms), tuple(x.value for x in starts))


def _stores(body: tuple[object, ...]) -> list[Store] | None:
    found: list[Store] = []
    for s in body:
        if isinstance(s, Store):
            found.append(s)
        elif isinstance(s, TupleStore):
            found += s.stores
        else:
            return None
    return found


def reduction_term(s: Store) -> tuple[str, Expr] | None:
    """(operator, term) of `buffer[i] = buffer[i] op term`."""
    value = s.value
    if not isinstance(value, Binary) or value.op not in IDENTITIES:
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(own, Load)
            and own.buffer is s.buffer
            and all(map(same_expr, own.indices, s.indices))
            and not any(isinstance(x, Load) and x.buffer is s.buffer for x in subexpressions(term))
        ):
            return value.op, term
    return None
