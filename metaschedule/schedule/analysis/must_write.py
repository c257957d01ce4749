"""What a block stores for sure, whatever it reads."""

from __future__ import annotations

from functools import lru_cache

from ... import ir
from ...affine.footprint import Box, find_written
from ...affine.view import View


def find_written_box(view: View, block: ir.Block, buffer: ir.Buffer) -> Box | None:
    """The box of a buffer that a block certainly stores while what is below a view runs once."""
    indices = find_stored_indices(block, buffer)
    return None if indices is None else find_written(view, block, indices)


def find_stored_indices(block: ir.Block, buffer: ir.Buffer) -> tuple[ir.Expr, ...] | None:
    """Where every instance of a block stores to a buffer: one element, unconditionally; None if not so."""
    return _find_stored_indices(block.init, block.body, buffer)


def stored_region(block: ir.Block, buffer: ir.Buffer) -> ir.Region | None:
    """`find_stored_indices` as a region."""
    return _stored_region(block.init, block.body, buffer)


@lru_cache(maxsize=4096)
def _stored_region(init: ir.Body, body: ir.Body, buffer: ir.Buffer) -> ir.Region | None:
    indices = _find_stored_indices(init, body, buffer)
    return None if indices is None else buffer.region(*indices)


@lru_cache(maxsize=4096)
def _find_stored_indices(init: ir.Body, body: ir.Body, buffer: ir.Buffer) -> tuple[ir.Expr, ...] | None:
    certain = [
        x
        for s in body
        for x in (s.stores if isinstance(s, ir.TupleStore) else (s,))
        if isinstance(x, ir.Store) and x.buffer is buffer
    ]
    if not certain:
        return None
    indices = certain[0].indices
    for s in ir.walk((*init, *body)):
        if isinstance(s, ir.Store) and s.buffer is buffer and not ir.same_exprs(s.indices, indices):
            return None
    return indices


def own_accesses(block: ir.Block, buffer: ir.Buffer) -> list[tuple[ir.Expr, ...]]:
    """The indices of every load and store of a buffer in the body of a block, in no special order."""
    body = (*block.init, *block.body)
    found = [s.indices for s in ir.walk(body) if isinstance(s, ir.Store) and s.buffer is buffer]
    return found + [e.indices for e in ir.expressions(body) if isinstance(e, ir.Load) and e.buffer is buffer]
