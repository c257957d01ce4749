"""The signatures of blocks whose bodies changed."""

from __future__ import annotations

from ... import ir
from ...arith import block_signature
from ..state import Key, State


def signature(block: ir.Block) -> tuple[tuple[ir.Region, ...], tuple[ir.Region, ...]]:
    """`block_signature`, without analysis where each buffer is touched at one place only."""
    stores: list[ir.Store] = []
    for body in (block.init, block.body):
        if not all(isinstance(x, (ir.Store, ir.TupleStore)) for x in body):
            return block_signature(block)
        stores += [x for x in ir.walk(body) if isinstance(x, ir.Store)]
    reads: dict[ir.Buffer, tuple[ir.Expr, ...]] = {}
    writes: dict[ir.Buffer, tuple[ir.Expr, ...]] = {}
    for store in stores:
        for load in ir.loads(store.value):
            if not same_place(reads, load) or ir.loads(*load.indices):
                return block_signature(block)
        if not same_place(writes, store) or ir.loads(*store.indices):
            return block_signature(block)
    for buffer in list(reads):
        if buffer in writes and block.init:
            if not ir.same_exprs(reads[buffer], writes[buffer]):
                return block_signature(block)
            del reads[buffer]
    inner = set(block.allocs)
    return (
        tuple([b.region(*i) for b, i in reads.items() if b not in inner]),
        tuple([b.region(*i) for b, i in writes.items() if b not in inner]),
    )


def same_place(known: dict[ir.Buffer, tuple[ir.Expr, ...]], at: ir.Load | ir.Store) -> bool:
    return ir.same_exprs(known.setdefault(at.buffer, at.indices), at.indices)


def infer_signature(block: ir.Block) -> ir.Block:
    """The block with the signature that its body has."""
    reads, writes = signature(block)
    return ir.Block(
        block.name, block.iters, block.bindings, reads, writes, block.body, block.init, block.predicate,
        block.allocs, block.annotations,
    )  # fmt: skip


def refresh_scopes(s: State, key: Key) -> None:
    """Bring the signatures of the blocks around a node up to date, from the inside out."""
    for above in list(s.ancestors(key)):
        if isinstance(above, str):
            node = s.nodes[above]
            whole = ir.Block(
                node.name, node.iters, node.bindings, (), (), s.body(above), node.init, (), node.allocs
            )
            reads, writes = block_signature(whole)
            s.update(above, reads=reads, writes=writes)
