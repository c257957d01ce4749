"""Who reads and writes what, in program order, and whether what was read stays as it was.

`accesses` lists them; `why_sources_change` decides whether an expression may be evaluated at another place;
`covers_domain` whether a block runs at every point of its iterators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...arith import IterationMap, block_signature, iteration_map
from ...ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Load,
    Region,
    Store,
    TupleStore,
    Var,
    as_int,
    const,
    expressions,
    free_vars,
    operands,
    same_expr,
    walk,
)
from ..state import ROOT, Key, Split, State
from .reordering import order_matters

ONE = const(1)


@dataclass(slots=True, eq=False)
class Access:
    """What a block without blocks inside, or anything `outside` of such blocks, reads and writes."""

    key: Key
    reads: set[Buffer]
    writes: set[Buffer]
    outside: bool  # an extent, a condition, a binding, a statement that is in no block


def accesses(s: State, key: Key = ROOT) -> list[Access]:
    """Everything below a node that touches memory, in program order."""
    found: list[Access] = []

    def outside(at: Key, exprs: tuple[Expr, ...]) -> None:
        if read := loads(*exprs):
            found.append(Access(at, {x.buffer for x in read}, set(), True))

    def visit(at: Key) -> None:
        for child in s.children[at]:
            node = s.nodes[child]
            if isinstance(node, For):
                outside(child, (node.extent,))
                visit(child)
            elif isinstance(node, Block):
                outside(child, (*node.bindings, *node.predicate, *[it.extent for it in node.iters]))
                if s.children[child]:
                    visit(child)
                else:
                    reads, writes = {r.buffer for r in node.reads}, {r.buffer for r in node.writes}
                    found.append(Access(child, reads, writes, False))
            elif isinstance(node, If) and s.children[child]:
                outside(child, (node.cond,))
                visit(child)
            else:
                read = {x.buffer for x in expressions(node) if isinstance(x, Load)}
                written = {x.buffer for x in walk(node) if isinstance(x, Store)}
                found.append(Access(child, read, written, True))

    visit(key)
    return found


def loads(*exprs: Expr) -> list[Load]:
    """The loads in expressions, outside first."""
    found: list[Load] = []
    for e in exprs:
        kind = type(e)
        if kind is not Var and kind is not Const:
            if type(e) is Load:
                found.append(e)
            found += loads(*operands(e))
    return found


def shared_variables(s: State, a: Key, b: Key) -> set[Var]:
    """The loops around both nodes, and the iterators of blocks around both."""
    above = list(s.ancestors(a))
    found: set[Var] = set()
    for key in s.ancestors(b):
        if any(key is other for other in above):
            if isinstance(key, Var):
                found.add(key)
            elif isinstance(key, str):
                found.update(it.var for it in s.nodes[key].iters)
    return found


def why_sources_change(
    s: State, events: list[Access], sources: set[Buffer], reader: Key, parallel: bool = True
) -> str | None:
    """Why `sources`, as the block `reader` sees them, may be other values at some later place; None if they
    are final: written before it only, and never again with another value. `parallel`: the later place may be
    in another iteration of a parallel loop."""
    place = next(n for n, e in enumerate(events) if e.key is reader and not e.outside)
    for n, event in enumerate(events):
        for buffer in event.writes & sources:
            if n >= place:
                return f"{buffer.name} is written again by {describe(event)}"
            why = why_unsettled(s, events, event, reader, parallel)
            if why:
                return f"{buffer.name} may change: {why}"
    return None


def why_unsettled(
    s: State, events: list[Access], writer: Access, reader: Key, parallel: bool = True
) -> str | None:
    """Why a writer before `reader` may store other values when loops around both go on; `parallel`: and when
    other iterations of a parallel loop do."""
    shared = shared_variables(s, writer.key, reader)
    if not shared:
        return None  # it is done
    for var in shared if parallel else ():
        if var in s.nodes and s.nodes[var].kind not in ("serial", "unrolled", "vectorized"):
            return f"{describe(writer)} is in a {s.nodes[var].kind} loop with {reader!r}"
    if writer.outside or any(e is not writer and e.writes & writer.writes for e in events):
        return f"{describe(writer)} is not the only one that writes it in the loops around"
    block = s.nodes[writer.key]
    why = order_matters(s, block)
    if why or writer.reads & writer.writes:
        return f"{describe(writer)} may write it again: {why or 'it reads what it writes'}"
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "reduce" and any(x in shared for v in free_vars(binding) for x in s.leaves(v)):
            return f"the reduction of {describe(writer)} goes on around {reader!r}"
    place = next(n for n, e in enumerate(events) if e is writer)
    for n, event in enumerate(events):
        if event.writes & writer.reads:
            if n > place and shared_variables(s, event.key, writer.key):
                return f"{describe(event)} changes what it is computed from"
            if n < place and (why := why_unsettled(s, events, event, writer.key, parallel)):
                return why
    return None


def describe(event: Access) -> str:
    return f"block {event.key!r}" if isinstance(event.key, str) else "a statement outside of blocks"


# --- domains --------------------------------------------------------------------------------------


def covers_domain(s: State, block: Block) -> bool:
    """Whether the loops around a block, within its scope, certainly reach every point of its iterators."""
    for key in s.ancestors(block.name):
        if isinstance(key, str):
            break
        if not isinstance(key, Var) or (s.fixed_extent(key) or 0) < 1:
            return False  # under a condition, or in a loop that may be empty
    return bound_plainly(s, block) or bound_onto(s, block)


def bound_plainly(s: State, block: Block) -> bool:
    """Each iterator is a loop of its own or was one, and the predicate is that of splits. Splitting and
    fusing lose no point, so nothing needs to be proved."""
    bound: list[Var] = []
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if isinstance(binding, Var):
            extent = s.extents.get(binding)
            if extent is None or as_int(extent) is None or as_int(extent) != as_int(it.extent):
                return False
            bound.append(binding)
        elif as_int(binding) != 0 or as_int(it.extent) != 1:
            return False
    if len(set(bound)) != len(bound):
        return False
    for test in block.predicate:
        if not (isinstance(test, Binary) and test.op == "<" and isinstance(test.a, Var)):
            return False
        limit, extent = as_int(test.b), s.extents.get(test.a)
        if limit is None or extent is None or limit < (as_int(extent) or limit + 1):
            return False
    defined = [v for v in bound if v in s.definitions]
    return not defined or not any(below in set(bound) for v in defined for below in definition_of(s, v))


def definition_of(s: State, var: Var) -> Iterator[Var]:
    """The variables that the definition of a variable uses, and theirs."""
    known = s.definitions.get(var)
    if known is not None:
        for below in known.digits if isinstance(known, Split) else (known.whole,):
            yield below
            yield from definition_of(s, below)


def bound_onto(s: State, block: Block) -> bool:
    sizes = [as_int(it.extent) for it in block.iters]
    mapped = None if None in sizes else mapped_bindings(s, block, unused=False)
    wanted = [(0, n - 1) for n in sizes if n is not None]
    return mapped is not None and mapped.surjective and list(mapped.ranges) == wanted


def binds_injectively(s: State, block: Block) -> bool:
    """Whether no two iterations of the loops around a block, within its scope, run the same instance."""
    mapped = mapped_bindings(s, block, unused=True)
    return mapped is not None and mapped.injective


def mapped_bindings(s: State, block: Block, unused: bool) -> IterationMap | None:
    """The bindings as a map of the loops around, with or without those that nothing mentions."""
    bindings = [s.resolve(b) for b in block.bindings]
    predicate = [s.resolve(p) for p in block.predicate]
    used = {v for e in (*bindings, *predicate) for v in free_vars(e)}
    loops = [v for v in s.loops_around(block.name) if unused or v in used]
    extents = {v: n for v in loops if (n := s.fixed_extent(v)) is not None}
    if len(extents) != len(loops) or not used <= set(loops) or loads(*predicate):
        return None
    return iteration_map(bindings, extents, predicate)


# --- signatures -----------------------------------------------------------------------------------


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
