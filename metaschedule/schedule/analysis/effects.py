"""Who reads and writes which buffers, in program order, and whether what was read stays as it was.

`touch` is what a node itself does; `readers` and `writers` are all that touch some buffers, found from the
buffers, so that a question costs what these have to do with, not what the program has; `why_sources_change`
decides whether an expression may be evaluated at another place.

    for t: { for i: P[i] = A[t + i];  for i: Y[t, i] = P[i] }
    P, as the second block sees it, may be other values later: the loop over t is around both, goes on, and P
    is written again. A copy of P made inside of t is right, one made after t is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import lru_cache

from ... import ir
from ...affine.access import Access, accesses_of
from ...affine.definitions import leaf_loops_by_kind
from ..state import ROOT, Key, State, is_plain_loop
from .block_dependence import order_matters

Buffers = frozenset[ir.Buffer]
NONE: Buffers = frozenset()


@dataclass(slots=True, eq=False)
class Touch:
    """The buffers that a node uses, a block with all that is in it, a loop without."""

    reads: Buffers
    writes: Buffers
    loaded: Buffers  # by extents, conditions, bindings: outside of the bodies of blocks

    def reads_from(self, buffer: ir.Buffer) -> bool:
        return buffer in self.reads or buffer in self.loaded

    def uses(self, buffer: ir.Buffer) -> bool:
        return buffer in self.writes or buffer in self.reads or buffer in self.loaded


NOTHING = Touch(NONE, NONE, NONE)


def touch(node: ir.Stmt) -> Touch:
    """What a node of the tree itself touches (not what the tree has below it)."""
    return NOTHING if is_plain_loop(node) else _touch(node)


def _touch(node: ir.Stmt) -> Touch:
    if isinstance(node, ir.Block):
        return _block_touch(node.reads, node.writes, node.iters, node.bindings, node.predicate)
    if isinstance(node, ir.For):
        return Touch(NONE, NONE, loaded_by(node.extent))
    reads = loaded_by(*[e for x in ir.walk(node) for e in ir.own_expressions(x)])
    writes = frozenset([x.buffer for x in ir.walk(node) if isinstance(x, ir.Store)])
    return Touch(reads, writes, loaded_by(node.cond) if isinstance(node, ir.If) else NONE)


@lru_cache(maxsize=8192)  # a replay makes new records of the same parts
def _block_touch(
    reads: tuple[ir.Region, ...],
    writes: tuple[ir.Region, ...],
    iters: tuple[ir.Iter, ...],
    bindings: tuple[ir.Expr, ...],
    tests: tuple[ir.Expr, ...],
) -> Touch:
    read, written = [frozenset([r.buffer for r in regions]) for regions in (reads, writes)]
    return Touch(read, written, loaded_by(*bindings, *tests, *[it.extent for it in iters]))


def loaded_by(*exprs: ir.Expr) -> Buffers:
    return frozenset([x.buffer for x in ir.loads(*exprs)])


def users(s: State, buffer: ir.Buffer) -> frozenset[Key]:
    """The nodes that use a buffer. Those that have changed since the last question are looked at again."""
    for key in s.changed:
        node = s.nodes.get(key)
        found = NONE
        if node is not None:
            touched = touch(node)
            found = touched.reads | touched.writes | touched.loaded
        known = s.used.pop(key, NONE)
        for gone in known - found:
            s.users[gone] -= {key}
        for new in found - known:
            s.users[new] = s.users.get(new, frozenset()) | {key}
        if found:
            s.used[key] = found
    s.changed.clear()
    return s.users.get(buffer, frozenset())


# --- in program order -----------------------------------------------------------------------------

Place = tuple[tuple[int, ...], bool]  # the way from the root; what a node's own fields load comes first


@dataclass(slots=True, eq=False)
class Effect:
    """What a block without blocks inside, or anything `outside` of such blocks, reads and writes."""

    key: Key
    reads: Buffers
    writes: Buffers
    outside: bool  # an extent, a condition, a binding, a statement that is in no block
    is_field: bool = False  # done before what is below the node

    def describe(self) -> str:
        return f"block {self.key!r}" if isinstance(self.key, str) else "a statement outside of blocks"


def place_of(s: State, what: Key | Effect) -> Place:
    """Of an effect, or of what a node does itself; places compare as the program runs."""
    key, last = (what.key, not what.is_field) if isinstance(what, Effect) else (what, True)
    way: list[int] = []
    while key is not ROOT:
        parent = s.parent[key]
        way.append(s.number_among_siblings(key, parent))
        key = parent
    way.reverse()
    return tuple(way), last


def effects_of(s: State, key: Key) -> Iterator[Effect]:
    """What a node touches: what its fields load, then what it does if nothing is below it."""
    node = s.nodes[key]
    touched = touch(node)
    if touched.loaded:
        yield Effect(key, touched.loaded, NONE, True, is_field=True)
    if not s.children[key]:
        yield Effect(key, touched.reads, touched.writes, not isinstance(node, ir.Block))


def effects_on(s: State, buffers: Set[ir.Buffer]) -> list[Effect]:
    """All that reads or writes some buffers, in no order."""
    keys = {key for buffer in buffers for key in users(s, buffer)}
    return [effect for key in keys for effect in effects_of(s, key)]


def writers(s: State, buffers: Set[ir.Buffer]) -> list[Effect]:
    """All that writes some buffers, in program order."""
    return in_order(s, [x for x in effects_on(s, buffers) if not x.writes.isdisjoint(buffers)])


def readers(s: State, buffers: Set[ir.Buffer]) -> list[Effect]:
    """All that reads some buffers, in program order."""
    return in_order(s, [x for x in effects_on(s, buffers) if not x.reads.isdisjoint(buffers)])


def in_order(s: State, effects: list[Effect]) -> list[Effect]:
    """Effects as the program runs; mostly there is one."""
    return sorted(effects, key=lambda x: place_of(s, x)) if len(effects) > 1 else effects


def shared_variables(s: State, a: Key, b: Key) -> set[ir.Var]:
    """The loops around both nodes, and the iterators of blocks around both."""
    found: set[ir.Var] = set()
    key = s.lowest_common_ancestor(a, s.parent[b])
    while key is not ROOT:
        if isinstance(key, ir.Var):
            found.add(key)
        elif isinstance(key, str):
            found.update([it.var for it in s.nodes[key].iters])
        key = s.parent[key]
    return found


def why_sources_change(s: State, sources: Set[ir.Buffer], reader: Key, parallel: bool = True) -> str | None:
    """Why `sources`, as the block `reader` sees them, may be other values at some later place; None if they
    are final: written before it only, and never again with another value. `parallel`: the later place may be
    in another iteration of a parallel loop."""
    place = place_of(s, reader)
    settled: set[tuple[Key, Key]] = set()
    for event in writers(s, sources):
        for buffer in event.writes & sources:
            if place_of(s, event) >= place:
                return f"{buffer.name} is written again by {event.describe()}"
            why = why_not_stable(s, event, reader, parallel, settled)
            if why:
                return f"{buffer.name} may change: {why}"
    return None


def why_not_stable(
    s: State,
    writer: Effect,
    reader: Key,
    parallel: bool = True,
    settled: set[tuple[Key, Key]] | None = None,
) -> str | None:
    """Why a writer before `reader` may store other values when loops around both go on; `parallel`: and when
    other iterations of a parallel loop do. `settled`: pairs that have been looked at; there are as many paths
    through a chain of diamonds as there are subsets of them."""
    settled = set() if settled is None else settled
    shared = shared_variables(s, writer.key, reader)
    if not shared or (writer.key, reader) in settled:
        return None  # it is done
    settled.add((writer.key, reader))
    for var in shared if parallel else ():
        if var in s.nodes and s.nodes[var].kind not in ("serial", "unrolled", "vectorized"):
            return f"{writer.describe()} is in a {s.nodes[var].kind} loop with {reader!r}"
    if writer.outside or any(e.key is not writer.key for e in writers(s, writer.writes)):
        return f"{writer.describe()} is not the only one that writes it in the loops around"
    block = s.nodes[writer.key]
    why = order_matters(s, block)
    if why or writer.reads & writer.writes:
        return f"{writer.describe()} may write it again: {why or 'it reads what it writes'}"
    if shared & leaf_loops_by_kind(s, block)[1]:
        return f"the reduction of {writer.describe()} goes on around {reader!r}"
    for event in writers(s, writer.reads):
        here, there = place_of(s, writer), place_of(s, event)
        if there > here and shared_variables(s, event.key, writer.key):
            return f"{event.describe()} changes what it is computed from"
        if there < here and (why := why_not_stable(s, event, writer.key, parallel, settled)):
            return why
    return None


# --- as accesses -----------------------------------------------------------------------------------


@dataclass(slots=True)
class AccessesBelow:
    """What a part of the program reads and writes."""

    accesses: dict[ir.Buffer, list[Access]] = field(default_factory=dict)
    written: dict[ir.Buffer, None] = field(default_factory=dict)  # in order
    loaded: set[ir.Buffer] = field(default_factory=set)  # read by extents, conditions and bindings
    problem: str | None = None  # why this is not all that is touched


def accesses_below(s: State, loop: ir.Var) -> AccessesBelow:
    """What the body of a loop reads and writes, in program order."""
    found = AccessesBelow()
    for key in s.statements_below(loop):
        node = s.nodes[key]
        touched = touch(node)
        if touched is NOTHING:
            continue
        if touched.loaded:
            found.loaded |= touched.loaded
        if type(node) is ir.Block:
            for a in accesses_of(node):
                found.accesses.setdefault(a.buffer, []).append(a)
                if a.is_write:
                    found.written[a.buffer] = None
        elif type(node) is not ir.For and not (type(node) is ir.If and s.children[key]):
            found.problem = "there is a statement outside of any block"
    return found
