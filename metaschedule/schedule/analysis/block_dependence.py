"""Whether the instances of a block depend on each other.

An instance is one point of the block's iterators. What one instance writes, another may see, unless

- every element that is written belongs to one point of the spatial iterators (`is_injective`), and is read
  (if at all) only by the instances that write it; and
- instances that share elements (they differ in reduction iterators only) combine them by an operation in
  which order does not matter, or keep their order (`primitive/reorder.py`).
"""

from __future__ import annotations

from functools import lru_cache

from ... import ir
from ...affine.injective import is_injective, is_one_to_one
from ...errors import ScheduleError
from ..state import State


def order_matters(s: State, block: ir.Block) -> str | None:
    """Why instances with different spatial iterators may depend on each other; None if they do not."""
    if s.children[block.name]:
        return "it has blocks inside"
    return _dependence(block.iters, block.init, block.body)


@lru_cache(maxsize=4096)  # no loop transformation changes these, and every replay asks again
def _dependence(iters: tuple[ir.Iter, ...], init: ir.Body, body: ir.Body) -> str | None:
    spatial = {it.var: ir.as_int(it.extent) for it in iters if it.kind == "spatial"}
    moving = {v: n for v, n in spatial.items() if n != 1}
    stores = [x for x in ir.walk((*init, *body)) if isinstance(x, ir.Store)]
    if not stores:
        return "it stores nothing that could be seen"
    for store in stores:
        first = next(x for x in stores if x.buffer is store.buffer)
        if not ir.same_exprs(first.indices, store.indices):
            return f"it stores to several elements of {store.buffer.name}"
        used = {v for index in store.indices for v in ir.free_vars(index)}
        if not used <= set(spatial):
            return f"where it stores to {store.buffer.name} depends on more than its spatial iterators"
        if not set(moving) <= used or not is_one_to_one(store.indices, spatial):
            return f"several instances may store to the same element of {store.buffer.name}"
    for e in ir.expressions((*init, *body)):
        if isinstance(e, ir.Load):
            mine = next((x for x in stores if x.buffer is e.buffer), None)
            if mine is not None and not ir.same_exprs(e.indices, mine.indices):
                return f"it reads elements of {e.buffer.name} that other instances store"
    return None


def check_independent(s: State, block: ir.Block) -> None:
    """Raises if instances of a block with different spatial iterators may see what others write."""
    why = order_matters(s, block)
    if why and not stores_tiles(block):
        raise ScheduleError(f"instances of block {block.name!r} may depend on each other: {why}",
                            marks={block.name: why})  # fmt: skip


def stores_tiles(block: ir.Block) -> bool:
    """Whether blocks with loops inside write tiles that do not overlap, and read no others."""
    read = {r.buffer for r in block.reads}
    if any(w.buffer in read for w in block.writes) or not block.writes:
        return False
    spatial = {it.var: ir.as_int(it.extent) for it in block.iters if it.kind == "spatial"}
    for region in block.writes:
        used = {v for start, _ in region.ranges for v in ir.free_vars(start)}
        if not used <= set(spatial) or is_injective(region.ranges, spatial) is not True:
            return False
    return True
