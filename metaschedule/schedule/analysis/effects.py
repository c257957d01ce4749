"""Who reads and writes which buffers, in program order, and whether what was read stays as it was.

`touch` is what a node itself does, `effects` lists everything below a place; `why_sources_change` decides
whether an expression may be evaluated at another place.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import lru_cache

from ... import ir
from ...affine.access import Access, accesses_of
from ...affine.definitions import leaf_loops_by_kind
from ..state import ROOT, Key, State
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


def is_plain_loop(node: ir.Stmt) -> bool:
    """Whether a node is a loop of constant extent, as most are."""
    return type(node) is ir.For and type(node.extent) is ir.Const


def touch(node: ir.Stmt) -> Touch:
    """What a node of the tree itself touches (not what the tree has below it)."""
    return NOTHING if is_plain_loop(node) else _touch(node)


@lru_cache(maxsize=1024)  # records do not change, and every step asks about all of them
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


def users(s: State, keys: Iterable[Key], buffer: ir.Buffer) -> list[Key]:
    """Those of some nodes that use a buffer."""
    nodes = s.nodes
    return [key for key in keys if not is_plain_loop(nodes[key]) and touch(nodes[key]).uses(buffer)]


# --- in program order -----------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Effect:
    """What a block without blocks inside, or anything `outside` of such blocks, reads and writes."""

    key: Key
    reads: Buffers
    writes: Buffers
    outside: bool  # an extent, a condition, a binding, a statement that is in no block

    def describe(self) -> str:
        return f"block {self.key!r}" if isinstance(self.key, str) else "a statement outside of blocks"


def effects(s: State, key: Key = ROOT) -> list[Effect]:
    """Everything below a node that touches memory, in program order."""
    found: list[Effect] = []

    waiting = list(reversed(s.children[key]))
    while waiting:
        at = waiting.pop()
        node, below = s.nodes[at], s.children[at]
        if is_plain_loop(node):
            waiting += reversed(below)
            continue
        touched = touch(node)
        if touched.loaded:
            found.append(Effect(at, touched.loaded, NONE, True))
        if below:
            waiting += reversed(below)
        else:
            found.append(Effect(at, touched.reads, touched.writes, not isinstance(node, ir.Block)))
    return found


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


def why_sources_change(
    s: State, events: list[Effect], sources: Set[ir.Buffer], reader: Key, parallel: bool = True
) -> str | None:
    """Why `sources`, as the block `reader` sees them, may be other values at some later place; None if they
    are final: written before it only, and never again with another value. `parallel`: the later place may be
    in another iteration of a parallel loop."""
    place = next(n for n, e in enumerate(events) if e.key is reader and not e.outside)
    settled: set[tuple[Effect, Key]] = set()
    for n, event in enumerate(events):
        for buffer in event.writes & sources:
            if n >= place:
                return f"{buffer.name} is written again by {event.describe()}"
            why = why_not_stable(s, events, event, reader, parallel, settled)
            if why:
                return f"{buffer.name} may change: {why}"
    return None


def why_not_stable(
    s: State,
    events: list[Effect],
    writer: Effect,
    reader: Key,
    parallel: bool = True,
    settled: set[tuple[Effect, Key]] | None = None,
) -> str | None:
    """Why a writer before `reader` may store other values when loops around both go on; `parallel`: and when
    other iterations of a parallel loop do. `settled`: pairs that have been looked at; there are as many paths
    through a chain of diamonds as there are subsets of them."""
    settled = set() if settled is None else settled
    shared = shared_variables(s, writer.key, reader)
    if not shared or (writer, reader) in settled:
        return None  # it is done
    settled.add((writer, reader))
    for var in shared if parallel else ():
        if var in s.nodes and s.nodes[var].kind not in ("serial", "unrolled", "vectorized"):
            return f"{writer.describe()} is in a {s.nodes[var].kind} loop with {reader!r}"
    if writer.outside or any(e is not writer and e.writes & writer.writes for e in events):
        return f"{writer.describe()} is not the only one that writes it in the loops around"
    block = s.nodes[writer.key]
    why = order_matters(s, block)
    if why or writer.reads & writer.writes:
        return f"{writer.describe()} may write it again: {why or 'it reads what it writes'}"
    if shared & leaf_loops_by_kind(s, block)[1]:
        return f"the reduction of {writer.describe()} goes on around {reader!r}"
    place = next(n for n, e in enumerate(events) if e is writer)
    for n, event in enumerate(events):
        if event.writes & writer.reads:
            if n > place and shared_variables(s, event.key, writer.key):
                return f"{event.describe()} changes what it is computed from"
            if n < place and (why := why_not_stable(s, events, event, writer.key, parallel, settled)):
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
        if is_plain_loop(node):
            continue
        if loaded := touch(node).loaded:
            found.loaded |= loaded
        if type(node) is ir.Block:
            for a in accesses_of(node):
                found.accesses.setdefault(a.buffer, []).append(a)
                if a.is_write:
                    found.written[a.buffer] = None
        elif type(node) is not ir.For and not (type(node) is ir.If and s.children[key]):
            found.problem = "there is a statement outside of any block"
    return found
