"""Kernels with one mistake: what checks of kernels must find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from metaschedule import ir
from metaschedule.codegen.gpu.lower import LoweredGpu
from metaschedule.codegen.gpu.model import Barrier

Change = Callable[[ir.Stmt], ir.Stmt | ir.Body | None]  # None: as it is


class Replace(ir.Rewriter):
    """The `at`-th statement or load for which there is a mistake gets it; counts them all."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at, self.count = kind, at, 0

    def is_here(self) -> bool:
        self.count += 1
        return self.count - 1 == self.at

    def expr(self, e: ir.Expr) -> ir.Expr:
        if self.kind == "index" and isinstance(e, ir.Load) and e.buffer.shape and self.is_here():
            return ir.Load(e.buffer, move(e.indices))
        return ir.map_operands(e, self.expr)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if self.kind == "barrier" and isinstance(s, Barrier):
            return () if self.is_here() else s
        if self.kind == "predicate" and isinstance(s, ir.If) and not s.orelse and self.is_here():
            return s.then
        if self.kind == "index" and isinstance(s, ir.Store) and s.buffer.shape and self.is_here():
            return ir.Store(s.buffer, move(s.indices), s.value)
        return s if isinstance(s, Barrier) else super().stmt(s)


def move(indices: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """The last index, one further."""
    return (*indices[:-1], indices[-1] + 1)


def mutate(lowered: LoweredGpu, kind: str, rng: random.Random) -> LoweredGpu | None:
    """The kernels with a mistake of a kind in a random place; None if there is no place for one."""
    counts = [count_places(k.program, kind) for k in lowered.kernels]
    if not sum(counts):
        return None
    at = rng.randrange(sum(counts))
    kernels = list(lowered.kernels)
    for n, places in enumerate(counts):
        if at < places:
            changed = Replace(kind, at)
            body = changed.body(kernels[n].program.body)
            kernels[n] = replace(kernels[n], program=ir.replace_fields(kernels[n].program, body=body))
            break
        at -= places
    return replace(lowered, kernels=kernels)


def count_places(program: ir.Program, kind: str) -> int:
    found = Replace(kind, -1)
    found.body(program.body)
    return found.count
