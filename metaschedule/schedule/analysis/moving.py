"""What must be true of a block, and of the loop, for the block to be moved below the loop.

Shared by compute_at and reverse_compute_at. A block that moves gets new loops, and its instances run in
another order, maybe more than once; so it must be one whose instances do not depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ... import ir
from ...affine.definitions import Definition, leaf_loops_of
from ...affine.injective import is_one_to_one
from ...affine.inverse import find_inverse
from ...affine.view import View
from ...errors import ScheduleError
from ...ir.reducers import find_reducer
from ..state import ROOT, Key, State
from .effects import Effect, effects_on, in_order, touch
from .iteration_domain import is_bound_plainly, is_count

Stores = dict[ir.Buffer, tuple[ir.Expr, ...]]  # at which indices, over spatial iterators


@dataclass(slots=True)
class Move:
    """A block with its new loops, and where it goes: below `loop`, as the child number `at`."""

    block: ir.Block
    loops: list[ir.For]
    loop: ir.Var
    at: int
    definitions: dict[ir.Var, tuple[Definition, ir.Expr]]  # of variables over the new loops, with extents
    after: State | None = None  # what it leads to, where that was made to be checked


def carry_out(s: State, move: Move) -> None:
    """Take a block from where it is, with the loops that become empty, and put it in its new place."""
    if move.after is not None:
        s.adopt(move.after)
        return
    name = move.block.name
    take_away(s, name)
    for var, (definition, extent) in move.definitions.items():
        s.extents[var] = extent
        s.define(var, definition)
    s.set_node(name, move.block)
    s.children.setdefault(name, ())
    top: Key = s.nest(move.loops, [name]) if move.loops else name
    children = s.children[move.loop]
    s.set_children(move.loop, [*children[: move.at], top, *children[move.at :]])


def take_away(s: State, key: Key) -> None:
    """Take a node out of the tree, and the loops around it that have nothing else in them."""
    parent = s.parent[key]
    while parent is not ROOT and not isinstance(parent, str) and s.is_only_child(key, of=parent):
        key, parent = parent, s.parent[parent]
        s.forget(key)
    s.set_children(parent, [c for c in s.children[parent] if c is not key])


# --- the place ------------------------------------------------------------------------------------


def check_place(s: State, block: ir.Block, loop: ir.Var) -> Key:
    """Raises unless a block can go below a loop at all; gives the innermost node around both."""
    around = [loop, *s.ancestors(loop)]
    own: list[Key] = []
    shared = {*around}
    for key in s.ancestors(block.name):
        if key in shared:
            meeting = key
            break
        own.append(key)
    else:
        meeting = ROOT
    if meeting is loop:
        raise ScheduleError(
            f"block {block.name!r} is inside of the loop over {loop.name} already",
            marks={loop: "this loop", block.name: "is around this block"},
        )
    if s.scope(loop) is not s.scope(block.name):
        raise ScheduleError(
            f"block {block.name!r} and the loop over {loop.name} are not in the same block",
            marks={loop: "another body", block.name: "than this one's"},
        )
    for key in own:
        if isinstance(s.nodes[key], ir.If):
            raise ScheduleError(
                f"block {block.name!r} is under a condition that is not around the loop over {loop.name}",
                marks={block.name: "under a condition"},
            )
    for key in around:
        node = s.nodes[key]
        if isinstance(node, ir.For) and node.kind == "vectorized":
            raise ScheduleError(
                f"the loop over {node.var.name} is vectorized",
                marks={node.var: "nothing can be moved into it"},
                help="vectorize after the block has been moved",
            )
    return meeting


def child_towards(s: State, key: Key, top: Key) -> Key:
    """The child of `top` that a node is in, or is."""
    while s.parent[key] is not top:
        key = s.parent[key]
    return key


def position(s: State, key: Key, top: Key) -> int:
    """Where among the children of `top` a node is."""
    return s.number_among_siblings(child_towards(s, key, top), top)


# --- the block ------------------------------------------------------------------------------------


def check_block(s: State, block: ir.Block) -> Stores:
    """Raises unless a block computes elements independently of each other; gives where it stores them."""
    name = block.name
    if not block.iters:
        raise ScheduleError(
            f"block {name!r} has no iterators", marks={name: "opaque: it runs as it is written"}
        )
    if s.children[name]:
        raise ScheduleError(f"block {name!r} has blocks inside", marks={name: "has blocks inside"})
    if any(ir.as_int(it.extent) is None for it in block.iters):
        raise ScheduleError(
            f"an iterator of block {name!r} has an extent that is not a constant", marks={name: "here"}
        )
    stores = find_stores(block.iters, block.init, block.body)
    if isinstance(stores, dict):
        shared = [b for b, indices in stores.items() if not tells_iterators(block.iters, indices)]
        stores = f"several instances store to the same element of {shared[0].name}" if shared else stores
    if isinstance(stores, str):
        raise ScheduleError(
            f"block {name!r} is neither complete nor a reduction: {stores}", marks={name: stores}
        )
    return stores


@lru_cache(maxsize=4096)  # moving changes none of these, and every replay asks again
def find_stores(iters: tuple[ir.Iter, ...], init: ir.Body, body: ir.Body) -> Stores | str:
    """The indices at which each instance stores, or why instances are not independent of each other."""
    spatial = {it.var: ir.as_int(it.extent) for it in iters if it.kind == "spatial"}
    stores: Stores = {}
    started: set[ir.Buffer] = set()
    for n, part in enumerate((init, body)):
        for x in ir.walk(part):
            if isinstance(x, ir.Assert):
                return "it may stop the program"
            if isinstance(x, ir.Store):
                first = stores.setdefault(x.buffer, x.indices)
                if not ir.same_exprs(first, x.indices):
                    return f"it stores to several elements of {x.buffer.name}"
                if not n:
                    started.add(x.buffer)
    if not stores:
        return "it stores nothing"
    for buffer, indices in stores.items():
        used = {v for index in indices for v in ir.free_vars(index)}
        if ir.loads(*indices):
            return f"where it stores to {buffer.name} depends on what it reads"
        if not used <= set(spatial):
            return f"where it stores to {buffer.name} depends on more than its spatial iterators"
        if any(n != 1 and v not in used for v, n in spatial.items()):
            return f"several instances store to the same element of {buffer.name}"
    for x in ir.expressions((*init, *body)):
        if isinstance(x, ir.Load) and x.buffer in stores:
            if x.buffer not in started:
                return f"it reads what it stores, {x.buffer.name}, without starting it"
            if not ir.same_exprs(x.indices, stores[x.buffer]):
                return f"it reads elements of {x.buffer.name} that other instances store"
    return stores


def tells_iterators(iters: tuple[ir.Iter, ...], indices: tuple[ir.Expr, ...]) -> bool:
    """Whether different values of the spatial iterators, all of which are there, have different indices."""
    if find_inverse(spatial_iters(iters), indices) is not None:
        return True
    return is_one_to_one(indices, {it.var: ir.as_int(it.extent) or 0 for it in spatial_iters(iters)})


@lru_cache(maxsize=4096)
def spatial_iters(iters: tuple[ir.Iter, ...]) -> tuple[ir.Iter, ...]:
    return tuple([it for it in iters if it.kind == "spatial"])


def check_only_writer(s: State, block: ir.Block) -> list[Effect]:
    """Raises if anything else stores to what a block stores to; gives all that reads it, in program order."""
    mine = touch(block).writes
    effects = effects_on(s, mine)
    for event in in_order(s, [x for x in effects if not x.writes.isdisjoint(mine)]):
        both = [b for b in event.writes & mine if event.key is not block.name]
        if both:
            key = event.key if isinstance(event.key, str) else block.name
            raise ScheduleError(
                f"block {block.name!r} is not the only one that stores to {both[0].name}",
                marks={key: "this one does, too"},
            )
    return in_order(s, [x for x in effects if not x.reads.isdisjoint(mine)])


def check_reduction(s: State, block: ir.Block, place: Key) -> None:
    """Raises unless a block that reduces does so once per element and inside of a place only, so that it may
    do so again with full loops, one for each iterator, in their order."""
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "reduce"]
    if not pairs:
        return
    reducing = leaf_loops_of(s, [b for _, b in pairs])
    outside = View(s, place).outside
    shared = [v for v in reducing if v in outside]
    if shared:
        raise ScheduleError(
            f"the reduction of block {block.name!r} goes on around both places",
            marks={shared[0]: "a reduction loop", block.name: "reduces over it"},
        )
    loops = s.loops_around(block.name)
    order = [v for v in loops if v in reducing]
    if find_reducer(block) is None and [id(b) for _, b in pairs] != [id(v) for v in order]:
        raise ScheduleError(
            f"block {block.name!r} does not reduce by an operation that is known to commute",
            marks={block.name: "its terms must keep their order"},
        )
    if is_bound_plainly(s, block):
        used = leaf_loops_of(s, block.bindings)
    else:
        tests = [t for t in block.predicate if not leaf_loops_of(s, [t]).isdisjoint(reducing)]
        inner = [t for t in tests if leaf_loops_of(s, [t]) <= reducing]
        alone = ir.replace_fields(
            block,
            iters=tuple([it for it, _ in pairs]),
            bindings=tuple([b for _, b in pairs]),
            predicate=tuple(inner),
        )
        # Another test may leave out the last terms of an element, or all of them.
        counts = all(is_count(s, t, set(loops)) for t in tests if not any(t is x for x in inner))
        if not is_bound_plainly(s, alone) or not counts:
            raise ScheduleError(
                f"the reduction of block {block.name!r} is not over loops of its own",
                marks={block.name: "a reduction iterator is bound to something else"},
            )
        used = reducing
    if order:
        start = next(n for n, v in enumerate(loops) if v is order[0])
        extra = [v for v in loops[start:] if v not in used and s.fixed_extent(v) != 1]
        if extra:
            raise ScheduleError(
                f"the loop over {extra[0].name} repeats terms of the reduction of block {block.name!r}",
                marks={extra[0]: "inside of a reduction loop", block.name: "reduces"},
            )
