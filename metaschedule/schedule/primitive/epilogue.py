"""The primitive fuse_reduction_epilogue: what is added to a result becomes what the reduction starts from."""

from __future__ import annotations

from typing import Any

from ... import ir
from ...arith import block_signature
from ...errors import ScheduleError
from ...ir.reducers import ASSOCIATIVE, find_reducer, identity_of
from ..analysis.block_dependence import check_independent
from ..analysis.effects import touch
from ..analysis.iteration_domain import runs_once_per_point
from ..state import ROOT, State
from .base import BlockRV, Primitive, primitive
from .nests import is_guarded


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
    Atomic: it changes what a sum starts from, which no other step does.
    """

    reduction_block: BlockRV
    epilogue_block: BlockRV

    def check(self, s: State) -> ir.Block:
        reduction, epilogue = s.block(self.reduction_block), s.block(self.epilogue_block)
        reducer = find_reducer(reduction)
        if reducer is None or len(reducer.stores) != 1 or s.children[reduction.name]:
            raise ScheduleError(
                f"block {reduction.name!r} has no init, or does not reduce one value by a known operation",
                marks={reduction.name: "not a reduction to start elsewhere"},
                help=ASSOCIATIVE,
            )
        op, update = reducer.ops[0], reducer.stores[0]
        store, own, rest = self.epilogue_parts(epilogue, update.buffer, op)
        old, new = update.buffer, store.buffer
        self.check_buffers(s, reduction, epilogue, old, new)
        values = self.correspondence(reduction, epilogue, update, own)
        self.check_whole(s, reduction, old)
        self.check_whole(s, epilogue, old)
        self.check_early(s, reduction, rest)
        check_independent(s, reduction)
        check_independent(s, epilogue)
        indices = tuple([ir.substitute(i, values) for i in store.indices])
        first = reduction.init[0]
        assert isinstance(first, ir.Store)
        identity = isinstance(first.value, ir.Const) and first.value.value == identity_of(op, old.dtype).value
        extra = ir.substitute(rest, values)
        start = extra if identity else ir.binary(op, first.value, extra)
        mine = ir.Load(new, indices)
        fused = ir.replace_fields(
            reduction,
            init=(ir.Store(new, indices, start),),
            body=(ir.Store(new, indices, ir.binary(op, mine, reducer.terms[0])),),
            reads=(),
            writes=(),
        )
        reads, writes = block_signature(fused)
        return ir.replace_fields(fused, reads=reads, writes=writes)

    def epilogue_parts(
        self, epilogue: ir.Block, old: ir.Buffer, op: str
    ) -> tuple[ir.Store, ir.Load, ir.Expr]:
        """The store of an epilogue, the element of `old` that it reads, and what it combines that with."""
        store = epilogue.body[0] if len(epilogue.body) == 1 else None
        if (
            not isinstance(store, ir.Store)
            or epilogue.init
            or any(it.kind != "spatial" for it in epilogue.iters)
        ):
            raise ScheduleError(
                f"block {epilogue.name!r} is not one element-wise store",
                marks={epilogue.name: "not an epilogue"},
            )
        value = store.value
        found = operands_of(store, old) if isinstance(value, ir.Binary) and value.op == op else None
        if found is None or any(x.buffer in (old, store.buffer) for x in ir.loads(found[1])):
            raise ScheduleError(
                f"block {epilogue.name!r} does not combine {old.name} by {op!r}, as the reduction does",
                marks={epilogue.name: f"must be {old.name} {op} something"},
                help="move it into the reduction's loops with reverse_compute_at instead",
            )
        return store, *found

    def check_buffers(
        self, s: State, reduction: ir.Block, epilogue: ir.Block, old: ir.Buffer, new: ir.Buffer
    ) -> None:
        if not any(b is old for b in s.allocs):
            raise ScheduleError(
                f"{old.name} is not an intermediate buffer", marks={reduction.name: f"stores to {old.name}"}
            )
        for key in s.nodes:
            if key is reduction.name or key is epilogue.name:
                continue
            touched = touch(s.nodes[key])
            if touched.uses(old) or new in touched.writes:
                raise ScheduleError(
                    f"{old.name} is used, or {new.name} written, by others than the two blocks",
                    marks={key: f"uses {old.name}, or writes {new.name}"},
                )
        if new in {r.buffer for r in reduction.reads}:
            raise ScheduleError(
                f"the reduction reads {new.name}", marks={reduction.name: f"reads {new.name}"}
            )

    def correspondence(
        self, reduction: ir.Block, epilogue: ir.Block, update: ir.Store, own: ir.Load
    ) -> dict[ir.Var, ir.Expr]:
        """Iterators of the epilogue -> of the reduction, by the dimensions of the buffer between them."""
        values: dict[ir.Var, ir.Expr] = {}
        mine = {it.var: it for it in reduction.iters if it.kind == "spatial"}
        theirs = {it.var: it for it in epilogue.iters}
        used: set[ir.Var] = set()
        for a, b in zip(own.indices, update.indices, strict=True):
            if isinstance(a, ir.Const) and ir.same_expr(a, b):
                continue
            if isinstance(a, ir.Var) and isinstance(b, ir.Var) and a not in values and b not in used:
                known = a in theirs and b in mine
                if known and ir.same_expr(theirs[a].extent, mine[b].extent):
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
                marks={
                    epilogue.name: "must run once per element",
                    reduction.name: "must run once per element",
                },
            )
        return values

    def check_whole(self, s: State, block: ir.Block, old: ir.Buffer) -> None:
        """Every value of the spatial iterators is reached."""
        if is_guarded(s, block) or not runs_once_per_point(s, block, s.loops_around(block.name)):
            raise ScheduleError(
                f"block {block.name!r} is not known to run exactly once for each element of {old.name}",
                marks={block.name: "its bindings, or its predicate, may leave some out"},
            )

    def check_early(self, s: State, reduction: ir.Block, rest: ir.Expr) -> None:
        """What the epilogue reads is there when the reduction starts, and stays."""
        read = {load.buffer for load in ir.loads(rest)}
        reached = False
        for top in s.children[ROOT]:
            inside = [top, *s.statements_below(top)] if not isinstance(top, str) else [top]
            reached = reached or any(k is reduction.name for k in inside)
            for key in inside if reached else ():
                if touch(s.nodes[key]).writes & read:
                    raise ScheduleError(
                        "what the epilogue reads may be written after the reduction starts",
                        marks={key: "writes it"},
                    )

    def apply(self, s: State, plan: ir.Block) -> tuple[Any, ...]:
        old = {r.buffer for r in s.nodes[plan.name].writes}
        s.set_node(plan.name, plan)
        s.allocs = tuple([b for b in s.allocs if b not in old])
        s.remove(s.values[self.epilogue_block])
        return ()


def operands_of(store: ir.Store, old: ir.Buffer) -> tuple[ir.Load, ir.Expr] | None:
    """(the element of `old`, the rest) of a store of `old[...] op rest`."""
    value = store.value
    if isinstance(value, ir.Binary):
        for own, rest in ((value.a, value.b), (value.b, value.a)):
            if isinstance(own, ir.Load) and own.buffer is old:
                return own, rest
    return None
