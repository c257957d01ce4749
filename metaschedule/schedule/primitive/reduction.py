"""Primitives for reductions taken apart: decompose_reduction, rfactor, fuse_reduction_epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Domain, block_signature, iteration_map, simplify
from ...errors import ScheduleError
from ...ir import (
    Binary,
    Block,
    Body,
    Buffer,
    Const,
    Expr,
    For,
    Iter,
    Load,
    Region,
    Stmt,
    Store,
    Substitute,
    TupleStore,
    Var,
    as_int,
    binary,
    blocks,
    changed,
    const,
    expressions,
    free_vars,
    same_expr,
    subexpressions,
    substitute,
)
from ..analysis.instances import (
    at_zero,
    check_independent,
    check_kinds_apart,
    check_not_empty,
    check_once,
    is_count,
    leaves_of,
    split_predicate,
)
from ..analysis.reducers import Reducer, find_reducer, identity_of
from ..state import ROOT, Key, State
from .base import BlockRV, LoopRV, Primitive, Steps, primitive
from .loop_copies import Copies

ASSOCIATIVE = "sum, prod, min, max, argmax, argmin, bitwise operations and element-wise tuples are known"


# --- decompose_reduction ----------------------------------------------------------------------------------


@dataclass(slots=True)
class InitPlan:
    """What the `init` of a block needs to stand on its own inside or before some loops."""

    block: Block
    loops: list[Var]  # to copy, outermost first
    predicate: list[Expr]


def plan_init(s: State, block: Block, inside: list[Var]) -> InitPlan:
    """The `init` before the loops `inside`, the innermost ones around the block; raises if it is not the same
    there. Loops outside of them are shared by both."""
    spatial, reducing = check_kinds_apart(s, block)
    check_not_empty(s, [v for v in inside if v in reducing])
    check_independent(s, block)
    check_once(s, block, inside)
    loops = [v for v in inside if v in spatial]
    for var in loops:
        extent = s.resolve(s.extents[var])
        late = leaves_of(s, [extent]) & reducing
        if late or any(isinstance(x, Load) for x in subexpressions(extent)):
            raise ScheduleError(
                f"the extent of {var.name} depends on {'a reduction loop' if late else 'loaded values'}",
                marks={var: f"its extent is {extent}"},
            )
    return InitPlan(block, loops, split_predicate(s, block, reducing))


def init_block(s: State, plan: InitPlan, copies: Copies, name: str) -> Block:
    """The `init` as a block in the copied loops."""
    block = plan.block
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    fresh = {it.var: Var(it.var.name) for it, _ in pairs}
    sub = Substitute(fresh)
    touched = {x.buffer for x in expressions(block.init) if isinstance(x, Load)}
    return Block(
        name,
        tuple([Iter(fresh[it.var], sub.expr(it.extent), it.kind) for it, _ in pairs]),
        tuple([copies.expr(b) for _, b in pairs]),
        tuple([sub.region(r) for r in block.reads if r.buffer in touched]),
        tuple([sub.region(r) for r in block.writes]),
        Renamed(fresh).body(block.init),
        predicate=tuple([copies.expr(c) for c in plan.predicate]),
    )


class Renamed(Substitute):
    """A copy of statements: values for some variables, fresh variables for everything declared inside."""

    def __init__(self, values: Any) -> None:
        super().__init__(dict(values))

    def stmt(self, s: Stmt) -> Stmt | Body:
        values: Any = self.values
        if isinstance(s, For):
            values[s.var] = Var(s.var.name)
            return changed(super().stmt(s), var=values[s.var])
        if isinstance(s, Block):
            for it in s.iters:
                values[it.var] = Var(it.var.name)
        return super().stmt(s)

    def iter(self, it: Iter) -> Iter:
        return Iter(self.values[it.var], self.expr(it.extent), it.kind)  # pyright: ignore[reportArgumentType]


def without_init(block: Block) -> Block:
    """The block when its `init` is elsewhere: it now reads what it combines with."""
    loaded = {x.buffer for x in expressions(block.body) if isinstance(x, Load)}
    listed = {r.buffer for r in block.reads}
    own = tuple([w for w in block.writes if w.buffer in loaded and w.buffer not in listed])
    return changed(block, init=(), reads=(*own, *block.reads))


@primitive("decompose_reduction")
class DecomposeReduction(Primitive):
    """Make the `init` of a reduction a block of its own, just before a loop.

    rewrite:   for i: for k: with T.block("C"): with T.init(): C[i] = 0;  C[i] = C[i] + A[i, k]
          -->  for i: with T.block("C_init"): C[i] = 0
               for i: for k: with T.block("C"): C[i] = C[i] + A[i, k]            (before i)
    requires:  1. the block has an `init`
               2. the loop is around the block, and nothing but loops is between them
               3. no reduction loop is outside of it, none drives spatial iterators too, none may be empty
               4. each instance runs once in the loops inside, and stores elements of its own
               5. the first iteration of the reduction is certainly run
               6. nothing else in the loop touches the result
    """

    block: BlockRV
    loop: LoopRV

    def check(self, s: State) -> tuple[InitPlan, Var]:
        block, loop = s.block(self.block), s.loop(self.loop)
        if not block.init:
            raise ScheduleError(
                f"block {block.name!r} has no init", marks={block.name: "no init"},
                help="only reductions have one, until it is decomposed",
            )  # fmt: skip
        chain = loops_from(s, block, loop.var)
        outside = [v for v in s.loops_around(loop.var)]
        _, reducing = check_kinds_apart(s, block)
        for var in outside:
            if var in reducing:
                raise ScheduleError(
                    f"the reduction loop over {var.name} is outside of the loop over {loop.var.name}",
                    marks={var: "reduction loop", loop.var: "the init would run before this loop"},
                    help=f"decompose at the loop over {var.name} or outside of it",
                )
        plan = plan_init(s, block, chain)
        written = {r.buffer for r in block.writes}
        for other in s.statements_below(loop.var):
            if isinstance(other, Var) or other is block.name:
                continue
            if touches(s, other, written):
                name = other if isinstance(other, str) else "a statement"
                raise ScheduleError(
                    f"the result of block {block.name!r} is used by {name!r} in the same loop",
                    marks={loop.var: "the init would run before this loop", other: "uses the result"},
                    help="decompose at an inner loop that holds the reduction only",
                )
        return plan, loop.var

    def apply(self, s: State, plan: tuple[InitPlan, Var]) -> tuple[Any, ...]:
        init, loop = plan
        copies = Copies(s, init.loops)
        loops = [copies.loop(v) for v in init.loops]
        new = init_block(s, init, copies, init.block.name + "_init")
        key = s.add(new)
        top: Key = s.nest(loops, [key]) if loops else key
        insert(s, loop, [top, loop])
        s.nodes[init.block.name] = without_init(s.nodes[init.block.name])
        return (key,)


def insert(s: State, at: Key, keys: list[Key]) -> None:
    """Put nodes where one is, which may be among them."""
    parent = s.parent[at]
    siblings: list[Key] = []
    for child in s.children[parent]:
        siblings += keys if child is at else [child]
    s.set_children(parent, siblings)


def loops_from(s: State, block: Block, loop: Var) -> list[Var]:
    """The loops from `loop` down to the block."""
    chain: list[Var] = []
    for above in s.ancestors(block.name):
        if not isinstance(above, Var):
            break
        chain.append(above)
        if above is loop:
            return chain[::-1]
    raise ScheduleError(
        f"the loop over {loop.name} is not around block {block.name!r}, or there is a condition between them",
        marks={loop: "the loop", block.name: "the block"},
        help="give one of the loops that get_loops gives for the block",
    )


def touches(s: State, key: Key, buffers: set[Buffer]) -> bool:
    """Whether a block or statement reads or writes one of the buffers."""
    node = s.nodes[key]
    if isinstance(node, Block):
        return any(r.buffer in buffers for r in (*node.reads, *node.writes))
    return statement_touches((node,), buffers)


def statement_touches(body: Body, buffers: set[Buffer]) -> bool:
    from ...ir import walk

    if any(isinstance(x, Load) and x.buffer in buffers for x in expressions(body)):
        return True
    return any(isinstance(x, Store) and x.buffer in buffers for x in walk(body))


# --- rfactor ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FactorPlan:
    loop: Var
    block: Block
    reducer: Reducer
    nest: list[Var]
    others: list[Var]  # the reduction loops that stay
    spatial: list[Var]  # loops of the nest that drive spatial iterators
    axes: list[int]  # where the new dimension goes, per result
    predicate: list[Expr]  # of the final block, still over the old loops


@primitive("rfactor")
class RFactor(Primitive):
    """Turn a reduction loop into a spatial one over partial results, which a second block reduces.

    rewrite:   for i: for k0: for k1: C[i] += A[i, k0 * 4 + k1]
          -->  for i: for k0: for k1: C_rf[k1, i] += A[i, k0 * 4 + k1]          (factored over k1)
               for i: for k1: C[i] += C_rf[k1, i]
    requires:  1. below the loop is one block, in a nest of loops and nothing else that holds all its
                  reduction loops
               2. the block has an `init` and combines by a known commutative and associative operation
               3. the loop drives reduction iterators and no spatial ones
               4. each instance runs once and stores elements of its own
               5. reduction loops have constant extents; what leaves out the first iteration of those that
                  stay leaves out the others too
               6. factor_axis is a dimension of the partial results (negative: from the end)
    Partial results that nothing is reduced into (a tail) are not read by the final block.
    """

    loop: LoopRV
    factor_axis: int = 0

    def check(self, s: State) -> FactorPlan:
        loop = s.loop(self.loop).var
        block = self.only_block(s, loop)
        spatial, reducing = check_kinds_apart(s, block)
        if loop not in reducing:
            raise ScheduleError(
                f"the loop over {loop.name} is not a reduction loop of block {block.name!r}",
                marks={loop: "not a reduction loop"},
            )
        nest = perfect_nest(s, block)
        for var in (*s.loops_around(block.name), loop):
            if var in reducing and not any(v is var for v in nest):
                raise ScheduleError(
                    f"the nest of block {block.name!r} does not hold its reduction loop over {var.name} alone",
                    marks={var: "has more in it than the nest of the block"},
                    help="move the other statements away first",
                )
        reducer = find_reducer(block)
        if reducer is None:
            raise ScheduleError(
                f"block {block.name!r} has no init, or does not combine by an operation that is known to be "
                "associative and commutative",
                marks={block.name: "cannot be reduced in parts"},
                help=ASSOCIATIVE,
            )
        check_independent(s, block)
        check_once(s, block, nest)
        for var in nest:
            if var in reducing and s.fixed_extent(var) is None:
                raise ScheduleError(
                    f"the extent of the reduction loop over {var.name} is not a constant",
                    marks={var: "its extent is an expression"},
                )
        check_not_empty(s, [v for v in nest if v in reducing])
        shared = {v for v in nest if v in spatial}
        for var in shared:
            if leaves_of(s, [s.resolve(s.extents[var])]) & reducing:
                raise ScheduleError(
                    f"the extent of {var.name} depends on a reduction loop",
                    marks={var: f"its extent is {s.extents[var]}"},
                )
        dropped = {it.var for it in block.iters if it.kind == "reduce"}
        for it in block.iters:
            if it.kind == "spatial" and any(v in dropped for v in free_vars(it.extent)):
                raise ScheduleError(f"the extent of {it.var.name} depends on a reduction iterator")
        others = [v for v in nest if v in reducing and v is not loop]
        predicate = self.final_predicate(s, block, loop, reducing)
        axes = self.axes(reducer)
        return FactorPlan(loop, block, reducer, nest, others, [v for v in nest if v in shared], axes, predicate)

    def only_block(self, s: State, loop: Var) -> Block:
        below = s.blocks_below(loop)
        if len(below) != 1:
            raise ScheduleError(
                f"there are {len(below)} blocks in the loop over {loop.name}",
                marks={loop: "must hold one block", **dict.fromkeys(below, "")},
            )
        return s.nodes[below[0]]

    def axes(self, reducer: Reducer) -> list[int]:
        axes: list[int] = []
        for store in reducer.stores:
            ndim = len(store.indices) + 1
            if not -ndim <= self.factor_axis < ndim:
                raise ScheduleError(
                    f"factor_axis {self.factor_axis} is no dimension of the partial results of {store.buffer.name}",
                    help=f"they have {ndim} dimensions: from {-ndim} to {ndim - 1}",
                )
            axes.append(self.factor_axis % ndim)
        return axes

    def final_predicate(self, s: State, block: Block, loop: Var, reducing: set[Var]) -> list[Expr]:
        """Where a partial result exists: its `init` ran, at the first iteration of the loops that stay."""
        others = reducing - {loop}
        found: list[Expr] = []
        for c in block.predicate:
            leaves = leaves_of(s, [c])
            if not leaves & reducing:
                found.append(c)
                continue
            if is_count(s, c, reducing):
                if loop in leaves:
                    found.append(at_zero(s, c, others))
                continue
            first, domain = at_zero(s, c, others), s.domain(block.name)
            if not domain.with_fact(s.resolve(c)).prove(first):
                raise ScheduleError(
                    f"a partial result may be updated without being started: it is updated where {c}",
                    marks={block.name: "its predicate may leave out the first iteration only"},
                    help="rfactor another loop, or split and fuse the reduction loops in another way",
                )
            if not domain.prove(first):
                found.append(first)
        return found

    def apply(self, s: State, plan: FactorPlan) -> tuple[Any, ...]:
        block, loop, reducer = plan.block, plan.loop, plan.reducer
        partials = [partial_buffer(s, st.buffer, axis, s.fixed_extent(loop)) for st, axis in
                    zip(reducer.stores, plan.axes, strict=True)]  # fmt: skip
        s.allocs = (*s.allocs, *partials)
        partial = partial_block(s, plan, partials)
        key = s.add(partial)
        s.set_children(plan.nest[-1], [key])

        kept = [v for v in plan.nest if v is loop or any(v is x for x in plan.spatial)]
        copies = Copies(s, kept)
        loops = [copies.loop(v, "serial" if v is loop else None) for v in kept]
        s.nodes[block.name] = final_block(plan, partials, copies)
        top = s.nest(loops, [block.name])
        insert(s, plan.nest[0], [plan.nest[0], top])
        return (key,)


def perfect_nest(s: State, block: Block) -> list[Var]:
    """The loops around a block that hold nothing else, outermost first."""
    nest: list[Var] = []
    below: Key = block.name
    for above in s.ancestors(block.name):
        if not isinstance(above, Var) or not s.is_only_child(below, of=above):
            break
        nest.append(above)
        below = above
    return nest[::-1]


def partial_buffer(s: State, b: Buffer, axis: int, extent: int | None) -> Buffer:
    shape = (*b.shape[:axis], extent or 0, *b.shape[axis:])
    return Buffer(b.name + "_rf", shape, b.dtype, b.scope)


def partial_indices(indices: tuple[Expr, ...], axis: int, at: Expr) -> tuple[Expr, ...]:
    return (*indices[:axis], at, *indices[axis:])


def partial_block(s: State, plan: FactorPlan, partials: list[Buffer]) -> Block:
    """Reduces over the other loops only; its iterators for reductions are the loops themselves."""
    block, reducer = plan.block, plan.reducer
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    values: dict[Var, Expr] = {it.var: Var(it.var.name) for it, _ in pairs}
    iters = [Iter(values[it.var], substitute(it.extent, values), "spatial") for it, _ in pairs]  # pyright: ignore[reportArgumentType]
    bindings = [b for _, b in pairs]
    by_loop: dict[Var, Expr] = {}
    for var in (plan.loop, *plan.others):
        new = Var(f"v_{var.name}")
        by_loop[var] = new
        iters.append(Iter(new, s.extents[var], "spatial" if var is plan.loop else "reduce"))
        bindings.append(var)
    domain = Domain({new: s.extents[var] for var, new in by_loop.items()})  # pyright: ignore[reportArgumentType]
    domain.singletons.clear()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "reduce":
            values[it.var] = simplify(substitute(s.resolve(binding), by_loop), domain)
    sub = Substitute(values)
    terms = [sub.expr(t) for t in reducer.terms]
    where = [
        partial_indices(sub.exprs(st.indices), axis, by_loop[plan.loop])
        for st, axis in zip(reducer.stores, plan.axes, strict=True)
    ]
    own = [Load(b, at) for b, at in zip(partials, where, strict=True)]
    results = reducer.combine(own, terms) if plan.others else tuple(terms)
    stores = [Store(b, at, value) for b, at, value in zip(partials, where, results, strict=True)]
    starts = [Store(b, at, e) for b, at, e in zip(partials, where, reducer.identities, strict=True)]
    loaded = {x.buffer for t in terms for x in subexpressions(t) if isinstance(x, Load)}
    return Block(
        block.name + "_rf",
        tuple(iters),
        tuple(bindings),
        tuple([sub.region(r) for r in block.reads if r.buffer in loaded]),
        tuple([b.region(*at) for b, at in zip(partials, where, strict=True)]),
        rebuilt(block.body, stores),
        tuple(starts) if plan.others else (),
        block.predicate,
        annotations=block.annotations,
    )


def final_block(plan: FactorPlan, partials: list[Buffer], copies: Copies) -> Block:
    block, reducer = plan.block, plan.reducer
    pairs = [(it, b) for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"]
    new = Var(f"v_{plan.loop.name}")
    where = [partial_indices(st.indices, axis, new) for st, axis in zip(reducer.stores, plan.axes, strict=True)]
    own = [Load(st.buffer, st.indices) for st in reducer.stores]
    parts = [Load(b, at) for b, at in zip(partials, where, strict=True)]
    results = reducer.combine(own, parts)
    stores = [Store(st.buffer, st.indices, v) for st, v in zip(reducer.stores, results, strict=True)]
    started = {x.buffer for x in expressions(block.init) if isinstance(x, Load)}
    extent = copies.state.extents[plan.loop]
    return changed(
        block,
        iters=(*[it for it, _ in pairs], Iter(new, extent, "reduce")),
        bindings=(*[copies.expr(b) for _, b in pairs], copies.var(plan.loop)),
        reads=(
            *[b.region(*at) for b, at in zip(partials, where, strict=True)],
            *[r for r in block.reads if r.buffer in started],
        ),
        body=rebuilt(block.body, stores),
        predicate=tuple([copies.expr(c) for c in plan.predicate]),
    )


def rebuilt(body: Body, stores: list[Store]) -> Body:
    """Other stores in the statements of `body`: together where it stores together."""
    left = iter(stores)
    return tuple(
        TupleStore(tuple([next(left) for _ in x.stores])) if isinstance(x, TupleStore) else next(left)
        for x in body
    )


# --- fuse_reduction_epilogue ------------------------------------------------------------------------------


@dataclass(slots=True)
class EpiloguePlan:
    reduction: Block
    epilogue: Block
    old: Buffer


@primitive("fuse_reduction_epilogue")
class FuseReductionEpilogue(Primitive):
    """Start a reduction from what an epilogue would combine its result with.

    rewrite:   T[i] = 0;  for k: T[i] = T[i] + A[i, k];  C[i] = T[i] + bias[i]
          -->  C[i] = bias[i];  for k: C[i] = C[i] + A[i, k]
    requires:  1. the reduction has an `init`, one store, and a known operation (+ * min max & | ^)
               2. the epilogue is C = T op e with the same operation, where e is free of T and C
               3. T is an intermediate buffer that the two blocks alone use; C is written by the epilogue only
               4. both blocks run over all of T, element by element
               5. what e reads is not written in or after the reduction's loop nest
    """

    reduction_block: BlockRV
    epilogue_block: BlockRV

    def check(self, s: State) -> Block:
        reduction, epilogue = s.block(self.reduction_block), s.block(self.epilogue_block)
        reducer = find_reducer(reduction)
        if reducer is None or len(reducer.stores) != 1 or s.children[reduction.name]:
            raise ScheduleError(
                f"block {reduction.name!r} has no init, or is not the reduction of one value by a known operation",
                marks={reduction.name: "not a reduction to start elsewhere"},
                help=ASSOCIATIVE,
            )
        op, update = reducer.ops[0], reducer.stores[0]
        store = self.epilogue_store(s, epilogue, update.buffer, op)
        old, new = update.buffer, store.buffer
        self.check_buffers(s, reduction, epilogue, old, new)
        own, rest = operands_of(store, old)
        values = self.correspondence(reduction, epilogue, update, own)
        self.check_whole(s, reduction, old)
        self.check_whole(s, epilogue, old)
        self.check_early(s, reduction, rest)
        check_independent(s, reduction)
        check_independent(s, epilogue)
        indices = tuple([substitute(i, values) for i in store.indices])
        first = reduction.init[0]
        assert isinstance(first, Store)
        identity = isinstance(first.value, Const) and first.value.value == identity_of(op, old.dtype).value
        extra = substitute(rest, values)
        start = extra if identity else binary(op, first.value, extra)
        mine = Load(new, indices)
        fused = changed(
            reduction,
            init=(Store(new, indices, start),),
            body=(Store(new, indices, binary(op, mine, reducer.terms[0])),),
            reads=(),
            writes=(),
        )
        reads, writes = block_signature(fused)
        return changed(fused, reads=reads, writes=writes)

    def epilogue_store(self, s: State, epilogue: Block, old: Buffer, op: str) -> Store:
        store = epilogue.body[0] if len(epilogue.body) == 1 else None
        if not isinstance(store, Store) or epilogue.init or any(it.kind != "spatial" for it in epilogue.iters):
            raise ScheduleError(
                f"block {epilogue.name!r} is not one element-wise store",
                marks={epilogue.name: "not an epilogue"},
            )
        value = store.value
        found = operands_of(store, old) if isinstance(value, Binary) and value.op == op else None
        if found is None or any(isinstance(x, Load) and x.buffer in (old, store.buffer) for x in
                                subexpressions(found[1])):  # fmt: skip
            raise ScheduleError(
                f"block {epilogue.name!r} does not combine {old.name} with something by {op!r}, the operation of "
                "the reduction",
                marks={epilogue.name: f"must be {old.name} {op} something"},
                help="move it into the reduction's loops with reverse_compute_at instead",
            )
        return store

    def check_buffers(self, s: State, reduction: Block, epilogue: Block, old: Buffer, new: Buffer) -> None:
        if not any(b is old for b in s.allocs):
            raise ScheduleError(
                f"{old.name} is not an intermediate buffer", marks={reduction.name: f"stores to {old.name}"}
            )
        for key, node in s.nodes.items():
            if isinstance(key, Var) or key is reduction.name or key is epilogue.name:
                continue
            own = isinstance(node, Block)
            writes = {r.buffer for r in node.writes} if own else {new}
            if touches(s, key, {old}) or (new in writes and touches(s, key, {new})):
                raise ScheduleError(
                    f"{old.name} or {new.name} is used elsewhere",
                    marks={key: f"uses {old.name}, or writes {new.name}"},
                )
        if new in {r.buffer for r in reduction.reads}:
            raise ScheduleError(f"the reduction reads {new.name}", marks={reduction.name: f"reads {new.name}"})

    def correspondence(self, reduction: Block, epilogue: Block, update: Store, own: Load) -> dict[Var, Expr]:
        """Iterators of the epilogue -> of the reduction, by the dimensions of the buffer between them."""
        values: dict[Var, Expr] = {}
        mine = {it.var: it for it in reduction.iters if it.kind == "spatial"}
        theirs = {it.var: it for it in epilogue.iters}
        used: set[Var] = set()
        for a, b in zip(own.indices, update.indices, strict=True):
            if isinstance(a, Const) and same_expr(a, b):
                continue
            fits = isinstance(a, Var) and isinstance(b, Var) and a not in values and b not in used
            if fits and a in theirs and b in mine:  # pyright: ignore[reportUnnecessaryContains]
                assert isinstance(a, Var) and isinstance(b, Var)
                if same_expr(theirs[a].extent, mine[b].extent):
                    values[a] = b
                    used.add(b)
                    continue
            raise ScheduleError(
                f"{a} of the epilogue and {b} of the reduction are not the same dimension",
                marks={epilogue.name: f"reads {own}", reduction.name: f"stores to {update.buffer.name}"},
            )
        missing = [v for v in theirs if v not in values] + [v for v in mine if v not in used]
        if missing:
            raise ScheduleError(
                f"{missing[0].name} is no dimension of {update.buffer.name}",
                marks={epilogue.name: "must run once per element", reduction.name: "must run once per element"},
            )
        return values

    def check_whole(self, s: State, block: Block, old: Buffer) -> None:
        """Every value of the spatial iterators is reached."""
        loops = s.loops_around(block.name)
        pairs = [(it, s.resolve(b)) for it, b in zip(block.iters, block.bindings, strict=True)]
        extents = {v: s.fixed_extent(v) for v in loops}
        whole = [as_int(it.extent) for it, _ in pairs]
        known = {v: n for v, n in extents.items() if n is not None}
        mapped = None
        if s.scope(block.name) is ROOT and len(known) == len(extents) and not guarded(s, block):
            mapped = iteration_map([b for _, b in pairs], known, [s.resolve(c) for c in block.predicate])
        ranges = [(0, n - 1) for n in whole if n is not None]
        if mapped is None or not mapped.bijective or list(mapped.ranges) != ranges or None in whole:
            raise ScheduleError(
                f"block {block.name!r} is not known to run exactly once for each element of {old.name}",
                marks={block.name: "its bindings, or its predicate, may leave some out"},
            )

    def check_early(self, s: State, reduction: Block, rest: Expr) -> None:
        """What the epilogue reads is there when the reduction starts, and stays."""
        read = {x.buffer for x in subexpressions(rest) if isinstance(x, Load)}
        reached = False
        for top in s.children[ROOT]:
            inside = [top, *s.statements_below(top)] if not isinstance(top, str) else [top]
            reached = reached or any(k is reduction.name for k in inside)
            for key in inside if reached else ():
                node = None if isinstance(key, Var) else s.nodes[key]
                if isinstance(node, Block):
                    bad = any(r.buffer in read for r in node.writes)
                else:
                    bad = node is not None and statement_touches((node,), read)
                if bad:
                    raise ScheduleError(
                        "what the epilogue reads may be written after the reduction starts",
                        marks={key: "writes it"},
                    )

    def apply(self, s: State, plan: Block) -> tuple[Any, ...]:
        old = {r.buffer for r in s.nodes[plan.name].writes}
        s.nodes[plan.name] = plan
        s.allocs = tuple([b for b in s.allocs if b not in old])
        remove(s, s.values[self.epilogue_block])
        return ()


def operands_of(store: Store, old: Buffer) -> tuple[Load, Expr] | None:
    """(the element of `old`, the rest) of a store of `old[...] op rest`."""
    value = store.value
    if isinstance(value, Binary):
        for own, rest in ((value.a, value.b), (value.b, value.a)):
            if isinstance(own, Load) and own.buffer is old:
                return own, rest
    return None


def guarded(s: State, block: Block) -> bool:
    """Whether a statement other than a loop is around the block."""
    return any(not isinstance(k, Var) for k in s.ancestors(block.name))


def remove(s: State, key: Key) -> None:
    """Take a node away, and the loops that hold nothing else."""
    while True:
        parent = s.parent[key]
        s.set_children(parent, [c for c in s.children[parent] if c is not key])
        s.forget(key)
        if parent is ROOT or isinstance(parent, str) or s.children[parent]:
            return
        key = parent


class ReductionSteps(Steps):
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Make the `init` of a reduction a block of its own, before a loop; see `DecomposeReduction`."""
        return self.run(DecomposeReduction(block, loop))[0]

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Turn a reduction loop into a spatial one over partial results; gives the block that computes them.
        The block that reduces them is the old one. See `RFactor`."""
        return self.run(RFactor(loop, factor_axis))[0]

    def fuse_reduction_epilogue(self, reduction_block: BlockRV, epilogue_block: BlockRV) -> None:
        """Start a reduction from what an epilogue adds; see `FuseReductionEpilogue`."""
        self.run(FuseReductionEpilogue(reduction_block, epilogue_block))
