"""Index expressions and conditions in their shortest form, knowing the loops around."""

from __future__ import annotations

from ...arith import Domain, conjuncts, simplify
from ...ir import (
    Binary,
    Body,
    Const,
    Expr,
    For,
    If,
    Load,
    Program,
    Rewriter,
    Select,
    Stmt,
    Store,
    all_of,
    binary,
    changed,
    subexpressions,
)
from .scope import given, has_load, inside


def simplify_program(program: Program) -> Program:
    return changed(program, body=_Simplify().body(program.body))


class _Simplify(Rewriter):
    def __init__(self) -> None:
        self.domain = Domain()

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Load):
            return changed(e, indices=tuple(self.index(i) for i in e.indices))
        if isinstance(e, Select):
            cond = self.condition(e.cond)
            if isinstance(cond, Const):
                return self.expr(e.a if cond.value else e.b)
            return changed(e, cond=cond, a=self.expr(e.a), b=self.expr(e.b))
        return super().expr(e)

    def index(self, e: Expr) -> Expr:
        """Only divisions, minima and the like gain: code generation collects linear terms itself."""
        if e.dtype == "int64" and any(_is_worth_it(x) for x in subexpressions(e)):
            return simplify(e, self.domain)
        return self.expr(e)

    def condition(self, e: Expr) -> Expr:
        """Values in memory are not indices: arithmetic on them wraps round, which `simplify` ignores."""
        if not has_load(e):
            return without_implied(simplify(e, self.domain), self.domain)
        if isinstance(e, Binary) and e.op in ("and", "or"):
            a, b = self.condition(e.a), self.condition(e.b)
            return e if a is e.a and b is e.b else binary(e.op, a, b)
        return self.expr(e)

    def stmt(self, s: Stmt) -> Stmt | Body:
        if isinstance(s, For):
            outside = self.domain
            extent = self.index(s.extent)
            self.domain = inside(outside, changed(s, extent=extent))
            new = changed(s, extent=extent, body=self.body(s.body))
            self.domain = outside
            return new
        if isinstance(s, If):
            cond = self.condition(s.cond)
            if isinstance(cond, Const):
                return self.body(s.then if cond.value else s.orelse)
            outside = self.domain
            self.domain = given(outside, cond)
            then = self.body(s.then)
            self.domain = outside
            return changed(s, cond=cond, then=then, orelse=self.body(s.orelse))
        if isinstance(s, Store):
            indices = tuple(self.index(i) for i in s.indices)
            return Store(s.buffer, indices, self.expr(s.value))
        return super().stmt(s)


def without_implied(cond: Expr, domain: Domain) -> Expr:
    """Without those conditions that follow from later ones (`simplify` knows those before)."""
    kept = conjuncts(cond)
    for c in kept[:-1]:
        others = [x for x in kept if x is not c]
        if domain.with_fact(all_of(others)).prove(c):
            kept = others
    return all_of(kept)


def _is_worth_it(e: Expr) -> bool:
    return (isinstance(e, Binary) and e.op in ("//", "%", "min", "max")) or isinstance(e, Select)
