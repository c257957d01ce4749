"""pad_einsum: a sum of products on extents rounded up; decompose_padding.py takes padding apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ScheduleError
from ...ir import (
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Iter,
    Load,
    Rewriter,
    Store,
    Var,
    all_of,
    as_int,
    binary,
    changed,
    const,
    expr_key,
    free_vars,
    is_float,
    select,
)
from ..analysis.limits import LARGEST_ELEMENT, check_count
from ..analysis.reducers import Reducer, find_reducer
from ..analysis.signature import refresh_scopes, with_signature
from ..state import Key, State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive
from .decompose_padding import DecomposePadding


@dataclass(slots=True)
class PadPlan:
    block: Block
    top: Var  # the outermost loop of the block's nest
    store: Store
    operands: list[Load]  # to be copied, each place once
    sizes: dict[Var, int]  # iterator -> extent with padding
    padded: set[Var]  # the iterators that get padding


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
        reducer = find_reducer(block)
        if reducer is None or reducer.ops != ("+",) or not is_zero(reducer.identities[0]):
            raise ScheduleError(f"block {block.name!r} is not a sum that starts from 0", marks)
        found = factors(reducer.terms[0])
        if found is None:
            raise ScheduleError(f"block {block.name!r} does not sum products of loads", marks)
        sizes: dict[Var, int] = {}
        padded: set[Var] = set()
        top = check_own_nest(s, block)
        for it, m, given in zip(block.iters, multiples, self.padding, strict=True):
            extent = as_int(it.extent) or 0
            sizes[it.var] = -(-extent // m) * m
            if sizes[it.var] != extent or isinstance(given, ExprRV):
                padded.add(it.var)
                if it.kind == "reduce" and is_float(reducer.terms[0].dtype):
                    self.check_in_every_factor(block, it.var, found)
        self.check_indices(block, reducer, found, padded)
        check_count(math.prod(sizes.values()) * LARGEST_ELEMENT, "the bytes of padded operands", marks)
        places = {expr_key(f): f for f in found if isinstance(f, Load)}
        copied = [f for f in places.values() if any(i in padded for i in f.indices)]
        return PadPlan(block, top, reducer.stores[0], copied, sizes, padded)

    def check_indices(
        self, block: Block, reducer: Reducer, found: list[Load | Const], padded: set[Var]
    ) -> None:
        store = reducer.stores[0]
        for load in found:
            if isinstance(load, Load) and any(is_mixed(i, padded) for i in load.indices):
                raise ScheduleError(
                    f"an index of {load.buffer.name} is more than an iterator that is padded",
                    marks={block.name: f"reads {load}"},
                    help="only indices as in A[i, k] can be padded",
                )
        spatial = {it.var for it in block.iters if it.kind == "spatial"}
        if not spatial & padded:
            return
        given = [i for i in store.indices if isinstance(i, Var)]
        if len(given) != len(store.indices) or len(set(given)) != len(given) or set(given) != spatial:
            raise ScheduleError(
                f"the indices of {store.buffer.name} are not the spatial iterators, each once",
                marks={block.name: f"writes {Load(store.buffer, store.indices)}"},
            )

    def check_in_every_factor(self, block: Block, var: Var, found: list[Load | Const]) -> None:
        for f in found:
            if not isinstance(f, Load) or not any(i is var for i in f.indices):
                raise ScheduleError(
                    f"{var.name} is not in every factor, and zero times the other may not be zero",
                    marks={block.name: f"{f} does not use {var.name}"},
                    help="infinity and NaN times zero are NaN: pad the other iterators",
                )

    def apply(self, s: State, plan: PadPlan) -> tuple[Any, ...]:
        if not plan.padded:
            return ()
        block, store, sizes = plan.block, plan.store, plan.sizes
        padded_load: dict[Any, Buffer] = {}
        before = [self.add_operand(s, plan, load, padded_load) for load in plan.operands]
        result = store.buffer
        after: list[Key] = []
        if any(i in plan.padded for i in store.indices):
            shape = tuple([sizes[i] for i in store.indices if isinstance(i, Var)])
            result = Buffer(f"{result.name}_pad", shape, result.dtype)
            s.allocs = (*s.allocs, result)
            after.append(self.add_result(s, plan, result))
        put = PutPadded(padded_load, {store.buffer: result})
        new = changed(
            block,
            iters=tuple([Iter(it.var, const(sizes[it.var]), it.kind) for it in block.iters]),
            init=put.body(block.init),
            body=put.body(block.body),
        )
        s.nodes[block.name] = with_signature(new)
        for it, binding in zip(block.iters, block.bindings, strict=True):
            assert isinstance(binding, Var)
            s.update(binding, extent=const(sizes[it.var]))
            s.extents[binding] = const(sizes[it.var])
        parent = s.parent[plan.top]
        siblings: list[Key] = []
        for child in s.children[parent]:
            siblings += [*before, child, *after] if child is plan.top else [child]
        s.set_children(parent, siblings)
        refresh_scopes(s, plan.top)
        return tuple([s.blocks_below(key)[0] for key in (*before, *after)])

    def add_operand(self, s: State, plan: PadPlan, load: Load, made: dict[Any, Buffer]) -> Key:
        sizes = [
            plan.sizes[i] if isinstance(i, Var) and i in plan.sizes else size
            for i, size in zip(load.indices, load.buffer.shape, strict=True)
        ]
        copy = Buffer(f"{load.buffer.name}_pad", tuple(sizes), load.dtype)
        s.allocs = (*s.allocs, copy)
        made[expr_key(load)] = copy
        new = [Var(i.name if isinstance(i, Var) else f"v{n}") for n, i in enumerate(load.indices)]
        extents = {it.var: it.extent for it in plan.block.iters}
        tests = [
            binary("<", n, extents[i])
            for n, i in zip(new, load.indices, strict=True)
            if isinstance(i, Var) and i in plan.padded
        ]
        value = select(all_of(tests), Load(load.buffer, tuple(new)), const(0, load.dtype))
        return s.add(copying(copy.name, new, sizes, Store(copy, tuple(new), value)))

    def add_result(self, s: State, plan: PadPlan, result: Buffer) -> Key:
        store = plan.store
        extents = {it.var: as_int(it.extent) or 0 for it in plan.block.iters}
        used = [i for i in store.indices if isinstance(i, Var)]
        new = [Var(v.name) for v in used]
        copy = Store(store.buffer, tuple(new), Load(result, tuple(new)))
        return s.add(copying(f"{plan.block.name}_crop", new, [extents[v] for v in used], copy))


def check_own_nest(s: State, block: Block) -> Var:
    """The outermost of a block's own loops; raises if its iterators have no loops of their own, as
    written."""
    own: set[Var] = set()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        extent = as_int(it.extent)
        if (
            not isinstance(binding, Var)
            or not isinstance(s.nodes.get(binding), For)
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
    top: Var | None = None
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


def copying(name: str, iters: list[Var], extents: list[int], store: Store) -> For:
    """A nest of loops, one per iterator, around a block that does one store."""
    loops = [Var(v.name.removeprefix("v_")) for v in iters]
    block = Block(
        name,
        tuple([Iter(v, const(n)) for v, n in zip(iters, extents, strict=True)]),
        tuple(loops),
        (),
        (),
        (store,),
    )
    nest: Any = with_signature(block)
    for var, extent in zip(reversed(loops), reversed(extents), strict=True):
        nest = For(var, const(extent), (nest,))
    return nest


class PutPadded(Rewriter):
    """Reads operands from their copies, by place; other buffers are replaced wherever they are."""

    def __init__(self, copies: dict[Any, Buffer], buffers: dict[Buffer, Buffer]) -> None:
        self.copies, self.buffers = copies, buffers

    def expr(self, e: Expr) -> Expr:
        if type(e) is Load and (copy := self.copies.get(expr_key(e))) is not None:
            return Load(copy, e.indices)
        return super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        return self.buffers.get(b, b)


def factors(term: Expr) -> list[Load | Const] | None:
    """The loads and constants whose product a term is; casts of them count as themselves."""
    if isinstance(term, Binary) and term.op == "*":
        a, b = factors(term.a), factors(term.b)
        return None if a is None or b is None else a + b
    if isinstance(term, Cast):
        return factors(term.a) if isinstance(term.a, (Load, Cast)) else None
    return [term] if isinstance(term, (Load, Const)) else None


def is_mixed(index: Expr, padded: set[Var]) -> bool:
    """Whether an index moves with a padded iterator, and is not that iterator."""
    return not isinstance(index, Var) and any(v in padded for v in free_vars(index))


def is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


class PaddingSteps(Steps):
    def pad_einsum(self, block: BlockRV, padding: Sequence[int | ExprRV]) -> list[BlockRV]:
        """Round the extents of a sum of products up; gives the copying blocks. See `PadEinsum`."""
        return list(self.run(PadEinsum(block, tuple(padding))))

    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Take padding apart; gives the block that fills. See `DecomposePadding`."""
        return self.run(DecomposePadding(block, loop))[0]
