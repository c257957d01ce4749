"""compute_inline: a block's expression goes wherever its result is read; reverse_inline.py is the reverse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import ir
from ...affine.inverse import Inverse, Solve, find_inverse
from ...arith import contains
from ...errors import ScheduleError
from ..analysis.effects import place_of, readers, why_sources_change
from ..analysis.elementwise import (
    check_one_scope,
    check_only_writer,
    check_private,
    domain_of,
    remove_stage,
    single_store,
    stored_loads,
)
from ..analysis.iteration_domain import covers_domain
from ..analysis.limits import check_inlined
from ..analysis.signature import infer_signature, refresh_scopes
from ..state import State
from .base import BlockRV, Primitive, Steps, primitive
from .reverse_inline import ReverseComputeInline


@dataclass(slots=True)
class InlinePlan:
    block: ir.Block
    buffer: ir.Buffer
    consumers: list[ir.Block]  # as they will be


@primitive("compute_inline")
class ComputeInline(Primitive):
    """Put the expression of a block wherever its result is read; the block and its buffer disappear.

    rewrite:   for i: B[i] = f(A[i])
               for i: C[i] = B[i + 1] * 2
          -->  for i: C[i] = f(A[i + 1]) * 2
    requires:  1. the block is one store, element-wise: no reduction, not opaque, reads nothing it writes
               2. the indices it stores to determine its iterators, and no index is left out between them
               3. its buffer is no output and has no other writer
               4. it is read only in the bodies of blocks after it, in the same scope, at what it writes
               5. what it reads is not written again after it
               6. it runs at every point of its iterators, or its reads are in bounds at all of them
               7. no expression becomes too large or too deep
    """

    block: BlockRV

    def check(self, s: State) -> InlinePlan:
        block = s.block(self.block)
        store = single_store(s, block, allows_scalar=True)
        buffer = store.buffer
        check_private(s, buffer, block)
        inverse = find_inverse(block.iters, store.indices)
        if inverse is None or not inverse.full:
            raise ScheduleError(
                f"the indices of {buffer.name} do not determine the iterators of block {block.name!r}",
                marks={block.name: "stores to " + str(ir.Load(buffer, store.indices))},
                help="every iterator must be found again from the indices, as in B[j, i * 4 + k]",
            )
        check_only_writer(s, buffer, block)
        why = why_sources_change(s, {x.buffer for x in stored_loads(store)}, block.name)
        if why:
            raise ScheduleError(
                f"block {block.name!r} would be computed from other values: {why}",
                marks={block.name: "reads it"},
            )
        if not covers_domain(s, block) and not is_safe_anywhere(block, store):
            raise ScheduleError(
                f"block {block.name!r} runs on a part of its iterators only and cannot be computed elsewhere",
                marks={block.name: "does not run everywhere"},
            )
        return InlinePlan(block, buffer, self.consumers(s, block, store, inverse))

    def consumers(self, s: State, block: ir.Block, store: ir.Store, inverse: Inverse) -> list[ir.Block]:
        buffer = store.buffer
        put = PutExpression(buffer, store.value, inverse.solve)
        whole = all(r == (0, n - 1) for r, n in zip(inverse.ranges, buffer.shape, strict=True))
        written = buffer.region(*((low, high - low + 1) for low, high in inverse.ranges))
        found: list[ir.Block] = []
        place = place_of(s, block.name)
        for event in readers(s, {buffer}):
            check_one_scope(s, event, block, buffer)
            reader: ir.Block = s.nodes[event.key]
            marks: dict[Any, str] = {block.name: f"writes {buffer.name}", reader.name: f"reads {buffer.name}"}
            if place_of(s, event) < place:
                raise ScheduleError(f"block {reader.name!r} runs before block {block.name!r}", marks)
            if not reader.iters:
                raise ScheduleError(f"block {reader.name!r}, which reads {buffer.name}, is opaque", marks)
            region = next(r for r in reader.reads if r.buffer is buffer)
            if not whole and not contains(written, region, domain_of(reader)):
                raise ScheduleError(f"block {reader.name!r} may read more than is written", marks)
            check_inlined(buffer, store.value, reader.init + reader.body, marks)
            new = ir.replace_fields(reader, init=put.body(reader.init), body=put.body(reader.body))
            if new is reader:
                raise ScheduleError(f"block {reader.name!r} reads {buffer.name} in its signature only", marks)
            found.append(infer_signature(new))
        if not found:
            raise ScheduleError(f"nothing reads {buffer.name}", marks={block.name: f"writes {buffer.name}"})
        return found

    def apply(self, s: State, plan: InlinePlan) -> tuple[Any, ...]:
        for consumer in plan.consumers:
            s.set_node(consumer.name, consumer)
        remove_stage(s, plan.block.name, plan.buffer)
        refresh_scopes(s, plan.consumers[0].name)
        return ()


class PutExpression(ir.Rewriter):
    """Replaces loads of a buffer by the expression of their elements."""

    def __init__(self, buffer: ir.Buffer, value: ir.Expr, solve: Solve) -> None:
        self.target, self.value, self.solve = buffer, value, solve

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = super().expr(e)
        if type(e) is ir.Load and e.buffer is self.target:
            return ir.substitute(self.value, self.solve(e.indices))
        return e


def is_safe_anywhere(block: ir.Block, store: ir.Store) -> bool:
    """Whether the value can be computed at every point of the iterators, where the block runs or not."""
    for e in ir.subexpressions(store.value):
        if isinstance(e, ir.Load) and ir.loads(*e.indices):
            return False  # the index was computed, too
        if isinstance(e, ir.Binary) and e.op in ("//", "%") and ir.is_integer(e.dtype) and not ir.as_int(e.b):
            return False
    domain = domain_of(block)
    return all(contains(r.buffer.whole(), r, domain) for r in block.reads)


class InlineSteps(Steps):
    def compute_inline(self, block: BlockRV) -> None:
        """Put the expression of a block wherever its result is read; see `ComputeInline`."""
        self.run(ComputeInline(block))

    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Put an element-wise block into the one that computes what it reads; see `ReverseComputeInline`."""
        self.run(ReverseComputeInline(block))
