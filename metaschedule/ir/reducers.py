"""Which reductions are known to be commutative and associative.

A block reduces if its body stores `combine(own value, term)` for every element and its `init` starts the same
elements. Known combiners: + * min max & | ^ and or of one value, and the tuples of them, element by element;
argmax and argmin as tensor expressions write them: pairs of a value and a position in a total order. Whatever
else a user combines with is unknown, and order matters to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from .. import ir

POSITIONS = {"argmax": ">", "argmin": "<"}
ASSOCIATIVE = "sum, prod, min, max, argmax, argmin, bitwise operations and element-wise tuples are known"
OPERATORS = frozenset({"+", "*", "min", "max", "&", "|", "^", "and", "or"})


@dataclass(slots=True)
class BlockReducer:
    """`stores[n] = stores[n] op terms[n]`, starting from `identities[n]`, which is what the `init` stores and
    need not be `neutral[n]`, the value that the operation leaves others unchanged with. The two stores of an
    argmax or argmin are combined together; both have that as their op."""

    ops: tuple[str, ...]
    stores: tuple[ir.Store, ...]
    terms: tuple[ir.Expr, ...]
    identities: tuple[ir.Expr, ...]
    neutral: tuple[ir.Expr, ...]

    def combine(self, left: Sequence[ir.Expr], right: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        """The values of two parts of the reduction put together."""
        if self.ops[0] in POSITIONS:
            keep = ahead(POSITIONS[self.ops[0]], left, right)
            return tuple([ir.select(keep, a, b) for a, b in zip(left, right, strict=True)])
        return tuple([ir.binary(op, a, b) for op, a, b in zip(self.ops, left, right, strict=True)])


def find_reducer(block: ir.Block) -> BlockReducer | None:
    """The reduction of a block with an `init`, if it is one that commutes."""
    if not block.init or not any(it.kind == "reduce" for it in block.iters):
        return None
    return _reducer(block.init, block.body)


@lru_cache(maxsize=4096)  # loop transformations leave bodies alone, and every replay asks again
def _reducer(init: ir.Body, body: ir.Body) -> BlockReducer | None:
    found, starts = _update(body), _stores(init)
    if found is None or starts is None or len(starts) != len(found.stores):
        return None
    for update, start in zip(found.stores, starts, strict=True):
        if start.buffer is not update.buffer or not ir.same_exprs(start.indices, update.indices):
            return None
    own = {u.buffer for u in found.stores}
    values = tuple([x.value for x in starts])
    return None if _loads_any(values, own) else replace(found, identities=values)


def commutes(block: ir.Block) -> bool:
    """Whether a block combines terms by an operation in which order does not matter. Without an `init`, that
    may be a block of its own by now."""
    return (find_reducer(block) if block.init else find_update(block)) is not None


def find_update(block: ir.Block) -> BlockReducer | None:
    """What the body of a block combines its elements with, if it commutes; the `init` may be elsewhere."""
    return _update(block.body)


@lru_cache(maxsize=4096)
def _update(body: ir.Body) -> BlockReducer | None:
    updates = _stores(body)
    if not updates:
        return None
    found = _element_wise(updates)
    if found is None and len(body) == 1 and isinstance(body[0], ir.TupleStore):
        found = _position(updates)
    own = {u.buffer for u in updates}
    if found is None or len(own) != len(updates):
        return None
    indices = [index for u in updates for index in u.indices]
    return None if _loads_any([*found.terms, *indices], own) else found


def _element_wise(updates: Sequence[ir.Store]) -> BlockReducer | None:
    pairs = [_known_term(u) for u in updates]
    if any(p is None for p in pairs):
        return None
    known = [p for p in pairs if p is not None]
    neutral = tuple([identity_of(op, term.dtype) for op, term in known])
    ops, terms = zip(*known, strict=True)
    return BlockReducer(tuple(ops), tuple(updates), tuple(terms), neutral, neutral)


def _position(updates: Sequence[ir.Store]) -> BlockReducer | None:
    """argmax and argmin: a value and its position, of equal values the first position, NaN before all."""
    if len(updates) != 2 or not all(isinstance(u.value, ir.Select) for u in updates):
        return None
    own = [ir.Load(u.buffer, u.indices) for u in updates]
    picks = [u.value for u in updates if isinstance(u.value, ir.Select)]
    terms = [p.b for p in picks]
    if not ir.same_exprs([p.a for p in picks], own):
        return None
    for op, better in POSITIONS.items():
        keep = ahead(better, own, terms)
        if all(ir.same_expr(p.cond, keep) for p in picks):
            worst = identity_of("max" if better == ">" else "min", terms[0].dtype)
            last = identity_of("min", terms[1].dtype)  # a tie with any element is lost
            return BlockReducer((op, op), tuple(updates), tuple(terms), (worst, last), (worst, last))
    return None


def ahead(better: str, left: Sequence[ir.Expr], right: Sequence[ir.Expr]) -> ir.Expr:
    """Whether the pair `left` comes before `right`, spelled as `te.argmax` spells it."""
    (x, i), (y, j) = left, right
    wins, tie = ir.binary(better, x, y), ir.binary("==", x, y)
    if ir.is_float(x.dtype):  # comparisons with NaN are False
        wins, tie = wins | ir.call("isnan", x), tie | (ir.call("isnan", x) & ir.call("isnan", y))
    return ir.select(tie, ir.binary("<", i, j), wins)


def identity_of(op: str, dtype: str) -> ir.Const:
    """The value that an operator leaves others unchanged with."""
    if op in ("+", "|", "^"):
        return ir.const(0, dtype)
    if op == "*":
        return ir.const(1, dtype)
    if op in ("and", "or"):
        return ir.const(op == "and", dtype)
    if op == "&":
        low, high = ir.integer_limits(dtype)
        return ir.const(-1 if low < 0 else high, dtype)
    return ir.const(ir.highest(dtype) if op == "min" else ir.lowest(dtype), dtype)


def _known_term(s: ir.Store) -> tuple[str, ir.Expr] | None:
    """`reduction_term` of an operator that commutes; all terms can be evaluated."""
    found = ir.reduction_term(s, OPERATORS)
    return None if found is not None and found[0] in ("and", "or") and may_fail(found[1]) else found


def may_fail(e: ir.Expr) -> bool:
    """Whether evaluating `e` where it was short-circuited before could be an error."""
    return any(
        (isinstance(x, ir.Binary) and x.op in ("//", "%"))
        or (
            isinstance(x, ir.Load)
            and any(isinstance(y, ir.Load) for i in x.indices for y in ir.subexpressions(i))
        )
        for x in ir.subexpressions(e)
    )


def _stores(body: ir.Body) -> list[ir.Store] | None:
    found: list[ir.Store] = []
    for s in body:
        if isinstance(s, ir.Store):
            found.append(s)
        elif isinstance(s, ir.TupleStore):
            found += s.stores
        else:
            return None
    return found


def _loads_any(exprs: Iterable[ir.Expr], buffers: set[ir.Buffer]) -> bool:
    return any(isinstance(x, ir.Load) and x.buffer in buffers for e in exprs for x in ir.subexpressions(e))
