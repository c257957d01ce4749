"""Blocks away: iteration variables become what they are bound to, predicates and `init` become conditions.

Before:  for i0, i1, k in T.grid(22, 6, 64): with T.block("C"): vi = T.spatial(128, i0 * 6 + i1); ...
After:   for i0, i1, k in T.grid(22, 6, 64): if i0 * 6 + i1 < 128: if k == 0: C[...] = 0.0; C[...] = ...
"""

from __future__ import annotations

from ...ir import (
    Block,
    Body,
    Buffer,
    Const,
    Expr,
    If,
    Program,
    Stmt,
    Store,
    Substitute,
    Var,
    all_of,
    binary,
    blocks,
    changed,
    walk,
)
from .zeros import without_zeros

SKIP_ZEROS = "skip_zeros"  # block annotation: leave out reduction terms that multiply a padding zero


def flatten(program: Program) -> Program:
    """The program without blocks; buffers of blocks become buffers of the program."""
    allocs: list[Buffer] = list(program.allocs)
    for block in blocks(program):
        allocs += block.allocs
    body = Flatten({}).body(program.body)
    return changed(program, body=body, allocs=tuple(allocs))


class Flatten(Substitute):
    def stmt(self, s: Stmt) -> Stmt | Body:
        if not isinstance(s, Block):
            return super().stmt(s)
        bound: dict[Var, Expr] = dict(self.values)
        starting: list[Expr] = []
        for it, binding in zip(s.iters, s.bindings, strict=True):
            bound[it.var] = self.expr(binding)
            if it.kind == "reduce":
                starting.append(binary("==", bound[it.var], 0))
        inner = Flatten(bound)
        body = inner.body(s.body)
        if s.annotations.get(SKIP_ZEROS):
            body = tuple(without_zeros(x) if isinstance(x, Store) else x for x in body)
        if s.init:
            body = guarded(all_of(starting), inner.body(s.init)) + body
        return guarded(all_of(self.exprs(s.predicate)), body)


def guarded(cond: Expr, body: Body) -> Body:
    """`body` where `cond` holds."""
    if isinstance(cond, Const):
        return body if cond.value else ()
    return (If(cond, body),)


def has_blocks(program: Program) -> bool:
    return any(isinstance(s, Block) for s in walk(program))
