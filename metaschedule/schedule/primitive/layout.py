"""Primitives for indices renamed: transform_layout, transform_block_layout, reorder_block_iter_var.

An index map is kept as texts (`analysis/index_text.py`), so that a trace is plain data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...arith import Domain, IndexMap, access_region, find_parameters, simplify
from ...errors import ScheduleError
from ..analysis.effects import touch
from ..analysis.index_text import (
    Spec,
    Texts,
    image_shape,
    index_map,
    index_texts,
    put_parameters,
)
from ..state import Key, State
from .base import BlockRV, ExprRV, Primitive, Steps, primitive
from .block_layout import ReorderBlockIterVar, TransformBlockLayout
from .cache_stage import accessed_buffer, owner_of, replace_buffer

Number = bool | int | float | str


@dataclass(slots=True)
class LayoutPlan:
    old: ir.Buffer
    new: ir.Buffer
    map: IndexMap
    fill: ir.Block | None
    parent: str
    child: Key | None  # the first that writes the buffer


@primitive("transform_layout")
class TransformLayout(Primitive):
    """Store an intermediate buffer in another order, wherever the program uses it.

    rewrite:   B = T.alloc((5, 7), "float32"); B[k, n]
          -->  B = T.alloc((2, 5, 4), "float32"); B[n // 4, k, n % 4]
                                                              (index_map=lambda k, n: (n // 4, k, n % 4))
    requires:  1. the block has that access, to an intermediate buffer
               2. the index map sends different indices to different ones, none of them negative
               3. `pad_value`, if given, is a number of the buffer's dtype ("inf", "-inf", "nan" as text)
    Elements that are no image (above: n = 7) are undefined, unless `pad_value` is given, which a new block
    then stores there, before the first writer. In the texts of the map p0, p1, ... stand for `parameters`,
    numbers that may be drawn.
    """

    block: BlockRV
    buffer_index: int
    kind: str
    index_map: Texts
    pad_value: Number | None = None
    parameters: tuple[int | ExprRV, ...] = ()

    def check(self, s: State) -> LayoutPlan:
        block = s.block(self.block)
        old = accessed_buffer(block, self.kind, self.buffer_index)
        owner = owner_of(s, old, block)
        texts = put_parameters(self.index_map, [s.number(p) for p in self.parameters])
        shape = image_shape(texts, old.shape)
        new = ir.Buffer(old.name, shape, old.dtype, old.scope)
        found = index_map(texts, len(old.shape))
        fill = None
        if self.pad_value is not None:
            fill = self.fill_block(old, new, found)
        if fill is None:
            return LayoutPlan(old, new, found, None, owner, None)
        if not s.children[owner]:
            raise ScheduleError(
                f"{old.name} lives in block {owner!r}, which has no blocks inside",
                marks={owner: "there is no place to fill it"},
                help="leave out pad_value",
            )
        first = next((c for c in s.children[owner] if writes_below(s, c, old)), s.children[owner][0])
        return LayoutPlan(old, new, found, fill, owner, first)

    def fill_block(self, old: ir.Buffer, new: ir.Buffer, found: IndexMap) -> ir.Block | None:
        """Stores the pad value to all that is no image; None if everything is."""
        value = pad_constant(self.pad_value, old.dtype)
        if math.prod(new.shape) == math.prod(old.shape):
            return None
        over = tuple([ir.Var(f"v{n}") for n in range(len(new.shape))])
        domain = Domain(dict(zip(over, new.shape)))
        outside: ir.Expr = ir.Const(False, "bool")
        for test in found.gaps(old.shape, over, domain):
            outside = ir.binary("or", outside, test)
        iters = tuple([ir.Iter(v, ir.const(n)) for v, n in zip(over, new.shape, strict=True)])
        body = (ir.Store(new, over, value),)
        return ir.Block(f"{old.name}_pad", iters, over, (), (new.region(*over),), body, predicate=(outside,))

    def apply(self, s: State, plan: LayoutPlan) -> tuple[Any, ...]:
        replace_buffer(s, plan.old, plan.new, Relayout(plan.old, plan.new, plan.map))
        if plan.fill is not None and plan.child is not None:
            loops = [ir.For(ir.Var(f"ax{n}"), it.extent, ()) for n, it in enumerate(plan.fill.iters)]
            values = dict(zip([it.var for it in plan.fill.iters], [f.var for f in loops], strict=True))
            name = s.fresh_block_name(plan.fill.name)
            s.set_node(name, plan.fill)
            s.children[name] = ()
            predicate = tuple([ir.substitute(c, values) for c in plan.fill.predicate])
            s.update(name, name=name, bindings=tuple(values.values()), predicate=predicate)
            s.put_at(plan.child, [s.nest(loops, [name]), plan.child])
        return ()


def writes_below(s: State, key: Key, buffer: ir.Buffer) -> bool:
    if buffer in touch(s.nodes[key]).writes:
        return True
    return any(writes_below(s, child, buffer) for child in s.children[key])


def pad_constant(value: Number | None, dtype: str) -> ir.Const:
    try:
        if isinstance(value, str):
            if value not in ("inf", "-inf", "nan"):
                raise ValueError
            value = float(value)
        if not isinstance(value, (bool, int, float)):
            raise ValueError
        return ir.const(value, dtype)
    except (ValueError, OverflowError):
        raise ScheduleError(f"pad_value {value!r:.40} is no number of dtype {dtype}") from None


class Relayout(ir.Rewriter):
    """Uses of a buffer become uses of its new layout."""

    def __init__(self, old: ir.Buffer, new: ir.Buffer, found: IndexMap) -> None:
        self.old, self.new, self.map = old, new, found
        self.domain = Domain()

    def indices(self, indices: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        values = dict(zip(self.map.inputs, indices, strict=True))
        mapped = [ir.substitute(e, values) for e in self.map.outputs]
        if not all(type(index) is ir.Var for index in indices):
            # What an index is made of stays as written where the map only moves it.
            mapped = [
                there if type(e) is ir.Var else simplify(there, self.domain)
                for e, there in zip(self.map.outputs, mapped, strict=True)
            ]
        return tuple(mapped)

    def buffer(self, b: ir.Buffer) -> ir.Buffer:
        return self.new if b is self.old else b

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Load and e.buffer is self.old:
            return ir.Load(self.new, self.indices(self.exprs(e.indices)))
        return super().expr(e)

    def region(self, r: ir.Region) -> ir.Region:
        if r.buffer is not self.old:
            return super().region(r)
        starts = [start for start, _ in r.ranges]
        if all(ir.as_int(extent) == 1 for _, extent in r.ranges):
            return self.new.region(*self.indices(starts))
        within: dict[ir.Var, ir.Expr | int] = {ir.Var("w"): extent for _, extent in r.ranges}
        moved = self.indices([start + w for start, w in zip(starts, within, strict=True)])
        return access_region(self.new, moved, within, self.domain)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Store) and s.buffer is self.old:
            return ir.Store(self.new, self.indices(self.exprs(s.indices)), self.expr(s.value))
        if not isinstance(s, ir.Block):
            return super().stmt(s)
        outside = self.domain
        extents = {it.var: n for it in s.iters if (n := ir.as_int(it.extent)) is not None}
        self.domain = Domain.keeping_names(extents)
        new = super().stmt(s)
        self.domain = outside
        return new


class LayoutSteps(Steps):
    def transform_layout(
        self,
        block: BlockRV,
        buffer_index: int,
        kind: str,
        index_map: Spec,
        pad_value: Number | None = None,
        parameters: Sequence[int | ExprRV] = (),
    ) -> None:
        """Store an intermediate buffer in another order; see `TransformLayout`.

        The index map is a function, the text of a lambda, or a tuple of texts over i0, i1, ... and the
        parameters p0, p1, ..."""
        regions = getattr(self.state.block(block), "writes" if kind == "write" else "reads")
        known = type(buffer_index) is int and 0 <= buffer_index < len(regions)
        rank = len(regions[buffer_index].buffer.shape) if known else len(find_parameters(index_map) or ())
        if isinstance(pad_value, float) and not math.isfinite(pad_value):
            pad_value = str(pad_value)
        texts = texts_for(index_map, rank)
        self.run(TransformLayout(block, buffer_index, kind, texts, pad_value, tuple(parameters)))

    def transform_block_layout(self, block: BlockRV, index_map: Spec) -> None:
        """Give a block other iterators, and new loops over them; see `TransformBlockLayout`."""
        rank = len(self.state.block(block).iters)
        self.run(TransformBlockLayout(block, texts_for(index_map, rank)))

    def reorder_block_iter_var(self, block: BlockRV, new_order: Sequence[int]) -> None:
        """List a block's iterators in another order; see `ReorderBlockIterVar`."""
        self.run(ReorderBlockIterVar(block, tuple(new_order)))


def texts_for(spec: Spec, rank: int) -> Texts:
    """The texts of an index map; a function that does not take `rank` indices is the caller's mistake."""
    names = find_parameters(spec) if callable(spec) else None
    if names is not None and len(names) != rank:
        raise ScheduleError(f"the index map takes {len(names)} indices, not {rank}")
    return index_texts(spec, rank)
