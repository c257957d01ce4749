"""Conditions out of the loops that they do not depend on.

Before:  for rh in range(3): for c in range(64): for i in T.unrolled(4): if (h + rh) % 2 == 0 and i < n: S
After:   for rh in range(3): if (h + rh) % 2 == 0: for c in range(64): for i in T.unrolled(4): if i < n: S

With h = 5 and n = 2, rh = 0 and rh = 2 skip their 64 * 4 iterations after one test, and rh = 1 makes 64 * 4
tests of i < n alone. Before, there were 3 * 64 * 4 tests of both.

LLVM would do it too, with each copy of an unrolled tile for itself. Conditions that depend on a loop of a
tile stay inside: `loop_versioning` looks for them there.
"""

from __future__ import annotations

from ... import ir
from ...arith import conjuncts
from .flatten import guard_body
from .model import TILE_KINDS
from .scope import is_harmless


def hoist_conditions(program: ir.Program) -> ir.Program:
    return ir.replace_fields(program, body=_Hoist().body(program.body))


class _Hoist(ir.StmtRewriter):
    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if not isinstance(s, ir.For):
            return super().stmt(s)
        outer = find_invariant(s)
        new = _AssumeConditions(outer).stmt(s) if outer else s
        assert isinstance(new, ir.For)
        if new.kind not in TILE_KINDS:
            new = ir.replace_fields(new, body=self.body(new.body))
        return guard_body(ir.all_of(outer), (new,)) if outer else new


def find_invariant(s: ir.For) -> list[ir.Expr]:
    """The conditions on all that a loop does which depend neither on it nor on the loops inside."""
    found: list[ir.Expr] = []
    loops: set[ir.Var] = {s.var}
    body = s.body
    while len(body) == 1:
        (inner,) = body
        if isinstance(inner, ir.For):
            loops.add(inner.var)
            body = inner.body
        elif isinstance(inner, ir.If) and not inner.orelse:
            found += [
                c for c in conjuncts(inner.cond) if loops.isdisjoint(ir.free_vars(c)) and is_harmless(c)
            ]
            body = inner.then
        else:
            break
    return found


class _AssumeConditions(ir.StmtRewriter):
    """Takes conditions for granted."""

    def __init__(self, known: list[ir.Expr]) -> None:
        self.known = known

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.If) and not s.orelse:
            left = [c for c in conjuncts(s.cond) if not any(c is x for x in self.known)]
            return guard_body(ir.all_of(left), self.body(s.then))
        return super().stmt(s)
