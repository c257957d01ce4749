"""Loops that cannot run as their kind says become what they run as, so that the lowered program says it.

Before:  for i in T.parallel(4): for j in T.parallel(8): for v in T.vectorized(8): B[v + 1] = B[v]
After:   for i in T.parallel(4): for j in range(8): for v in range(8): B[v + 1] = B[v]

A schedule has proved that iterations of its vectorised loops are independent; nobody has for a program that
was written or parsed. What comes out of here the emitter takes for granted.
"""

from __future__ import annotations

from ... import ir
from ...arith import Domain
from .lanes import has_independent_lanes
from .model import resolve_kind
from .scope import inside


def serialize_loops(program: ir.Program) -> ir.Program:
    return ir.replace_fields(program, body=_Serialize().body(program.body))


class _Serialize(ir.StmtRewriter):
    def __init__(self) -> None:
        self.domain = Domain()
        self.around: tuple[str, ...] = ()

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if not isinstance(s, ir.For):
            return super().stmt(s)
        domain, around = self.domain, self.around
        extent = s.fixed_extent
        kind = resolve_kind(s.kind, extent, around)
        if kind == "vectorized" and extent != 1 and not has_independent_lanes(s, domain):
            kind = "serial"
        self.domain = inside(domain, s)
        if extent != 1:
            self.around = (*around, kind)
        body = self.body(s.body)
        self.domain, self.around = domain, around
        return ir.replace_fields(s, body=body, kind=kind)
