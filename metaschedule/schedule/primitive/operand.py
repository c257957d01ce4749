"""convert_operand: a sum of products that reads an operand in another dtype, as an instruction wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...errors import ScheduleError
from ..analysis.signature import infer_signature, refresh_scopes
from ..state import Key, State
from .base import BlockRV, Primitive, Steps, primitive
from .padding import check_own_nest, get_sum

WIDER = {"float16": ("float32", "float64"), "bfloat16": ("float32", "float64"), "float32": ("float64",)}


@dataclass(slots=True)
class ConvertPlan:
    block: ir.Block
    top: ir.Var  # the outermost loop of the block's nest
    store: ir.Store
    load: ir.Load  # the operand
    cofactor: ir.Expr  # what it is multiplied with


@primitive("convert_operand")
class ConvertOperand(Primitive):
    """Read an operand of a sum of products from a copy in another dtype, moved by an offset.

    rewrite:   for i, j, k: C[i, j] += int32(A[i, k]) * int32(B[k, j])        (dtype="uint8", offset=128)
          -->  for x, y: A_uint8[x, y] = uint8(int32(A[x, y]) + 128)
               for j, k: C_offset[j] += 128 * int32(B[k, j])
               for i, j, k: C_sum[i, j] += int32(A_uint8[i, k]) * int32(B[k, j])
               for i, j: C[i, j] = C_sum[i, j] - C_offset[j]
    Gives the copy, and with an offset also the sum of the other factor and the block that takes it off.
    requires:  1. the block has that read, as one factor of the products that it sums, from 0
               2. the dtype holds all values of the operand, moved by the offset
               3. with an offset the sum is of integers, which wrap: any order gives the same
               4. every iterator has a loop of its own, in a nest with nothing else, as it was written
    """

    block: BlockRV
    read_index: int
    dtype: str
    offset: int = 0

    def check(self, s: State) -> ConvertPlan:
        block = s.block(self.block)
        marks = {block.name: "this block"}
        if not 0 <= self.read_index < len(block.reads):
            raise ScheduleError(
                f"block {block.name!r} has {len(block.reads)} reads, not {self.read_index + 1}", marks
            )
        buffer = block.reads[self.read_index].buffer
        if not holds(self.dtype, buffer.dtype, self.offset):
            moved = f" moved by {self.offset}" if self.offset else ""
            raise ScheduleError(f"{self.dtype} does not hold all values of {buffer.dtype}{moved}", marks)
        reducer = get_sum(block)
        uses = [e for e in ir.expressions(block.body) if isinstance(e, ir.Load) and e.buffer is buffer]
        found = [(a, b) for a, b in factors(reducer.terms[0]) if a.buffer is buffer]
        if len(found) != 1 or len(uses) != 1:
            raise ScheduleError(f"{buffer.name} is not one factor of what block {block.name!r} sums", marks)
        if self.offset and not ir.is_integer(reducer.terms[0].dtype):
            raise ScheduleError(f"with an offset a sum in {reducer.terms[0].dtype} rounds otherwise", marks)
        top = check_own_nest(s, block)
        return ConvertPlan(block, top, reducer.stores[0], *found[0])

    def apply(self, s: State, plan: ConvertPlan) -> tuple[Any, ...]:
        block, old = plan.block, plan.load.buffer
        copy = ir.Buffer(f"{old.name}_{self.dtype}", old.shape, self.dtype)
        at = tuple([ir.Var(f"v{n}") for n in range(len(copy.shape))])
        value: ir.Expr = ir.Load(old, at)
        if self.offset:
            value = ir.cast(value, "int32") + ir.const(self.offset, "int32")
        iters = [ir.Iter(v, ir.const(n)) for v, n in zip(at, copy.shape, strict=True)]
        before = [add_nest(s, copy.name, iters, ir.Store(copy, at, ir.cast(value, self.dtype)))]
        after: list[Key] = []
        made, result = [copy], plan.store.buffer
        if self.offset:
            total, place = self.offset_sum(s, plan, before)
            result = ir.Buffer(f"{result.name}_sum", result.shape, result.dtype)
            made += [total, result]
            after.append(take_off(s, plan, ir.Load(result, plan.store.indices), ir.Load(total, place)))
        s.allocs = (*s.allocs, *made)
        put = PutOperand(plan.load, copy, {plan.store.buffer: result})
        new = ir.replace_fields(block, init=put.body(block.init), body=put.body(block.body))
        s.set_node(block.name, infer_signature(new))
        s.put_at(plan.top, [*before, plan.top, *after])
        refresh_scopes(s, plan.top)
        return tuple([s.blocks_below(key)[0] for key in (*before, *after)])

    def offset_sum(
        self, s: State, plan: ConvertPlan, before: list[Key]
    ) -> tuple[ir.Buffer, tuple[ir.Var, ...]]:
        """The sum of offset * cofactor over the reduction, where the cofactor moves; and where that is."""
        used = set(ir.free_vars(plan.cofactor))
        kept = [it for it in plan.block.iters if it.kind == "spatial" and it.var in used]
        summed = [it for it in plan.block.iters if it.kind == "reduce"]
        sizes = {loop: s.fixed_extent(loop) for loop in s.loops_around(plan.block.name)}
        extents = dict(zip([it.var for it in plan.block.iters], plan.block.bindings, strict=True))
        shape = tuple([sizes[extents[it.var]] or 0 for it in kept])  # pyright: ignore[reportArgumentType]
        total = ir.Buffer(f"{plan.store.buffer.name}_offset", shape, plan.store.buffer.dtype)
        new = {it.var: ir.Var(it.var.name) for it in (*kept, *summed)}
        at = tuple([new[it.var] for it in kept])
        factor = ir.const(self.offset, total.dtype)
        term = ir.substitute(plan.cofactor, new) * factor
        iters = [ir.Iter(new[it.var], it.extent, it.kind) for it in (*kept, *summed)]
        store = ir.Store(total, at, ir.Load(total, at) + term)
        before.append(add_nest(s, total.name, iters, store, (ir.Store(total, at, ir.const(0, total.dtype)),)))
        return total, tuple([it.var for it in kept])


def take_off(s: State, plan: ConvertPlan, value: ir.Load, offset: ir.Load) -> Key:
    spatial = [it for it in plan.block.iters if it.kind == "spatial"]
    new = {it.var: ir.Var(it.var.name) for it in spatial}
    store = ir.Store(plan.store.buffer, plan.store.indices, value - offset)
    moved = ir.Store(
        store.buffer,
        tuple([ir.substitute(index, new) for index in store.indices]),
        ir.substitute(store.value, new),
    )
    iters = [ir.Iter(new[it.var], it.extent) for it in spatial]
    return add_nest(s, f"{plan.block.name}_shifted", iters, moved)


def add_nest(s: State, name: str, iters: Sequence[ir.Iter], store: ir.Store, init: ir.Body = ()) -> Key:
    """Enter a block in loops of its own, one per iterator."""
    names = [it.var.name for it in iters]
    loops = [ir.Var(v[2:] if v.startswith("v_") else f"ax{n}") for n, v in enumerate(names)]
    nest: Any = infer_signature(ir.Block(name, tuple(iters), tuple(loops), (), (), (store,), init))
    for var, it in zip(reversed(loops), reversed(iters), strict=True):
        nest = ir.For(var, it.extent, (nest,))
    return s.add(nest)


def factors(term: ir.Expr) -> Iterator[tuple[ir.Load, ir.Expr]]:
    """The loads that a product is of, each with what it is multiplied with."""
    if isinstance(term, ir.Binary) and term.op == "*":
        for a, b in ((term.a, term.b), (term.b, term.a)):
            inner = a.a if isinstance(a, ir.Cast) else a
            if isinstance(inner, ir.Load):
                yield inner, b


def holds(dtype: str, values: str, offset: int) -> bool:
    """Whether a dtype has every value of another, moved by an offset."""
    if ir.is_integer(dtype) and ir.is_integer(values):
        (low, high), (least, most) = ir.integer_limits(values), ir.integer_limits(dtype)
        return least <= low + offset and high + offset <= most
    return not offset and (dtype == values or dtype in WIDER.get(values, ()))


class PutOperand(ir.Substitute):
    """Reads an operand from its copy; other buffers are replaced wherever they are."""

    def __init__(self, load: ir.Load, copy: ir.Buffer, buffers: dict[ir.Buffer, ir.Buffer]) -> None:
        super().__init__({}, buffers)
        self.load, self.copy = load, copy

    def expr(self, e: ir.Expr) -> ir.Expr:
        if e is self.load or (isinstance(e, ir.Cast) and e.a is self.load):
            return ir.cast(ir.Load(self.copy, self.load.indices), e.dtype)
        return super().expr(e)


class OperandSteps(Steps):
    def convert_operand(self, block: BlockRV, read_index: int, dtype: str, offset: int = 0) -> list[BlockRV]:
        """Read an operand of a sum of products in another dtype; gives the new blocks. See
        `ConvertOperand`."""
        return list(self.run(ConvertOperand(block, read_index, dtype, offset)))
