"""What cache stages share: which buffer, where the copy goes, the copy itself.

A copy must see what its readers saw: between it and them nothing may store to the buffer. `place_before` and
`place_after` look for the outermost such place, so that a copy runs as seldom as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ... import ir
from ...affine.footprint import Box
from ...affine.interned import number
from ...errors import ScheduleError
from ...ir.buffer import SCOPES
from ..analysis.effects import touch
from ..state import ROOT, Key, State


def accessed_buffer(block: ir.Block, kind: str, index: int) -> ir.Buffer:
    """The buffer of the region that a block reads or writes as its `index`-th."""
    if kind not in ("read", "write"):
        raise ScheduleError(f'kind is {kind!r}: it must be "read" or "write"')
    regions = block.reads if kind == "read" else block.writes
    if type(index) is not int or not 0 <= index < len(regions):
        names = ", ".join(f"{n}: {r.buffer.name}" for n, r in enumerate(regions)) or "nothing"
        raise ScheduleError(
            f"block {block.name!r} has no {kind} {index!r}",
            marks={block.name: "this block"},
            help=f"it {kind}s {names}",
        )
    return regions[index].buffer


def check_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(f"unknown scope {scope!r}", help=f"one of {', '.join(SCOPES)}")


def is_never_written(s: State, buffer: ir.Buffer) -> bool:
    return buffer.data is not None or any(b is buffer for b in s.original.inputs)


# --- who touches a buffer ---


def loads_from(e: ir.Expr, buffer: ir.Buffer) -> bool:
    if type(e) is ir.Var:
        return False
    return any(type(x) is ir.Load and x.buffer is buffer for x in ir.subexpressions(e))


def writers(s: State, buffer: ir.Buffer) -> list[Key]:
    """The outermost blocks, and statements outside of blocks, that store to a buffer; in no special order."""
    return [k for k, node in s.nodes.items() if buffer in touch(node).writes and s.scope(k) is ROOT]


# --- places ---


def path(s: State, scope: Key, key: Key) -> list[Key]:
    """What leads from a scope to a node below it: the child of the scope first, the node last."""
    found: list[Key] = [key]
    for above in s.ancestors(key):
        if above is scope:
            break
        found.append(above)
    return found[::-1]


def check_descent(s: State, key: Key) -> None:
    """A copy goes inside of a loop only where iterations have memory of their own."""
    node = s.nodes[key]
    if isinstance(node, ir.For) and node.kind not in ("serial", "parallel", "unrolled"):
        raise ScheduleError(
            f"the copy would have to run inside of a {node.kind} loop",
            marks={key: node.kind},
            help="cache before vectorize and bind",
        )


def place_before(
    s: State, scope: Key, users: list[str], stores: list[Key], buffer: ir.Buffer
) -> tuple[Key, Key]:
    """(parent, child) such that a copy just before the child has what `users`, all below the parent, read."""
    ways = [path(s, scope, user) for user in users]
    store_ways = [path(s, scope, w) for w in stores]
    parent, depth = scope, 0
    while True:
        spots = [s.number_among_siblings(way[depth], parent) for way in ways]
        first, last = min(spots), max(spots)
        kids = s.children[parent]
        span = kids[first : last + 1]
        inside = [way for way in store_ways if len(way) > depth and any(way[depth] is kid for kid in span)]
        if not inside:
            return parent, kids[first]
        if first != last or isinstance(kids[first], str):
            raise ScheduleError(
                f"{buffer.name} is written between the copy and its readers",
                marks={**dict.fromkeys(users, "reads the copy"), inside[0][-1]: f"writes {buffer.name}"},
                help="cache for fewer consumers, or move the writer first",
            )
        parent, depth = kids[first], depth + 1
        check_descent(s, parent)


def place_after(s: State, block: str, buffer: ir.Buffer) -> tuple[Key, Key]:
    """(parent, child) such that a copy just after the child, which holds `block`, precedes all readers."""
    parent: Key = ROOT
    for step in path(s, ROOT, block):
        below = () if step is block else (step, *s.statements_below(step))
        if not any(key is not block and touch(s.nodes[key]).reads_from(buffer) for key in below):
            return parent, step
        parent = step
        check_descent(s, parent)
    raise AssertionError("the path ends with the block, below which nobody else reads")


# --- the copy ---


@lru_cache(maxsize=4096)
def copy_buffer(old: ir.Buffer, scope: str, number: int) -> ir.Buffer:
    """A buffer for a copy: the same one whenever a state makes its `number`-th, so that replays share the
    bodies that use it, and what is known of them."""
    return ir.Buffer(f"{old.name}_{scope}", old.shape, old.dtype, scope)


@dataclass(slots=True)
class Copy:
    """`target[to] = source[at]` for the points of a box; `to` and `at` are over the iterators."""

    name: str
    iters: tuple[ir.Iter, ...]
    box: Box
    source: ir.Buffer
    at: tuple[ir.Expr, ...]
    target: ir.Buffer
    to: tuple[ir.Expr, ...]
    guards: Sequence[ir.Expr] = ()  # over the iterators


def identity_copy(name: str, box: Box, source: ir.Buffer, target: ir.Buffer) -> Copy:
    iters = points(source, target)
    over = tuple([it.var for it in iters])
    return Copy(name, iters, box, source, over, target, over)


@lru_cache(maxsize=4096)
def points(source: ir.Buffer, target: ir.Buffer) -> tuple[ir.Iter, ...]:
    """Iterators for a copy between two buffers."""
    return tuple([ir.Iter(ir.Var(f"v{n}"), ir.Const(size, ir.INDEX)) for n, size in enumerate(source.shape)])


@lru_cache(maxsize=4096)
def assignment(
    target: ir.Buffer, to: tuple[ir.Expr, ...], source: ir.Buffer, at: tuple[ir.Expr, ...]
) -> tuple[tuple[ir.Region, ...], tuple[ir.Region, ...], ir.Body]:
    """The reads, writes and body of `target[to] = source[at]`."""
    return (source.region(*at),), (target.region(*to),), (ir.Store(target, to, ir.Load(source, at)),)


def add_copy(s: State, copy: Copy) -> tuple[Key, str]:
    """Enter the loops and the block of a copy; gives the outermost key and the block's. The caller puts it in
    its place."""
    spans = [span for span, _ in copy.box.ranges]
    loops = [ir.For(s.fresh(f"ax{n}"), number(span.extent), ()) for n, span in enumerate(spans)]
    bindings = tuple([span.start_plus(loop.var) for loop, span in zip(loops, spans, strict=True)])
    clips = [
        ir.binary("<", b, ir.const(limit))
        for b, (_, limit) in zip(bindings, copy.box.ranges, strict=True)
        if limit is not None
    ]
    values = {it.var: binding for it, binding in zip(copy.iters, bindings, strict=True)}
    tests = (*copy.box.guards, *clips, *[ir.substitute(g, values) for g in copy.guards])
    name = s.fresh_block_name(copy.name)
    signature_and_body = assignment(copy.target, copy.to, copy.source, copy.at)
    s.set_node(name, ir.Block(name, copy.iters, bindings, *signature_and_body, predicate=tests))
    s.children[name] = ()
    return (s.nest(loops, [name]) if loops else name), name


# --- other buffers in old places ---


def redirect(s: State, name: str, old: ir.Buffer, new: ir.Buffer) -> None:
    """Let a block, and everything in it, use another buffer; not its bindings, which are outside."""
    node: ir.Block = s.nodes[name]
    reads, writes, init, body = redirect_buffer(node.reads, node.writes, node.init, node.body, old, new)
    s.update(name, reads=reads, writes=writes, init=init, body=body)
    rewrite_below(s, name, ir.Substitute({}, {old: new}))


@lru_cache(maxsize=4096)
def redirect_buffer(
    reads: tuple[ir.Region, ...],
    writes: tuple[ir.Region, ...],
    init: ir.Body,
    body: ir.Body,
    old: ir.Buffer,
    new: ir.Buffer,
) -> tuple[tuple[ir.Region, ...], tuple[ir.Region, ...], ir.Body, ir.Body]:
    swap = ir.Substitute({}, {old: new})
    return (
        tuple([ir.Region(new, r.ranges) if r.buffer is old else r for r in reads]),
        tuple([ir.Region(new, r.ranges) if r.buffer is old else r for r in writes]),
        swap.body(init),
        swap.body(body),
    )


def rewrite_below(s: State, key: Key, rewriter: ir.Rewriter) -> None:
    for child in s.children[key]:
        s.set_node(child, rewriter.stmt(s.nodes[child]))
        rewrite_below(s, child, rewriter)


def owner_of(s: State, buffer: ir.Buffer, block: ir.Block) -> str:
    """The block in which an intermediate buffer lives (ROOT: the program)."""
    if buffer.data is None:
        if any(b is buffer for b in s.allocs):
            return ROOT
        for key, node in s.nodes.items():
            if isinstance(node, ir.Block) and isinstance(key, str) and any(b is buffer for b in node.allocs):
                return key
    what = "a table" if buffer.data is not None else "a parameter of the program"
    raise ScheduleError(
        f"{buffer.name} is {what}",
        marks={block.name: f"uses {buffer.name}"},
        help="make a copy with cache_read or cache_write first",
    )


def replace_buffer(s: State, old: ir.Buffer, new: ir.Buffer, rewriter: ir.Rewriter | None = None) -> None:
    """Put an intermediate buffer in the place of another, everywhere."""
    rewriter = rewriter or ir.Substitute({}, {old: new})
    s.allocs = tuple([new if b is old else b for b in s.allocs])
    for key, node in list(s.nodes.items()):
        if mentions(node, old):
            s.set_node(key, rewriter.stmt(node))


def mentions(node: object, buffer: ir.Buffer) -> bool:
    if isinstance(node, ir.Block):
        if any(r.buffer is buffer for r in node.reads) or any(r.buffer is buffer for r in node.writes):
            return True
        if any(b is buffer for b in node.allocs):
            return True
        return any(loads_from(e, buffer) for e in ir.own_expressions(node))
    return not isinstance(node, ir.For) or loads_from(node.extent, buffer)
