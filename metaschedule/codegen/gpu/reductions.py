"""Reductions whose terms are divided over threads: each thread combines its own, then all of them as a tree.

    for t in bind(8, "threadIdx.x"):        for t in bind(8, ...): L = 0.0
        for k in range(n):                                         for k in range(n): L = L + A[t, k]
            C[i] = C[i] + A[t, k]                                  S[t] = L
                                            for t in bind(8, ...): if t < 4: S[t] = S[t] + S[t + 4]
                                            ... 2, 1
                                            for t in bind(8, ...): if t == 0: C[i] = C[i] + S[0]

`S` is in shared memory, with a place for every other thread of the block. Barriers are found afterwards, as
everywhere (`barriers.py`). Where warps can shuffle, the terms of a warp are combined in registers, and `S`
has one place for each warp:

    for t in bind(256, ...):                for t in bind(256, ...):
        L = ... all terms of t                  L = S[t] if t < 8 else 0.0
        L = L + shuffle_down(L, 16)             L = L + shuffle_down(L, 4)
        ... 8, 4, 2, 1                          ... 2, 1
        if t % 32 == 0: S[t // 32] = L          if t == 0: C[i] = C[i] + L
"""

from __future__ import annotations

from ... import ir
from ...arith import conjuncts
from ...ir.reducers import BlockReducer, find_reducer, find_update
from .model import SHUFFLE, THREADS, VTHREADS, refuse


def split_cross_thread(part: ir.Program, source: ir.Program, warp: int = 1) -> ir.Program:
    """The program of a kernel with trees for what threads reduce together; `warp` threads can shuffle."""
    if not any(isinstance(s, ir.For) and s.kind in ir.GPU_AXES for s in ir.walk(part)):
        return part
    trees = Trees(source, warp)
    body = trees.body(part.body)
    if not trees.made:
        return part
    return ir.replace_fields(part, body=body, allocs=(*part.allocs, *trees.made))


class Trees(ir.Rewriter):
    def __init__(self, source: ir.Program, warp: int) -> None:
        self.source, self.warp = source, warp
        self.around: tuple[ir.For, ...] = ()
        self.made: list[ir.Buffer] = []

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Block):
            self.check(s)
            return super().stmt(s)
        if not isinstance(s, ir.For):
            return super().stmt(s)
        if s.fixed_extent == 0:  # nothing in it runs
            return s
        loops, block = find_nest(s)
        if block is not None and is_divided(loops, block):
            return self.tree(loops, block)
        outside, self.around = self.around, (*self.around, s)
        new = super().stmt(s)
        self.around = outside
        return new

    def check(self, block: ir.Block) -> None:
        """That no loop around is a part of a reduction which this file cannot take apart."""
        used = reduction_vars(block)
        for loop in self.around:
            if loop.kind in ir.GPU_AXES and loop.fixed_extent != 1 and loop.var in used:
                raise self.refusal(
                    block, loop, "let the loops of the reduction be innermost, or take one of rfactor"
                )

    def refusal(self, block: ir.Block, loop: ir.For, help: str) -> Exception:
        return refuse(
            f"block {block.name} reduces over {loop.var.name}, bound to {loop.kind}",
            self.source,
            {loop: "terms of one result on several threads"},
            help,
        )

    def tree(self, loops: list[ir.For], block: ir.Block) -> ir.Body:
        bound = [f for f in loops if f.kind in ir.GPU_AXES and f.fixed_extent != 1]
        reducer = find_reducer(block) if block.init else find_update(block)
        if len(bound) != 1 or bound[0].kind not in THREADS:
            raise self.refusal(block, bound[-1], "bind one loop of the reduction, to threadIdx")
        (thread,) = bound
        if reducer is None:
            raise self.refusal(block, thread, "only reductions that are known to commute are divided")
        if any(ir.loads(b) for b in block.bindings):
            raise self.refusal(block, thread, "its iterators are bound to what is read from memory")
        count = thread.fixed_extent
        assert count is not None
        others = [f for f in self.around if f.kind in (*THREADS, *VTHREADS)]
        place = tuple([f.var for f in others])
        shape = tuple([f.fixed_extent or 1 for f in others])
        width = self.shuffled(thread, count)
        buffers = [store.buffer for store in reducer.stores]
        own = [ir.Buffer(f"{b.name}_own", (1,), b.dtype, scope="local") for b in buffers]
        parts = (*shape, count // width)
        shared = [ir.Buffer(f"{b.name}_parts", parts, b.dtype, scope="shared") for b in buffers]
        self.made += own if width == count else [*own, *shared]
        values: dict[ir.Var, ir.Expr] = {
            it.var: ir.const(0) if ir.as_int(it.extent) == 1 else binding
            for it, binding in zip(block.iters, block.bindings, strict=True)
        }
        inner = Terms(reducer, values, own, shared, place)
        moving = {f.var for f in loops}
        tests = [c for p in block.predicate for c in conjuncts(p)]
        outside = [c for c in tests if moving.isdisjoint(ir.free_vars(c))]
        terms = inner.accumulate(tests)
        for loop in reversed(loops):
            if loop is not thread:
                terms = (ir.replace_fields(loop, body=terms),)
        begin = (*inner.begin(), *terms)
        starts = bool(block.init)
        if width > 1:
            return self.shuffles(thread, count, width, inner, begin, outside, starts)
        body: list[ir.Stmt] = [again(thread, (*begin, *inner.publish(thread.var)))]
        while count > 1:
            half = (count + 1) // 2
            step = ir.Var(thread.var.name)
            test = ir.binary("<", step, count - half)
            body.append(again(thread, (ir.If(test, inner.combine(step, half)),), step))
            count = half
        last = ir.Var(thread.var.name)
        test = ir.all_of([ir.binary("==", last, 0), *outside])
        body.append(again(thread, (ir.If(test, inner.finish(starts, inner.published(ir.const(0)))),), last))
        return tuple(body)

    def shuffled(self, thread: ir.For, count: int) -> int:
        """How many neighbouring threads surely are lanes of one warp; 1 if none are."""
        if thread.kind != "threadIdx.x" or self.warp == 1:
            return 1
        if count % self.warp == 0 and count <= self.warp**2:
            return self.warp
        return count if self.warp % count == 0 else 1

    def shuffles(
        self,
        thread: ir.For,
        count: int,
        width: int,
        inner: Terms,
        begin: ir.Body,
        outside: list[ir.Expr],
        starts: bool,
    ) -> ir.Body:
        """The terms of `width` neighbours through registers; then, if there are more, those of all."""
        own = (*begin, *self.exchanges(inner, width, width))
        if width == count:
            test = ir.all_of([ir.binary("==", thread.var, 0), *outside])
            return (again(thread, (*own, ir.If(test, inner.finish(starts, inner.own_terms())))),)
        warps = count // width
        first = ir.binary("==", ir.binary("%", thread.var, width), 0)
        publish = ir.If(first, inner.publish(ir.binary("//", thread.var, width)))
        rest = [ir.Buffer(f"{b.name}_rest", (1,), b.dtype, scope="local") for b in inner.own]
        self.made += rest
        last = ir.Var(thread.var.name)
        outer = Terms(inner.reducer, inner.values, rest, inner.shared, inner.place)
        take = ir.If(ir.binary("<", last, warps), outer.take(last))
        test = ir.all_of([ir.binary("==", last, 0), *outside])
        finish = ir.If(test, outer.finish(starts, outer.own_terms()))
        body = (*outer.begin(), take, *self.exchanges(outer, warps, width), finish)
        return (again(thread, (*own, publish)), again(thread, body, last))

    def exchanges(self, terms: Terms, count: int, width: int) -> ir.Body:
        """The terms of `count` lanes combined in the first of them."""
        theirs = [ir.Buffer(f"{b.name}_theirs", (1,), b.dtype, scope="local") for b in terms.own]
        self.made += theirs
        body: ir.Body = ()
        step = 1 << max(0, (count - 1).bit_length() - 1)
        while step and count > 1:
            body += terms.exchange(theirs, step, width)
            step //= 2
        return body


def again(thread: ir.For, body: ir.Body, var: ir.Var | None = None) -> ir.For:
    """Another loop over the same threads."""
    return ir.replace_fields(thread, body=body, var=thread.var if var is None else var)


class Terms:
    """The statements of one reduction. `values` are what the block's iterators are bound to."""

    def __init__(
        self,
        reducer: BlockReducer,
        values: dict[ir.Var, ir.Expr],
        own: list[ir.Buffer],
        shared: list[ir.Buffer],
        place: tuple[ir.Expr, ...],
    ) -> None:
        self.reducer, self.values, self.own, self.shared, self.place = reducer, values, own, shared, place
        self.zero = (ir.const(0),)

    def begin(self) -> ir.Body:
        return tuple([ir.Store(b, self.zero, e) for b, e in zip(self.own, self.reducer.neutral, strict=True)])

    def accumulate(self, tests: list[ir.Expr]) -> ir.Body:
        terms = [ir.substitute(e, self.values) for e in self.reducer.terms]
        found = self.stores([(b, self.zero) for b in self.own], [b[0] for b in self.own], terms)
        return (ir.If(ir.all_of(tests), found),) if tests else found

    def publish(self, at: ir.Expr) -> ir.Body:
        return tuple(
            [ir.Store(b, (*self.place, at), own[0]) for b, own in zip(self.shared, self.own, strict=True)]
        )

    def published(self, at: ir.Expr) -> list[ir.Expr]:
        return [ir.Load(b, (*self.place, at)) for b in self.shared]

    def own_terms(self) -> list[ir.Expr]:
        return [b[0] for b in self.own]

    def take(self, at: ir.Expr) -> ir.Body:
        return tuple([ir.Store(b, self.zero, e) for b, e in zip(self.own, self.published(at), strict=True)])

    def exchange(self, theirs: list[ir.Buffer], step: int, width: int) -> ir.Body:
        """Every lane combines its own terms with those of the lane `step` further on. What it receives has
        statements of its own, because all lanes must take part, whatever a reducer selects."""
        steps = (ir.const(step), ir.const(width))
        received = [
            ir.Store(b, self.zero, ir.Call(SHUFFLE, (own, *steps), b.dtype))
            for b, own in zip(theirs, self.own_terms(), strict=True)
        ]
        places: list[tuple[ir.Buffer, tuple[ir.Expr, ...]]] = [(b, self.zero) for b in self.own]
        return (*received, *self.stores(places, self.own_terms(), [b[0] for b in theirs]))

    def combine(self, thread: ir.Var, half: int) -> ir.Body:
        places = [(b, (*self.place, thread)) for b in self.shared]
        return self.stores(places, self.published(thread), self.published(thread + half))

    def finish(self, starts: bool, found: list[ir.Expr]) -> ir.Body:
        """The result from all terms, and from what was there before, or the `init`."""
        places = [
            (s.buffer, tuple([ir.substitute(i, self.values) for i in s.indices])) for s in self.reducer.stores
        ]
        before: list[ir.Expr] = [ir.Load(b, at) for b, at in places]
        if starts:
            before = [ir.substitute(e, self.values) for e in self.reducer.identities]
        return self.stores(places, before, found)

    def stores(
        self,
        places: list[tuple[ir.Buffer, tuple[ir.Expr, ...]]],
        left: list[ir.Expr],
        right: list[ir.Expr],
    ) -> ir.Body:
        values = self.reducer.combine(left, right)
        made = [ir.Store(b, at, v) for (b, at), v in zip(places, values, strict=True)]
        return tuple(made) if len(made) == 1 else (ir.TupleStore(tuple(made)),)


def find_nest(s: ir.For) -> tuple[list[ir.For], ir.Block | None]:
    """The loops from one down to a block that is alone in them; no block if there is none."""
    loops: list[ir.For] = []
    at: ir.Stmt = s
    while isinstance(at, ir.For):
        loops.append(at)
        if len(at.body) != 1:
            return loops, None
        at = at.body[0]
    if not isinstance(at, ir.Block) or any(isinstance(x, ir.Block) for x in ir.walk(at.body)):
        return loops, None
    return loops, at


def is_divided(loops: list[ir.For], block: ir.Block) -> bool:
    """Whether all of some loops are the reduction's, and a bound one is among them. A loop that results
    depend on, too, is not only the reduction's."""
    used = reduction_vars(block) - result_vars(block)
    return all(f.var in used or f.fixed_extent == 1 for f in loops) and any(
        f.kind in ir.GPU_AXES and f.fixed_extent != 1 and f.var in used for f in loops
    )


def reduction_vars(block: ir.Block) -> set[ir.Var]:
    """The variables that the reduction iterators of a block are bound to."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return {v for it, binding in pairs if it.kind == "reduce" for v in ir.free_vars(binding)}


def result_vars(block: ir.Block) -> set[ir.Var]:
    """The variables that iterators over several results of a block are bound to."""
    pairs = zip(block.iters, block.bindings, strict=True)
    several = [b for it, b in pairs if it.kind != "reduce" and ir.as_int(it.extent) != 1]
    return {v for binding in several for v in ir.free_vars(binding)}
