"""Index expressions and conditions in their shortest form, knowing the loops around."""

from __future__ import annotations

from ... import ir
from ...arith import Domain, conjuncts, simplify
from .scope import assume, inside


def simplify_program(program: ir.Program) -> ir.Program:
    return ir.replace_fields(program, body=_Simplify().body(program.body))


class _Simplify(ir.Rewriter):
    def __init__(self) -> None:
        self.domain = Domain()

    def expr(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load):
            return ir.replace_fields(e, indices=tuple(self.index(i) for i in e.indices))
        if isinstance(e, ir.Select):
            cond = self.condition(e.cond)
            if isinstance(cond, ir.Const):
                return self.expr(e.a if cond.value else e.b)
            return ir.replace_fields(e, cond=cond, a=self.expr(e.a), b=self.expr(e.b))
        return super().expr(e)

    def index(self, e: ir.Expr) -> ir.Expr:
        """Only divisions, minima and the like gain: code generation collects linear terms itself."""
        if e.dtype == "int64" and any(_is_worth_it(x) for x in ir.subexpressions(e)):
            return simplify(e, self.domain)
        return self.expr(e)

    def condition(self, e: ir.Expr) -> ir.Expr:
        """Values in memory are not indices: arithmetic on them wraps round, which `simplify` ignores."""
        if not ir.has_load(e):
            return drop_implied(simplify(e, self.domain), self.domain)
        if isinstance(e, ir.Binary) and e.op in ("and", "or"):
            a, b = self.condition(e.a), self.condition(e.b)
            return e if a is e.a and b is e.b else ir.binary(e.op, a, b)
        return self.expr(e)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            outside = self.domain
            extent = self.index(s.extent)
            self.domain = inside(outside, ir.replace_fields(s, extent=extent))
            new = ir.replace_fields(s, extent=extent, body=self.body(s.body))
            self.domain = outside
            return new
        if isinstance(s, ir.If):
            cond = self.condition(s.cond)
            if isinstance(cond, ir.Const):
                return self.body(s.then if cond.value else s.orelse)
            outside = self.domain
            self.domain = assume(outside, cond)
            then = self.body(s.then)
            self.domain = outside
            return ir.replace_fields(s, cond=cond, then=then, orelse=self.body(s.orelse))
        if isinstance(s, ir.Store):
            indices = tuple(self.index(i) for i in s.indices)
            return ir.Store(s.buffer, indices, self.expr(s.value))
        return super().stmt(s)


def drop_implied(cond: ir.Expr, domain: Domain) -> ir.Expr:
    """Without those conditions that follow from later ones (`simplify` knows those before)."""
    kept = conjuncts(cond)
    for c in kept[:-1]:
        others = [x for x in kept if x is not c]
        if domain.with_fact(ir.all_of(others)).prove(c):
            kept = others
    return ir.all_of(kept)


def _is_worth_it(e: ir.Expr) -> bool:
    return (isinstance(e, ir.Binary) and e.op in ("//", "%", "min", "max")) or isinstance(e, ir.Select)
