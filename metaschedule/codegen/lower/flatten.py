"""Blocks away: iteration variables become what they are bound to, predicates and `init` become conditions.

Before:  for i0, i1, k in T.grid(22, 6, 64): with T.block("C"): vi = T.spatial(128, i0 * 6 + i1); ...
After:   for i0, i1, k in T.grid(22, 6, 64): if i0 * 6 + i1 < 128: if k == 0: C[...] = 0.0; C[...] = ...
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import (
    Block,
    Body,
    Buffer,
    Const,
    Expr,
    If,
    Load,
    Program,
    Stmt,
    Store,
    Substitute,
    Var,
    all_of,
    binary,
    blocks,
    cast,
    changed,
    const,
    subexpressions,
    walk,
)
from ...ir.annotations import SKIP_ZEROS, STORAGE_ALIGN
from .predicate_padding import predicate_padding


def flatten(program: Program) -> Program:
    """The program without blocks; buffers of blocks become buffers of the program."""
    allocs: list[Buffer] = list(program.allocs)
    for block in blocks(program):
        allocs += block.allocs
    body = Flatten({}, allocs).body(program.body)
    notes = alignments(program, allocs)
    kept = {**program.annotations, STORAGE_ALIGN.key: notes} if notes else program.annotations
    return changed(program, body=body, allocs=tuple(allocs), annotations=kept)


def alignments(program: Program, allocs: list[Buffer]) -> tuple[tuple[int, int, int, int], ...]:
    """What the blocks note as `storage_align`, for the program to note."""
    numbers = {buffer: n for n, buffer in enumerate(allocs)}
    return tuple(
        (numbers[block.writes[write].buffer], axis, factor, offset)
        for block in blocks(program)
        for write, axis, factor, offset in (STORAGE_ALIGN.get(block) or ())
        if write < len(block.writes) and block.writes[write].buffer in numbers
    )


class Flatten(Substitute):
    def __init__(self, values: Mapping[Var, Expr], allocs: list[Buffer]) -> None:
        super().__init__(values)
        self.allocs = allocs

    def stmt(self, s: Stmt) -> Stmt | Body:
        if not isinstance(s, Block):
            return super().stmt(s)
        bound: dict[Var, Expr] = dict(self.values)
        starting: list[Expr] = []
        first: list[Stmt] = []
        for it, binding in zip(s.iters, s.bindings, strict=True):
            bound[it.var] = value = self.expr(binding)
            if reads_own_writes(value, s):  # what it is bound to must not change under its feet
                kept = Buffer(it.var.name, (1,), it.var.dtype)
                self.allocs.append(kept)
                first.append(Store(kept, (const(0),), cast(value, kept.dtype)))
                bound[it.var] = kept[0]
            if it.kind == "reduce":
                starting.append(binary("==", bound[it.var], 0))
        inner = Flatten(bound, self.allocs)
        body = inner.body(s.body)
        if SKIP_ZEROS.get(s):
            body = predicate_padding(body)
        if s.init:
            body = guarded(all_of(starting), inner.body(s.init)) + body
        return guarded(all_of(self.exprs(s.predicate)), (*first, *body))


def reads_own_writes(e: Expr, block: Block) -> bool:
    """Whether the block stores into a buffer that `e` reads."""
    loaded = {x.buffer for x in subexpressions(e) if isinstance(x, Load)}
    return bool(loaded) and any(isinstance(s, Store) and s.buffer in loaded for s in walk(block))


def guarded(cond: Expr, body: Body) -> Body:
    """`body` where `cond` holds."""
    if isinstance(cond, Const):
        return body if cond.value else ()
    return (If(cond, body),)
