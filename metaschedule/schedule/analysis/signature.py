"""The signatures of blocks whose bodies changed."""

from __future__ import annotations

from ...arith import block_signature
from ...ir import Block, Buffer, Expr, Load, Region, Store, TupleStore, const, loads, same_expr, walk
from ..state import Key, State

ONE = const(1)


def signature(block: Block) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """`block_signature`, without analysis where each buffer is touched at one place only."""
    stores: list[Store] = []
    for body in (block.init, block.body):
        if not all(isinstance(x, (Store, TupleStore)) for x in body):
            return block_signature(block)
        stores += [x for x in walk(body) if isinstance(x, Store)]
    reads: dict[Buffer, tuple[Expr, ...]] = {}
    writes: dict[Buffer, tuple[Expr, ...]] = {}
    for store in stores:
        for load in loads(store.value):
            if not same_place(reads, load) or loads(*load.indices):
                return block_signature(block)
        if not same_place(writes, store) or loads(*store.indices):
            return block_signature(block)
    for buffer in list(reads):
        if buffer in writes and block.init:
            if not all(map(same_expr, reads[buffer], writes[buffer])):
                return block_signature(block)
            del reads[buffer]
    inner = set(block.allocs)
    return (
        tuple([point(b, i) for b, i in reads.items() if b not in inner]),
        tuple([point(b, i) for b, i in writes.items() if b not in inner]),
    )


def same_place(known: dict[Buffer, tuple[Expr, ...]], at: Load | Store) -> bool:
    first = known.setdefault(at.buffer, at.indices)
    return first is at.indices or all(map(same_expr, first, at.indices))


def point(buffer: Buffer, indices: tuple[Expr, ...]) -> Region:
    return Region(buffer, tuple([(index, ONE) for index in indices]))


def with_signature(block: Block) -> Block:
    """The block with the signature that its body has."""
    reads, writes = signature(block)
    return Block(
        block.name, block.iters, block.bindings, reads, writes, block.body, block.init, block.predicate,
        block.allocs, block.annotations,
    )  # fmt: skip


def refresh_scopes(s: State, key: Key) -> None:
    """Bring the signatures of the blocks around a node up to date, from the inside out."""
    for above in list(s.ancestors(key)):
        if isinstance(above, str):
            node = s.nodes[above]
            whole = Block(
                node.name, node.iters, node.bindings, (), (), s.body(above), node.init, (), node.allocs
            )
            reads, writes = block_signature(whole)
            s.update(above, reads=reads, writes=writes)
