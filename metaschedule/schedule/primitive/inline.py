"""Primitives that put one block's expression into another: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...arith import Domain, contains, iteration_map, simplify
from ...errors import ScheduleError
from ...ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Iter,
    Load,
    Rewriter,
    Store,
    Var,
    as_int,
    binary,
    changed,
    is_integer,
    same_expr,
    subexpressions,
    substitute,
)
from ..analysis.accesses import (
    Access,
    accesses,
    covers_domain,
    loads,
    refresh_scopes,
    shared_variables,
    why_sources_change,
    with_signature,
)
from ..analysis.reordering import order_matters
from ..state import ROOT, Key, State
from .base import BlockRV, Primitive, Steps, primitive

Solve = Callable[[Sequence[Expr]], dict[Var, Expr]]


# --- what both need to know of a block ------------------------------------------------------------


def single_store(s: State, block: Block) -> Store:
    """The store that is all a block does; raises if the block is not an element-wise stage."""
    marks = {block.name: "this block"}
    if not block.iters:
        raise ScheduleError(f"block {block.name!r} has no iterators: it is opaque", marks)
    if block.init or any(it.kind == "reduce" for it in block.iters):
        raise ScheduleError(
            f"block {block.name!r} is a reduction",
            marks,
            "only element-wise stages are inlined; fuse_reduction_epilogue puts a stage into a reduction",
        )
    if s.children[block.name] or len(block.body) != 1 or not isinstance(block.body[0], Store):
        raise ScheduleError(f"block {block.name!r} does more than one store", marks)
    store = block.body[0]
    if block.allocs or any(load.buffer is store.buffer for load in stored_loads(store)):
        raise ScheduleError(f"block {block.name!r} reads what it writes", marks)
    return store


def stored_loads(store: Store) -> list[Load]:
    return loads(*store.indices, store.value)


@dataclass(slots=True)
class Inverse:
    """Indices as a function of iterators that has an inverse: `solve` gives the iterators from the values."""

    ranges: list[tuple[int, int]]  # first and last value of each index
    full: bool  # every point of the box is reached
    solve: Solve


def find_inverse(iters: tuple[Iter, ...], indices: tuple[Expr, ...]) -> Inverse | None:
    """None if iterators with different values may have the same indices, or that is not known."""
    extents: dict[Var, int] = {}
    for it in iters:
        size = as_int(it.extent)
        if size is None:
            return None
        extents[it.var] = size
    plain = [i for i in indices if isinstance(i, Var)]
    if len(plain) == len(set(plain)) and all(isinstance(i, (Var, Const)) for i in indices):
        units = [v for v in extents if v not in set(plain)]
        if any(extents[v] != 1 for v in units) or any(v not in extents for v in plain):
            return None

        def pick(values: Sequence[Expr]) -> dict[Var, Expr]:
            found: dict[Var, Expr] = {v: Const(0, "int64") for v in units}
            found.update((i, x) for i, x in zip(indices, values, strict=True) if isinstance(i, Var))
            return found

        ranges = [
            (0, extents[i] - 1) if isinstance(i, Var) else (as_int(i) or 0, as_int(i) or 0) for i in indices
        ]
        return Inverse(ranges, True, pick)
    if loads(*indices):
        return None
    mapped = iteration_map(indices, extents)
    if mapped is None or not mapped.injective:
        return None
    return Inverse(
        list(mapped.ranges),
        mapped.surjective,
        lambda values: {v: simplify(x) for v, x in mapped.solve(values).items()},
    )


def check_private(s: State, buffer: Buffer, block: Block) -> None:
    if any(buffer is b for b in s.original.outputs):
        raise ScheduleError(
            f"{buffer.name} is an output of the program", marks={block.name: f"writes {buffer.name}"}
        )


def check_only_writer(events: list[Access], buffer: Buffer, block: Block) -> None:
    for event in events:
        if buffer in event.writes and event.key is not block.name:
            raise ScheduleError(
                f"{buffer.name} is also written elsewhere",
                marks={block.name: "writes", event.key: "writes too"},
            )


def check_one_scope(s: State, event: Access, block: Block, buffer: Buffer) -> None:
    marks: dict[Any, str] = {block.name: f"writes {buffer.name}", event.key: f"reads {buffer.name}"}
    if event.outside:
        raise ScheduleError(f"{buffer.name} is read outside of block bodies", marks)
    if s.scope(event.key) is not s.scope(block.name):
        raise ScheduleError("the two blocks are not in the same scope", marks)


def remove(s: State, key: Key, buffer: Buffer) -> None:
    """Take out a block, the loops that have nothing else in them, and the buffer between the blocks."""
    s.allocs = tuple([b for b in s.allocs if b is not buffer])
    for above in s.ancestors(key):
        if isinstance(above, str) and any(b is buffer for b in s.nodes[above].allocs):
            s.update(above, allocs=tuple([b for b in s.nodes[above].allocs if b is not buffer]))
    while True:
        parent = s.parent[key]
        s.replace(key, [])
        if parent is ROOT or isinstance(parent, str) or s.children[parent]:
            return
        key = parent


# --- compute_inline -------------------------------------------------------------------------------


@dataclass(slots=True)
class InlinePlan:
    block: Block
    buffer: Buffer
    consumers: list[Block]  # as they will be


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
    """

    block: BlockRV

    def check(self, s: State) -> InlinePlan:
        block = s.block(self.block)
        store = single_store(s, block)
        buffer = store.buffer
        check_private(s, buffer, block)
        inverse = find_inverse(block.iters, store.indices)
        if inverse is None or not inverse.full:
            raise ScheduleError(
                f"the indices of {buffer.name} do not determine the iterators of block {block.name!r}",
                marks={block.name: "stores to " + str(Load(buffer, store.indices))},
                help="every iterator must be found again from the indices, as in B[j, i * 4 + k]",
            )
        events = accesses(s)
        check_only_writer(events, buffer, block)
        why = why_sources_change(s, events, {x.buffer for x in stored_loads(store)}, block.name)
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
        return InlinePlan(block, buffer, self.consumers(s, events, block, store, inverse))

    def consumers(
        self, s: State, events: list[Access], block: Block, store: Store, inverse: Inverse
    ) -> list[Block]:
        buffer = store.buffer
        put = PutExpression(buffer, store.value, inverse.solve)
        whole = all(r == (0, n - 1) for r, n in zip(inverse.ranges, buffer.shape, strict=True))
        written = buffer.region(*((low, high - low + 1) for low, high in inverse.ranges))
        found: list[Block] = []
        seen = False
        for event in events:
            seen = seen or event.key is block.name
            if buffer not in event.reads:
                continue
            check_one_scope(s, event, block, buffer)
            reader: Block = s.nodes[event.key]
            marks: dict[Any, str] = {block.name: f"writes {buffer.name}", reader.name: f"reads {buffer.name}"}
            if not seen:
                raise ScheduleError(f"block {reader.name!r} runs before block {block.name!r}", marks)
            if not reader.iters:
                raise ScheduleError(f"block {reader.name!r}, which reads {buffer.name}, is opaque", marks)
            region = next(r for r in reader.reads if r.buffer is buffer)
            if not whole and not contains(written, region, domain_of(reader)):
                raise ScheduleError(f"block {reader.name!r} may read more than is written", marks)
            new = changed(reader, init=put.body(reader.init), body=put.body(reader.body))
            if new is reader:
                raise ScheduleError(f"block {reader.name!r} reads {buffer.name} in its signature only", marks)
            found.append(with_signature(new))
        if not found:
            raise ScheduleError(f"nothing reads {buffer.name}", marks={block.name: f"writes {buffer.name}"})
        return found

    def apply(self, s: State, plan: InlinePlan) -> tuple[Any, ...]:
        for consumer in plan.consumers:
            s.nodes[consumer.name] = consumer
        remove(s, plan.block.name, plan.buffer)
        refresh_scopes(s, plan.consumers[0].name)
        return ()


class PutExpression(Rewriter):
    """Replaces loads of a buffer by the expression of their elements."""

    def __init__(self, buffer: Buffer, value: Expr, solve: Solve) -> None:
        self.target, self.value, self.solve = buffer, value, solve

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        if type(e) is Load and e.buffer is self.target:
            return substitute(self.value, self.solve(e.indices))
        return e


def is_atom(e: Expr) -> bool:
    return isinstance(e, (Var, Const))


def domain_of(block: Block) -> Domain:
    return Domain({it.var: it.extent for it in block.iters if not loads(it.extent)})


def is_safe_anywhere(block: Block, store: Store) -> bool:
    """Whether the value can be computed at every point of the iterators, where the block runs or not."""
    for e in subexpressions(store.value):
        if isinstance(e, Load) and loads(*e.indices):
            return False  # the index was computed, too
        if isinstance(e, Binary) and e.op in ("//", "%") and is_integer(e.dtype) and not as_int(e.b):
            return False
    domain = domain_of(block)
    return all(contains(r.buffer.whole(), r, domain) for r in block.reads)


# --- reverse_compute_inline -----------------------------------------------------------------------


@dataclass(slots=True)
class ReversePlan:
    consumer: Block
    buffer: Buffer
    producer: Block  # as it will be


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
    Elements that are computed and not read get a predicate.
    """

    block: BlockRV

    def check(self, s: State) -> ReversePlan:
        block = s.block(self.block)
        store = single_store(s, block)
        events = accesses(s)
        producer, buffer = self.find_producer(s, events, block, store)
        made = single_store(s, producer)
        check_private(s, buffer, producer)
        for event in events:
            if buffer in event.reads and event.key is not block.name:
                marks = {producer.name: f"writes {buffer.name}", event.key: f"also reads {buffer.name}"}
                raise ScheduleError(f"{buffer.name} is read by others than block {block.name!r}", marks)
            if buffer in event.reads:
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
        self.check_moves(s, events, block, store, producer)
        put = PutProduct(buffer, made.value, solved)
        new = Store(store.buffer, tuple([put.expr(i) for i in store.indices]), put.expr(store.value))
        at = {it.var: b for it, b in zip(producer.iters, producer.bindings, strict=True)}
        predicate = (*producer.predicate, *[substitute(t, at) for t in tests])
        return ReversePlan(block, buffer, with_signature(changed(producer, body=(new,), predicate=predicate)))

    def find_producer(
        self, s: State, events: list[Access], block: Block, store: Store
    ) -> tuple[Block, Buffer]:
        read = {load.buffer for load in stored_loads(store)}
        writers = [e for e in events if e.writes & read and e.key is not block.name]
        last = next((e for e in reversed(writers) if not e.outside), None)
        if last is None:
            raise ScheduleError(
                f"block {block.name!r} reads nothing that a block computes", marks={block.name: "this block"}
            )
        # Of several producers the others must be done before: the last one is the only one it can go into.
        producer: Block = s.nodes[last.key]
        buffer = next(r.buffer for r in producer.writes if r.buffer in read)
        check_only_writer(events, buffer, producer)
        places = [n for n, e in enumerate(events) if not e.outside and e.key in (producer.name, block.name)]
        if events[places[0]].key is block.name:
            raise ScheduleError(
                f"block {block.name!r} runs before block {producer.name!r}",
                marks={block.name: f"reads {buffer.name}", producer.name: f"writes {buffer.name}"},
            )
        return producer, buffer

    def match(
        self, block: Block, store: Store, producer: Block, made: Store
    ) -> tuple[dict[Var, Expr], list[Expr]]:
        """The iterators of the consumer in terms of the producer's, and the tests that there are such."""
        buffer = made.buffer
        found = [load for load in stored_loads(store) if load.buffer is buffer]
        marks = {producer.name: f"writes {buffer.name}", block.name: f"reads {buffer.name}"}
        first = found[0].indices
        if not all(all(map(same_expr, first, load.indices)) for load in found[1:]):
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
        tests: list[Expr] = []
        for it in block.iters:
            tests += [binary(">=", solved[it.var], 0), binary("<", solved[it.var], it.extent)]
        tests += [binary("==", substitute(i, solved), w) for i, w in zip(first, made.indices, strict=True)]
        return solved, [simplify(t, domain) for t in tests if not domain.prove(t)]

    def check_moves(
        self, s: State, events: list[Access], block: Block, store: Store, producer: Block
    ) -> None:
        """The consumer's work moves to the producer: what it reads is there, what it writes is not missed."""
        others = {load.buffer for load in stored_loads(store)} - {r.buffer for r in producer.writes}
        why = why_sources_change(s, events, others, producer.name)
        if why:
            raise ScheduleError(
                f"block {block.name!r} would read other values in block {producer.name!r}: {why}",
                marks={block.name: "reads it", producer.name: "is too early"},
            )
        seen = False
        for event in events:
            if event.key is block.name:
                seen = True
                continue
            writes = store.buffer in event.writes
            if not writes and store.buffer not in event.reads:
                continue
            if not seen or (writes and shared_variables(s, event.key, block.name)):
                raise ScheduleError(
                    f"{store.buffer.name} is used before block {block.name!r} writes it",
                    marks={event.key: f"uses {store.buffer.name}", block.name: f"writes {store.buffer.name}"},
                )

    def apply(self, s: State, plan: ReversePlan) -> tuple[Any, ...]:
        s.nodes[plan.producer.name] = plan.producer
        remove(s, plan.consumer.name, plan.buffer)
        refresh_scopes(s, plan.producer.name)
        return ()


class PutProduct(Rewriter):
    """The consumer's expression where the producer is: its iterators solved, what it reads computed."""

    def __init__(self, buffer: Buffer, value: Expr, solved: dict[Var, Expr]) -> None:
        self.target, self.value, self.solved = buffer, value, solved

    def expr(self, e: Expr) -> Expr:
        if type(e) is Var:
            return self.solved.get(e, e)
        if type(e) is Load and e.buffer is self.target:
            return self.value
        return super().expr(e)


class InlineSteps(Steps):
    def compute_inline(self, block: BlockRV) -> None:
        """Put the expression of a block wherever its result is read; see `ComputeInline`."""
        self.run(ComputeInline(block))

    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Put an element-wise block into the one that computes what it reads; see `ReverseComputeInline`."""
        self.run(ReverseComputeInline(block))
