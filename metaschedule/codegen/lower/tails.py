"""Tiles that do not divide: one version of the code for full tiles, one for the tail.

A split that does not divide leaves a guard `i0 * 6 + i1 < 128` around the statements of the tile. Where i1
is unrolled or vectorised, the body of the loop over i0 becomes

    if i0 * 6 <= 122:  body without the guard
    else:              body with the guard (here i0 can only be 21: with i1 < 2 instead)

so that a full tile has no tests in it, and after unrolling the tail is a smaller tile without tests either.
Versions rather than two loops, because a fused or parallel loop has no contiguous main part and two
parallel loops are two fork-joins. The choice is made as far out as it is known, above the reduction loops,
so that both versions keep their accumulators in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...arith import Domain, relax, simplify
from ...ir import (
    Binary,
    Body,
    Expr,
    For,
    If,
    Program,
    Rewriter,
    Stmt,
    Var,
    all_of,
    as_int,
    binary,
    changed,
    const,
    free_vars,
    same_expr,
)
from .flatten import guarded
from .scope import inside

TILE_KINDS = ("unrolled", "vectorized")
MOST_TAILS = 2  # tails versioned separately in one place: every further one doubles the code


@dataclass(eq=False)
class Guard:
    """A test `value < limit` on a tile: `full` is the test that the whole tile passes it."""

    value: Expr
    limit: int
    full: Expr
    first: Expr  # the smallest value in the tile, over the loops outside of it
    depth: int  # the loop (counted from outside) that decides it


def version_tails(program: Program) -> Program:
    return changed(program, body=_Versions(Domain(), ()).body(program.body))


def conjuncts(cond: Expr) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return [cond]


class _Versions(Rewriter):
    """Goes down the loops; on the way, `loops` are the loops around."""

    def __init__(self, domain: Domain, loops: tuple[For, ...]) -> None:
        self.domain, self.loops = domain, loops

    def stmt(self, s: Stmt) -> Stmt | Body:
        if isinstance(s, For):
            inner = _Versions(inside(self.domain, s), (*self.loops, s))
            below = inner.body if s.kind in TILE_KINDS else inner.versioned
            return changed(s, body=below(s.body))
        return super().stmt(s)

    def expr(self, e: Expr) -> Expr:
        return e

    def versioned(self, body: Body) -> Body:
        """The body of the innermost of `loops`, in as many versions as it decides tails."""
        depth = len(self.loops) - 1
        guards: list[Guard] = []
        for guard in self.guards(body, ()):
            known = any(same_expr(guard.full, g.full) for g in guards)
            if guard.depth == depth and not known:
                guards.append(guard)
        return self.choose(body, guards[:MOST_TAILS])

    def choose(self, body: Body, guards: list[Guard]) -> Body:
        if not guards:
            return self.body(body)
        guard, rest = guards[0], guards[1:]
        full = _Assume(self, guard, tail=False).body(body)
        tail = _Assume(self, guard, tail=True).body(body)
        return (If(guard.full, self.choose(full, rest), self.choose(tail, rest)),)

    def guards(self, body: Body, tile: tuple[For, ...]) -> list[Guard]:
        """The guards below, with the tile loops between here and them."""
        found: list[Guard] = []
        for s in body:
            if isinstance(s, For):
                inner = _Versions(inside(self.domain, s), (*self.loops, s))
                found += inner.guards(s.body, (*tile, s) if s.kind in TILE_KINDS else tile)
            elif isinstance(s, If):
                for cond in conjuncts(s.cond) if not s.orelse else ():
                    guard = self.guard(cond, tile)
                    if guard is not None:
                        found.append(guard)
                found += self.guards(s.then, tile) + self.guards(s.orelse, tile)
        return found

    def guard(self, cond: Expr, tile: tuple[For, ...]) -> Guard | None:
        """`cond` as a guard of the tile loops around it, if it is one."""
        if not isinstance(cond, Binary) or cond.op != "<" or cond.a.dtype != "int64":
            return None
        limit = as_int(cond.b)
        used = free_vars(cond.a)
        relaxed: dict[Var, Expr | int] = {f.var: f.extent for f in tile if _among(f.var, used)}
        if limit is None or not relaxed:
            return None
        span = relax(cond.a, relaxed, self.domain)
        width = as_int(span[1]) if span else None
        if span is None or width is None:
            return None
        first = simplify(span[0], self.domain)
        outer = free_vars(first)
        depths = [n for n, f in enumerate(self.loops) if _among(f.var, outer)]
        if not depths or len(depths) != len(outer):
            return None
        full = binary("<=", first, const(limit - width))
        return Guard(cond.a, limit, full, first, depths[-1])


class _Assume(Rewriter):
    """Rewrites the guards of one tail: away in the full version, to constants in the tail."""

    def __init__(self, where: _Versions, guard: Guard, tail: bool) -> None:
        self.where, self.known, self.tail = where, guard, tail
        self.tile: tuple[For, ...] = ()
        self.last: int | None = None
        if tail:
            # In the tail the first index of the tile is often a single number, the last tile's.
            _, high = where.domain.bounds(guard.first)
            outside = where.domain.with_fact(_negated(guard))
            if high is not None and outside.prove(binary("==", guard.first, const(high))):
                self.last = high

    def expr(self, e: Expr) -> Expr:
        return e

    def stmt(self, s: Stmt) -> Stmt | Body:
        if isinstance(s, For):
            outer_where, outer_tile = self.where, self.tile
            self.where = _Versions(inside(outer_where.domain, s), (*outer_where.loops, s))
            if s.kind in TILE_KINDS:
                self.tile = (*self.tile, s)
            new = changed(s, body=self.body(s.body))
            self.where, self.tile = outer_where, outer_tile
            return new
        if isinstance(s, If):
            kept = [c for cond in conjuncts(s.cond) if (c := self.rewrite(cond)) is not None]
            if s.orelse:
                return super().stmt(s)
            return guarded(all_of(kept), self.body(s.then))
        return super().stmt(s)

    def rewrite(self, cond: Expr) -> Expr | None:
        guard = self.where.guard(cond, self.tile)
        if guard is None or not same_expr(guard.full, self.known.full):
            return cond
        if not self.tail:
            return None
        if self.last is None:
            return cond
        within = simplify(binary("-", guard.value, guard.first), self.where.domain)
        return binary("<", within, const(guard.limit - self.last))


def _negated(guard: Guard) -> Expr:
    full = guard.full
    assert isinstance(full, Binary)
    return binary(">", full.a, full.b)


def _among(var: Var, variables: list[Var]) -> bool:
    return any(v is var for v in variables)
