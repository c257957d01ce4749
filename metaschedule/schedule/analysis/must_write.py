"""What a block stores for sure, whatever it reads."""

from __future__ import annotations

from functools import lru_cache

from ...affine.footprint import Box, find_written
from ...affine.view import View
from ...ir import Block, Body, Buffer, Expr, Load, Store, TupleStore, expressions, same_expr, walk


def written_box(view: View, block: Block, buffer: Buffer) -> Box | None:
    """The box of a buffer that a block certainly stores while what is below a view runs once."""
    indices = stored_indices(block, buffer)
    return None if indices is None else find_written(view, block, indices)


def stored_indices(block: Block, buffer: Buffer) -> tuple[Expr, ...] | None:
    """Where every instance of a block stores to a buffer: one element, unconditionally; None if not so."""
    return _stored_indices(block.init, block.body, buffer)


@lru_cache(maxsize=4096)
def _stored_indices(init: Body, body: Body, buffer: Buffer) -> tuple[Expr, ...] | None:
    certain = [
        x
        for s in body
        for x in (s.stores if isinstance(s, TupleStore) else (s,))
        if isinstance(x, Store) and x.buffer is buffer
    ]
    if not certain:
        return None
    indices = certain[0].indices
    for s in walk((*init, *body)):
        if isinstance(s, Store) and s.buffer is buffer and not all(map(same_expr, s.indices, indices)):
            return None
    return indices


def own_accesses(block: Block, buffer: Buffer) -> list[tuple[Expr, ...]]:
    """The indices of every load and store of a buffer in the body of a block, in no special order."""
    body = (*block.init, *block.body)
    found = [s.indices for s in walk(body) if isinstance(s, Store) and s.buffer is buffer]
    return found + [e.indices for e in expressions(body) if isinstance(e, Load) and e.buffer is buffer]
