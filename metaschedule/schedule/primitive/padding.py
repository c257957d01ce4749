"""pad_einsum: a sum of products on extents rounded up; decompose_padding.py takes padding apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...errors import ScheduleError
from ...ir.reducers import BlockReducer, find_reducer
from ..analysis.limits import LARGEST_ELEMENT, check_count
from ..analysis.signature import infer_signature, refresh_scopes
from ..state import Key, State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive
from .decompose_padding import DecomposePadding


@dataclass(slots=True)
class PadPlan:
    block: ir.Block
    top: ir.Var  # the outermost loop of the block's nest
    store: ir.Store
    operands: list[ir.Load]  # to be copied, each place once
    sizes: dict[ir.Var, int]  # iterator -> extent with padding
    padded: set[ir.Var]  # the iterators that get padding


@primitive("pad_einsum")
class PadEinsum(Primitive):
    """Round the extents of a sum of products up to multiples, with zeros for what is not there.

    rewrite:   for i, j, k: C[i, j] += A[i, k] * B[k, j]
          -->  A_pad, B_pad = A and B with zeros up to the padded extents
               for i, j, k in padded extents: C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
               for i, j: C[i, j] = C_pad[i, j]
    requires:  1. one positive number per iterator of the block; 1 leaves it as it is
               2. the block sums products of loads, starting from 0
               3. an iterator that is padded is an index by itself; if a spatial one is, the result's indices
                  are all the spatial ones, each once
               4. every iterator has a loop of its own, in a nest with nothing else, as it was written
               5. a padded reduction iterator is in every factor of a float product (0 * inf is no 0)
    Atomic: cached operands with `pad_value` and a transformed block would leave a predicate on the sums, and
    to drop that one has to know what this knows: all factors are 0 there, and nobody reads the result.
    Gives the copies of the operands in order of appearance, then the block that copies the result back.
    An operand without padded indices is not copied. With sampled numbers the structure is that of padding
    every iterator, whatever was drawn.
    """

    block: BlockRV
    padding: tuple[int | ExprRV, ...]

    def check(self, s: State) -> PadPlan:
        block = s.block(self.block)
        marks = {block.name: "this block"}
        multiples = [s.number(p) for p in self.padding]
        if len(multiples) != len(block.iters):
            raise ScheduleError(
                f"block {block.name!r} has {len(block.iters)} iterators, padding has {len(multiples)}", marks
            )
        if any(m < 1 for m in multiples):
            raise ScheduleError(f"padding must be positive, got {multiples}", marks)
        reducer = get_sum(block)
        found = factors(reducer.terms[0])
        if found is None:
            raise ScheduleError(f"block {block.name!r} does not sum products of loads", marks)
        sizes: dict[ir.Var, int] = {}
        padded: set[ir.Var] = set()
        top = check_own_nest(s, block)
        for it, m, given in zip(block.iters, multiples, self.padding, strict=True):
            extent = ir.as_int(it.extent) or 0
            sizes[it.var] = -(-extent // m) * m
            if sizes[it.var] != extent or isinstance(given, ExprRV):
                padded.add(it.var)
                if it.kind == "reduce" and ir.is_float(reducer.terms[0].dtype):
                    self.check_in_every_factor(block, it.var, found)
        self.check_indices(block, reducer, found, padded)
        check_count(math.prod(sizes.values()) * LARGEST_ELEMENT, "the bytes of padded operands", marks)
        places = {ir.expr_key(f): f for f in found if isinstance(f, ir.Load)}
        copied = [f for f in places.values() if any(i in padded for i in f.indices)]
        return PadPlan(block, top, reducer.stores[0], copied, sizes, padded)

    def check_indices(
        self, block: ir.Block, reducer: BlockReducer, found: list[ir.Load | ir.Const], padded: set[ir.Var]
    ) -> None:
        store = reducer.stores[0]
        for load in found:
            if isinstance(load, ir.Load) and any(is_mixed(i, padded) for i in load.indices):
                raise ScheduleError(
                    f"an index of {load.buffer.name} is more than an iterator that is padded",
                    marks={block.name: f"reads {load}"},
                    help="only indices as in A[i, k] can be padded",
                )
        spatial = {it.var for it in block.iters if it.kind == "spatial"}
        if not spatial & padded:
            return
        given = [i for i in store.indices if isinstance(i, ir.Var)]
        if len(given) != len(store.indices) or len(set(given)) != len(given) or set(given) != spatial:
            raise ScheduleError(
                f"the indices of {store.buffer.name} are not the spatial iterators, each once",
                marks={block.name: f"writes {ir.Load(store.buffer, store.indices)}"},
            )

    def check_in_every_factor(self, block: ir.Block, var: ir.Var, found: list[ir.Load | ir.Const]) -> None:
        for f in found:
            if not isinstance(f, ir.Load) or not any(i is var for i in f.indices):
                raise ScheduleError(
                    f"{var.name} is not in every factor, and zero times the other may not be zero",
                    marks={block.name: f"{f} does not use {var.name}"},
                    help="infinity and NaN times zero are NaN: pad the other iterators",
                )

    def apply(self, s: State, plan: PadPlan) -> tuple[Any, ...]:
        if not plan.padded:
            return ()
        block, store, sizes = plan.block, plan.store, plan.sizes
        padded_load: dict[Any, ir.Buffer] = {}
        before = [self.add_operand(s, plan, load, padded_load) for load in plan.operands]
        result = store.buffer
        after: list[Key] = []
        if any(i in plan.padded for i in store.indices):
            shape = tuple([sizes[i] for i in store.indices if isinstance(i, ir.Var)])
            result = ir.Buffer(f"{result.name}_pad", shape, result.dtype)
            s.allocs = (*s.allocs, result)
            after.append(self.add_result(s, plan, result))
        put = PutPadded(padded_load, {store.buffer: result})
        new = ir.replace_fields(
            block,
            iters=tuple([ir.Iter(it.var, ir.const(sizes[it.var]), it.kind) for it in block.iters]),
            init=put.body(block.init),
            body=put.body(block.body),
        )
        s.set_node(block.name, infer_signature(new))
        for it, binding in zip(block.iters, block.bindings, strict=True):
            assert isinstance(binding, ir.Var)
            s.update(binding, extent=ir.const(sizes[it.var]))
            s.extents[binding] = ir.const(sizes[it.var])
        s.put_at(plan.top, [*before, plan.top, *after])
        refresh_scopes(s, plan.top)
        return tuple([s.blocks_below(key)[0] for key in (*before, *after)])

    def add_operand(self, s: State, plan: PadPlan, load: ir.Load, made: dict[Any, ir.Buffer]) -> Key:
        sizes = [
            plan.sizes[i] if isinstance(i, ir.Var) and i in plan.sizes else size
            for i, size in zip(load.indices, load.buffer.shape, strict=True)
        ]
        copy = ir.Buffer(f"{load.buffer.name}_pad", tuple(sizes), load.dtype)
        s.allocs = (*s.allocs, copy)
        made[ir.expr_key(load)] = copy
        new = [ir.Var(i.name if isinstance(i, ir.Var) else f"v{n}") for n, i in enumerate(load.indices)]
        extents = {it.var: it.extent for it in plan.block.iters}
        tests = [
            ir.binary("<", n, extents[i])
            for n, i in zip(new, load.indices, strict=True)
            if isinstance(i, ir.Var) and i in plan.padded
        ]
        value = ir.select(ir.all_of(tests), ir.Load(load.buffer, tuple(new)), ir.const(0, load.dtype))
        return s.add(copy_nest(copy.name, new, sizes, ir.Store(copy, tuple(new), value)))

    def add_result(self, s: State, plan: PadPlan, result: ir.Buffer) -> Key:
        store = plan.store
        extents = {it.var: ir.as_int(it.extent) or 0 for it in plan.block.iters}
        used = [i for i in store.indices if isinstance(i, ir.Var)]
        new = [ir.Var(v.name) for v in used]
        copy = ir.Store(store.buffer, tuple(new), ir.Load(result, tuple(new)))
        return s.add(copy_nest(f"{plan.block.name}_crop", new, [extents[v] for v in used], copy))


def get_sum(block: ir.Block) -> BlockReducer:
    """The sum from 0 that a block is."""
    reducer = find_reducer(block)
    if reducer is None or reducer.ops != ("+",) or not ir.is_zero(reducer.identities[0]):
        raise ScheduleError(
            f"block {block.name!r} is not a sum that starts from 0", marks={block.name: "this block"}
        )
    return reducer


def check_own_nest(s: State, block: ir.Block) -> ir.Var:
    """The outermost of a block's own loops; raises if its iterators have no loops of their own, as
    written."""
    own: set[ir.Var] = set()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        extent = ir.as_int(it.extent)
        if (
            not isinstance(binding, ir.Var)
            or not isinstance(s.nodes.get(binding), ir.For)
            or binding in own
            or extent is None
            or s.fixed_extent(binding) != extent
        ):
            raise ScheduleError(
                f"{it.var.name} has no loop of its own as it was written",
                marks={block.name: f"{it.var.name} is {binding}"},
                help="do this before the loops are split or fused",
            )
        own.add(binding)
    if block.predicate:
        raise ScheduleError(
            f"block {block.name!r} runs only where {block.predicate[0]}",
            marks={block.name: "has a predicate"},
        )
    key: Key = block.name
    top: ir.Var | None = None
    for loop in reversed(s.loops_around(block.name)):
        if not own:
            break
        if s.parent[key] is not loop or not s.is_only_child(key, of=loop) or s.fixed_extent(loop) is None:
            raise ScheduleError(
                "there is something else in the loops of the block, or an extent that is not constant",
                marks={loop: "has more in its body", block.name: "than this block"},
            )
        own.discard(loop)
        key = top = loop
    if top is None or own:
        raise ScheduleError("the loops are not around the block", marks={block.name: "this block"})
    return top


def copy_nest(name: str, iters: list[ir.Var], extents: list[int], store: ir.Store) -> ir.For:
    """A nest of loops, one per iterator, around a block that does one store."""
    loops = [ir.Var(v.name.removeprefix("v_")) for v in iters]
    block = ir.Block(
        name,
        tuple([ir.Iter(v, ir.const(n)) for v, n in zip(iters, extents, strict=True)]),
        tuple(loops),
        (),
        (),
        (store,),
    )
    nest: Any = infer_signature(block)
    for var, extent in zip(reversed(loops), reversed(extents), strict=True):
        nest = ir.For(var, ir.const(extent), (nest,))
    return nest


class PutPadded(ir.Substitute):
    """Reads operands from their copies, by place; other buffers are replaced wherever they are."""

    def __init__(self, copies: dict[Any, ir.Buffer], buffers: dict[ir.Buffer, ir.Buffer]) -> None:
        super().__init__({}, buffers)
        self.copies = copies

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Load and (copy := self.copies.get(ir.expr_key(e))) is not None:
            return ir.Load(copy, e.indices)
        return super().expr(e)


def factors(term: ir.Expr) -> list[ir.Load | ir.Const] | None:
    """The loads and constants whose product a term is; casts of them count as themselves."""
    if isinstance(term, ir.Binary) and term.op == "*":
        a, b = factors(term.a), factors(term.b)
        return None if a is None or b is None else a + b
    if isinstance(term, ir.Cast):
        return factors(term.a) if isinstance(term.a, (ir.Load, ir.Cast)) else None
    return [term] if isinstance(term, (ir.Load, ir.Const)) else None


def is_mixed(index: ir.Expr, padded: set[ir.Var]) -> bool:
    """Whether an index moves with a padded iterator, and is not that iterator."""
    return not isinstance(index, ir.Var) and any(v in padded for v in ir.free_vars(index))


class PaddingSteps(Steps):
    def pad_einsum(self, block: BlockRV, padding: Sequence[int | ExprRV]) -> list[BlockRV]:
        """Round the extents of a sum of products up; gives the copying blocks. See `PadEinsum`."""
        return list(self.run(PadEinsum(block, tuple(padding))))

    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Take padding apart; gives the block that fills. See `DecomposePadding`."""
        return self.run(DecomposePadding(block, loop))[0]
