"""Blocks away: iteration variables become what they are bound to, predicates and `init` become conditions.

Before:  for i0, i1, k in T.grid(22, 6, 64): with T.block("C"): vi = T.spatial(128, i0 * 6 + i1); ...
After:   for i0, i1, k in T.grid(22, 6, 64): if i0 * 6 + i1 < 128: if k == 0: C[...] = 0.0; C[...] = ...
"""

from __future__ import annotations

from collections.abc import Mapping

from ... import ir
from ...ir.annotations import SKIP_ZEROS, STORAGE_ALIGN
from .predicate_padding import predicate_padding


def flatten(program: ir.Program) -> ir.Program:
    """The program without blocks; buffers of blocks become buffers of the program."""
    allocs: list[ir.Buffer] = list(program.allocs)
    for block in ir.blocks(program):
        allocs += block.allocs
    body = Flatten({}, allocs).body(program.body)
    notes = alignments(program, allocs)
    kept = {**program.annotations, STORAGE_ALIGN.key: notes} if notes else program.annotations
    return ir.replace_fields(program, body=body, allocs=tuple(allocs), annotations=kept)


def alignments(program: ir.Program, allocs: list[ir.Buffer]) -> tuple[tuple[int, int, int, int], ...]:
    """What the blocks note as `storage_align`, for the program to note."""
    numbers = {buffer: n for n, buffer in enumerate(allocs)}
    return tuple(
        (numbers[block.writes[write].buffer], axis, factor, offset)
        for block in ir.blocks(program)
        for write, axis, factor, offset in (STORAGE_ALIGN.get(block) or ())
        if write < len(block.writes) and block.writes[write].buffer in numbers
    )


class Flatten(ir.Substitute):
    def __init__(self, values: Mapping[ir.Var, ir.Expr], allocs: list[ir.Buffer]) -> None:
        super().__init__(values)
        self.allocs = allocs

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if not isinstance(s, ir.Block):
            return super().stmt(s)
        bound: dict[ir.Var, ir.Expr] = dict(self.values)
        starting: list[ir.Expr] = []
        first: list[ir.Stmt] = []
        for it, binding in zip(s.iters, s.bindings, strict=True):
            bound[it.var] = value = self.expr(binding)
            if reads_own_writes(value, s):  # what it is bound to must not change under its feet
                kept = ir.Buffer(it.var.name, (1,), it.var.dtype)
                self.allocs.append(kept)
                first.append(ir.Store(kept, (ir.const(0),), ir.cast(value, kept.dtype)))
                bound[it.var] = kept[0]
            if it.kind == "reduce":
                starting.append(ir.binary("==", bound[it.var], 0))
        inner = Flatten(bound, self.allocs)
        body = inner.body(s.body)
        if SKIP_ZEROS.get(s):
            body = predicate_padding(body)
        if s.init:
            body = guard_body(ir.all_of(starting), inner.body(s.init)) + body
        return guard_body(ir.all_of(self.exprs(s.predicate)), (*first, *body))


def reads_own_writes(e: ir.Expr, block: ir.Block) -> bool:
    """Whether the block stores into a buffer that `e` reads."""
    loaded = {load.buffer for load in ir.loads(e)}
    return bool(loaded) and not loaded.isdisjoint(ir.buffers_written(block))


def guard_body(cond: ir.Expr, body: ir.Body) -> ir.Body:
    """`body` where `cond` holds."""
    if isinstance(cond, ir.Const):
        return body if cond.value else ()
    return (ir.If(cond, body),)
