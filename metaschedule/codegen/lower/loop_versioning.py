"""Tiles that do not divide: one version of the code for full tiles, one for each tail.

A split that does not divide leaves a guard `i0 * 6 + i1 < 128` around the statements of the tile. Where i1
is unrolled or vectorised, the body of the loop over i0 becomes

    if i0 * 6 <= 122:    body without the guard
    elif i0 * 6 == 126:  body with i1 < 2 instead (where i0 can only be 21, without this test)
    else:                body without what is guarded, mostly nothing (where i0 can be more than 21)

so that a full tile has no tests in it, and after unrolling the tail is a smaller tile without tests either.
A guard `value >= limit` (the padding of a convolution) cuts tiles at their beginning and is treated alike.
Versions rather than two loops, because a fused or parallel loop has no contiguous main part and two
parallel loops are two fork-joins. The choice is made as far out as it is known, above the reduction loops,
so that all versions keep their accumulators in registers. So is that of a guard which a tile passes as a
whole or not at all, if nothing else is in the body.

A loop annotated with `ONE_TAIL` has two versions, however many guards: full tiles, and all others with tests.
That is for bodies that are long even without versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ... import ir
from ...affine.constraint import Bound, bound_of
from ...arith import Domain, conjuncts, relax, simplify
from ...ir.annotations import ONE_TAIL, SIZED
from .flatten import guard_body
from .model import MOST_TAILS, MOST_VERSIONS, TILE_KINDS
from .scope import inside


@dataclass(eq=False)
class TileGuard:
    """A test of a tile, in which the value that it bounds goes from `first` to `first + width - 1`."""

    bound: Bound
    first: ir.Expr  # over the loops outside of the tile
    width: int
    depth: int  # the loop (counted from outside) that decides it
    sized: bool = False  # whether a loop outside of the tile has an extent of many

    def is_same(self, other: TileGuard) -> bool:
        """Whether both hold in the same tiles."""
        same_numbers = (*self.bound[1:], self.width) == (*other.bound[1:], other.width)
        return same_numbers and ir.same_expr(self.first, other.first)

    @property
    def limit(self) -> int:
        return self.bound.limit

    @property
    def extremes(self) -> tuple[int, int]:
        """The start of a tile that is just full and of one that is just empty."""
        before, behind = self.limit - self.width, self.limit
        return (behind, before) if self.bound.is_least else (before, behind)

    @property
    def is_full(self) -> ir.Expr:
        return ir.binary(">=" if self.bound.is_least else "<=", self.first, ir.const(self.extremes[0]))


def version_loops(program: ir.Program) -> ir.Program:
    return ir.replace_fields(program, body=_Versions(Domain(), (), MOST_VERSIONS, {}).body(program.body))


class _Versions(ir.StmtRewriter):
    """Goes down the loops; on the way, `loops` are the loops around, `versions` how many there may be, and
    `known` what conditions are as guards of a tile (they come again in every version)."""

    def __init__(
        self,
        domain: Domain,
        loops: tuple[ir.For, ...],
        versions: int,
        known: dict[tuple[ir.Expr, ...], TileGuard | None],
    ) -> None:
        self.domain, self.loops, self.versions, self.known = domain, loops, versions, known

    def within(self, s: ir.For) -> _Versions:
        return _Versions(inside(self.domain, s), (*self.loops, s), self.versions, self.known)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            inner = self.within(s)
            below = inner.body if s.kind in TILE_KINDS else inner.version_body
            return ir.replace_fields(s, body=below(s.body))
        return super().stmt(s)

    def version_body(self, body: ir.Body) -> ir.Body:
        """The body of the innermost of `loops`, in as many versions as it decides tails."""
        depth = len(self.loops) - 1
        guards: list[TileGuard] = []
        for guard in self.find_guards(body, ()):
            if guard.depth == depth and not any(guard.is_same(g) for g in guards):
                guards.append(guard)
        if ONE_TAIL.is_on(self.loops[-1]):
            return self.separate_full_tiles(body, guards)
        return self.choose(body, guards, self.versions, self.domain)

    def separate_full_tiles(self, body: ir.Body, guards: list[TileGuard]) -> ir.Body:
        full = body
        for guard in guards:
            full = _AssumeStart(self, guard, guard.extremes[0]).body(full)
        cut = [guard for guard in guards if tail_starts(guard, self.domain) != []]
        if not cut:
            return self.body(full)
        return (ir.If(ir.all_of([guard.is_full for guard in cut]), self.body(full), self.body(body)),)

    def choose(self, body: ir.Body, guards: list[TileGuard], versions: int, domain: Domain) -> ir.Body:
        """`domain` knows what has been chosen before."""
        if not guards:
            return _Versions(self.domain, self.loops, versions, self.known).body(body)
        guard, rest = guards[0], guards[1:]
        starts = tail_starts(guard, domain)
        full_start, empty_start = guard.extremes
        full = _AssumeStart(self, guard, full_start).body(body)
        if starts == []:
            return self.choose(full, rest, versions, domain)
        cut = [body] if starts is None else [_AssumeStart(self, guard, start).body(body) for start in starts]
        count = 1 + sum(1 for version in cut if version)
        # What the whole tile passes or not may be but a small part of the body: no reason for two of all.
        if count > versions or (guard.width == 1 and count > 1):
            return self.choose(body, rest, versions, domain)
        chosen: ir.Body = ()
        for n, (start, version) in enumerate(
            zip(reversed(starts or [empty_start]), reversed(cut), strict=True)
        ):
            here = ir.binary("==", guard.first, ir.const(start))
            known = domain if start == empty_start else domain.with_fact(here)
            tail = self.choose(version, rest, versions // count, known)
            chosen = (ir.If(here, tail, chosen),) if n else tail
        return (ir.If(guard.is_full, self.choose(full, rest, versions, domain), chosen),)

    def find_guards(self, body: ir.Body, tile: tuple[ir.For, ...]) -> list[TileGuard]:
        """The guards below, with the tile loops between here and them."""
        found: list[TileGuard] = []
        for s in body:
            if isinstance(s, ir.For):
                found += self.within(s).find_guards(s.body, (*tile, s) if s.kind in TILE_KINDS else tile)
            elif isinstance(s, ir.If):
                for cond in conjuncts(s.cond) if not s.orelse else ():
                    guard = self.as_guard(cond, tile)
                    if guard is not None:
                        found.append(guard)
                found += self.find_guards(s.then, tile) + self.find_guards(s.orelse, tile)
        return found

    def as_guard(self, cond: ir.Expr, tile: tuple[ir.For, ...]) -> TileGuard | None:
        """`cond` as a guard of the tile loops around it, if it is one."""
        key = (cond, *[f.var for f in tile])
        if key not in self.known:
            self.known[key] = self.derive_guard(cond, tile)
        return self.known[key]

    def derive_guard(self, cond: ir.Expr, tile: tuple[ir.For, ...]) -> TileGuard | None:
        bound = bound_of(cond)
        if bound is None or not tile or ir.has_load(bound.value):
            return None
        used = ir.free_vars(bound.value)
        relaxed: dict[ir.Var, ir.Expr | int] = {f.var: f.extent for f in tile if _among(f.var, used)}
        span = relax(bound.value, relaxed, self.domain)
        width = ir.as_int(span[1]) if span else None
        if span is None or width is None:
            return None
        first = simplify(span[0], self.domain)
        outer = ir.free_vars(first)
        depths = [n for n, f in enumerate(self.loops) if _among(f.var, outer)]
        if not depths or len(depths) != len(outer):
            return None
        return TileGuard(bound, first, width, depths[-1], any(SIZED.is_on(self.loops[n]) for n in depths))


def tail_starts(guard: TileGuard, domain: Domain) -> list[int] | None:
    """Where a tile that is not full may start, one start standing for all empty tiles. None if these are
    many."""
    if guard.sized:  # the remainder is one of many: tests
        return None
    before, behind = guard.limit - guard.width, guard.limit
    low, high = domain.bounds(guard.first)
    first = before + 1 if low is None else max(low, before + 1)
    last = behind - 1 if high is None else min(high, behind - 1)
    starts = domain.values(guard.first, first, last)
    if len(starts) > MOST_TAILS:
        return None
    least = guard.bound.is_least
    empty = (low is None or low <= before) if least else (high is None or high >= behind)
    return [*starts, guard.extremes[1]] if empty else [*starts]


class _AssumeStart(ir.StmtRewriter):
    """Knows where the tile of a guard starts."""

    def __init__(self, where: _Versions, guard: TileGuard, start: int) -> None:
        self.where, self.known, self.start = where, guard, start
        self.tile: tuple[ir.For, ...] = ()

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            outer_where, outer_tile = self.where, self.tile
            self.where = outer_where.within(s)
            if s.kind in TILE_KINDS:
                self.tile = (*self.tile, s)
            body = self.body(s.body)
            self.where, self.tile = outer_where, outer_tile
            return ir.replace_fields(s, body=body) if body else ()
        if isinstance(s, ir.If) and not s.orelse:
            cond = ir.all_of([self.rewrite(c) for c in conjuncts(s.cond)])
            then = self.body(s.then)
            return guard_body(cond, then) if then else ()
        return super().stmt(s)

    def rewrite(self, cond: ir.Expr) -> ir.Expr:
        guard = self.where.as_guard(cond, self.tile)
        if guard is None or not guard.is_same(self.known):
            return cond
        if self.start in guard.extremes:
            return ir.const(self.start == guard.extremes[0], "bool")
        within = ir.binary("-", guard.bound.value, guard.first)
        known = ir.binary(">=" if guard.bound.is_least else "<", within, ir.const(guard.limit - self.start))
        return simplify(known, self.where.domain)


def _among(var: ir.Var, variables: list[ir.Var]) -> bool:
    return any(v is var for v in variables)
