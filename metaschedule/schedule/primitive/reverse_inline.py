"""reverse_compute_inline: an element-wise block goes into the block that computes what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import ir
from ...affine.inverse import find_inverse
from ...arith import simplify
from ...errors import ScheduleError
from ..analysis.block_dependence import order_matters
from ..analysis.effects import (
    effects_on,
    in_order,
    place_of,
    readers,
    shared_variables,
    why_sources_change,
    writers,
)
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
from .base import BlockRV, Primitive, primitive


@dataclass(slots=True)
class ReversePlan:
    consumer: ir.Block
    buffer: ir.Buffer
    producer: ir.Block  # as it will be


@primitive("reverse_compute_inline")
class ReverseComputeInline(Primitive):
    """Put an element-wise block into the block that computes what it reads; the buffer between disappears.

    rewrite:   for i, j: B[i, j] = f(A[i, j])
               for j, i: C[j, i] = B[i, j] * D[j]
          -->  for i, j: C[j, i] = f(A[i, j]) * D[j]
    requires:  1. both blocks are one store, element-wise (for a reduction: fuse_reduction_epilogue)
               2. nothing else uses the buffer between them, which is no output; they are in one scope
               3. each element is read once: the indices read determine the iterators, and all are written
               4. both blocks run at every point of their iterators
               5. what the block reads besides is final where the producer runs
               6. what the block writes is not touched before it, nor written elsewhere in the loops around
               7. no expression becomes too large or too deep
    Elements that are computed and not read get a predicate.
    """

    block: BlockRV

    def check(self, s: State) -> ReversePlan:
        block = s.block(self.block)
        store = single_store(s, block)
        producer, buffer = self.find_producer(s, block, store)
        made = single_store(s, producer)
        check_private(s, buffer, producer)
        for event in readers(s, {buffer}):
            if event.key is not block.name:
                marks = {producer.name: f"writes {buffer.name}", event.key: f"also reads {buffer.name}"}
                raise ScheduleError(f"{buffer.name} is read by others than block {block.name!r}", marks)
            check_one_scope(s, event, producer, buffer)
        solved, tests = self.match(block, store, producer, made)
        why = order_matters(s, block)
        if why:
            raise ScheduleError(
                f"the order of the instances of block {block.name!r} may matter: {why}",
                marks={block.name: why},
            )
        for each in (block, producer):
            if not covers_domain(s, each):
                raise ScheduleError(
                    f"block {each.name!r} does not certainly run at every point of its iterators",
                    marks={each.name: "runs on a part of them"},
                )
        self.check_moves(s, block, store, producer)
        marks = {producer.name: f"writes {buffer.name}", block.name: f"reads {buffer.name}"}
        check_inlined(buffer, made.value, (store,), marks)
        put = PutProduct(buffer, made.value, solved)
        new = ir.Store(store.buffer, tuple([put.expr(i) for i in store.indices]), put.expr(store.value))
        at = {it.var: b for it, b in zip(producer.iters, producer.bindings, strict=True)}
        predicate = (*producer.predicate, *[ir.substitute(t, at) for t in tests])
        return ReversePlan(
            block, buffer, infer_signature(ir.replace_fields(producer, body=(new,), predicate=predicate))
        )

    def find_producer(self, s: State, block: ir.Block, store: ir.Store) -> tuple[ir.Block, ir.Buffer]:
        read = {load.buffer for load in stored_loads(store)}
        inside = [e for e in writers(s, read) if not e.outside and e.key is not block.name]
        last = inside[-1] if inside else None
        if last is None:
            raise ScheduleError(
                f"block {block.name!r} reads nothing that a block computes", marks={block.name: "this block"}
            )
        # Of several producers the others must be done before: the last one is the only one it can go into.
        producer: ir.Block = s.nodes[last.key]
        buffer = next(r.buffer for r in producer.writes if r.buffer in read)
        check_only_writer(s, buffer, producer)
        if place_of(s, block.name) < place_of(s, last):
            raise ScheduleError(
                f"block {block.name!r} runs before block {producer.name!r}",
                marks={block.name: f"reads {buffer.name}", producer.name: f"writes {buffer.name}"},
            )
        return producer, buffer

    def match(
        self, block: ir.Block, store: ir.Store, producer: ir.Block, made: ir.Store
    ) -> tuple[dict[ir.Var, ir.Expr], list[ir.Expr]]:
        """The iterators of the consumer in terms of the producer's, and the tests that there are such."""
        buffer = made.buffer
        found = [load for load in stored_loads(store) if load.buffer is buffer]
        marks = {producer.name: f"writes {buffer.name}", block.name: f"reads {buffer.name}"}
        first = found[0].indices
        if not all(ir.same_exprs(first, load.indices) for load in found[1:]):
            raise ScheduleError(f"block {block.name!r} reads several elements of {buffer.name}", marks)
        wanted = find_inverse(block.iters, first)
        if wanted is None:
            raise ScheduleError(
                f"block {block.name!r} may read an element of {buffer.name} more than once", marks,
                "the indices it reads must determine all of its iterators",
            )  # fmt: skip
        written = find_inverse(producer.iters, made.indices)
        if written is None or not written.full:
            raise ScheduleError(
                f"block {producer.name!r} may not write every element of {buffer.name} once", marks
            )
        if any(a < b or c > d for (a, c), (b, d) in zip(wanted.ranges, written.ranges, strict=True)):
            raise ScheduleError(f"block {block.name!r} reads more of {buffer.name} than is written", marks)
        solved = wanted.solve(made.indices)
        if wanted.full and wanted.ranges == written.ranges and all(map(is_atom, solved.values())):
            return solved, []
        domain = domain_of(producer)
        solved = {v: simplify(x, domain) for v, x in solved.items()}
        tests: list[ir.Expr] = []
        for it in block.iters:
            tests += [ir.binary(">=", solved[it.var], 0), ir.binary("<", solved[it.var], it.extent)]
        tests += [
            ir.binary("==", ir.substitute(i, solved), w) for i, w in zip(first, made.indices, strict=True)
        ]
        return solved, [simplify(t, domain) for t in tests if not domain.prove(t)]

    def check_moves(self, s: State, block: ir.Block, store: ir.Store, producer: ir.Block) -> None:
        """The consumer's work moves to the producer: what it reads is there, what it writes is not missed."""
        others = {load.buffer for load in stored_loads(store)} - {r.buffer for r in producer.writes}
        why = why_sources_change(s, others, producer.name)
        if why:
            raise ScheduleError(
                f"block {block.name!r} would read other values in block {producer.name!r}: {why}",
                marks={block.name: "reads it", producer.name: "is too early"},
            )
        place = place_of(s, block.name)
        for event in in_order(s, effects_on(s, {store.buffer})):
            writes = store.buffer in event.writes
            if event.key is block.name or not (writes or store.buffer in event.reads):
                continue
            if place_of(s, event) < place or (writes and shared_variables(s, event.key, block.name)):
                raise ScheduleError(
                    f"{store.buffer.name} is used before block {block.name!r} writes it",
                    marks={event.key: f"uses {store.buffer.name}", block.name: f"writes {store.buffer.name}"},
                )

    def apply(self, s: State, plan: ReversePlan) -> tuple[Any, ...]:
        s.set_node(plan.producer.name, plan.producer)
        remove_stage(s, plan.consumer.name, plan.buffer)
        refresh_scopes(s, plan.producer.name)
        return ()


class PutProduct(ir.Rewriter):
    """The consumer's expression where the producer is: its iterators solved, what it reads computed."""

    def __init__(self, buffer: ir.Buffer, value: ir.Expr, solved: dict[ir.Var, ir.Expr]) -> None:
        self.target, self.value, self.solved = buffer, value, solved

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Var:
            return self.solved.get(e, e)
        if type(e) is ir.Load and e.buffer is self.target:
            return self.value
        return super().expr(e)


def is_atom(e: ir.Expr) -> bool:
    return isinstance(e, (ir.Var, ir.Const))
