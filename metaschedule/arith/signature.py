"""What a block reads and writes, from its body.

Read `block_signature` first. Loops inside the body are relaxed; nested blocks are read through
their bindings. Regions are compared across the program, so they never mention a loaded value,
which may change in between: such a dimension is the whole of the buffer, and so is anything
bounded by a loop whose extent is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .. import ir
from .domain import Domain
from .prove import negation
from .region import access_region, contains, union


class TouchedRegion(NamedTuple):
    region: ir.Region
    writes: bool


class BlockPlace(NamedTuple):
    """Where in the block we are."""

    domain: Domain
    loops: dict[ir.Var, ir.Expr]  # inside the block, outermost first
    values: Mapping[ir.Var, ir.Expr]  # of the iteration variables of nested blocks

    def assume(self, condition: ir.Expr, truth: bool = True) -> BlockPlace:
        """Where a condition is known. One that loads may be overtaken by a store: not used."""
        if ir.has_load(condition):
            return self
        condition = ir.substitute(condition, self.values)
        fact = condition if truth else negation(condition)
        return self._replace(domain=self.domain.with_fact(fact))


def block_signature(block: ir.Block) -> tuple[tuple[ir.Region, ...], tuple[ir.Region, ...]]:
    """(reads, writes) in terms of the block's iteration variables: one region per buffer, in order
    of first access. Buffers that live inside the block are left out, and so is a reduction's
    reading of its own result."""
    domain = Domain.keeping_names({it.var: it.extent for it in block.iters if not ir.has_load(it.extent)})
    collector = Collector(domain, {it.var for it in block.iters})
    accesses = collector.block(block, BlockPlace(domain, {}, {}), closed=True)
    reads: dict[ir.Buffer, list[ir.Region]] = {}
    writes: dict[ir.Buffer, list[ir.Region]] = {}
    for region, is_write in accesses:
        if region.buffer not in collector.inner:
            (writes if is_write else reads).setdefault(region.buffer, []).append(region)
    return (
        tuple([union(regions, domain) for regions in reads.values()]),
        tuple([union(regions, domain) for regions in writes.values()]),
    )


class Collector:
    def __init__(self, domain: Domain, iters: set[ir.Var]) -> None:
        self.domain = domain  # of the block's own iterators
        self.iters = iters
        self.inner: set[ir.Buffer] = set()  # buffers allocated in the block
        self.unknown: set[ir.Var] = set()  # stand for extents that are loaded

    def block(self, block: ir.Block, place: BlockPlace, closed: bool) -> list[TouchedRegion]:
        """The accesses of a block. `closed`: one run of what we look at has all its reduction."""
        self.inner.update(block.allocs)
        found = self.body(block.init, place) + self.body(block.body, place)
        if not (block.init and closed):
            return found
        written: dict[ir.Buffer, list[ir.Region]] = {}
        for region, is_write in found:
            if is_write:
                written.setdefault(region.buffer, []).append(region)
        own = {b: union(regions, place.domain) for b, regions in written.items()}
        return [
            access
            for access in found
            if access.writes
            or access.region.buffer not in own
            or not contains(own[access.region.buffer], access.region, place.domain)
        ]

    def body(self, body: ir.Body, place: BlockPlace) -> list[TouchedRegion]:
        return [access for s in body for access in self.stmt(s, place)]

    def stmt(self, s: ir.Stmt, place: BlockPlace) -> list[TouchedRegion]:
        if isinstance(s, ir.Store):
            return self.exprs((*s.indices, s.value), place) + [self.access(s, place, True)]
        if isinstance(s, ir.TupleStore):
            found = [a for x in s.stores for a in self.exprs((*x.indices, x.value), place)]
            return found + [self.access(x, place, True) for x in s.stores]
        if isinstance(s, ir.For):
            return self.expr(s.extent, place) + self.body(s.body, self.enter(s, place))
        if isinstance(s, ir.If):
            found = self.expr(s.cond, place) + self.body(s.then, place.assume(s.cond))
            return found + self.body(s.orelse, place.assume(s.cond, False))
        if isinstance(s, ir.While):
            return self.expr(s.cond, place) + self.body(s.body, place)
        if isinstance(s, ir.Assert):
            return self.expr(s.cond, place)
        if isinstance(s, ir.Block):
            return self.collect_nested(s, place)
        raise TypeError(f"unknown statement {type(s).__name__}")

    def enter(self, loop: ir.For, place: BlockPlace) -> BlockPlace:
        extent = ir.substitute(loop.extent, place.values)
        if ir.has_load(extent):
            extent = ir.Var("unknown")
            self.unknown.add(extent)
        domain = place.domain.with_loop(loop.var, extent)
        return BlockPlace(domain, {**place.loops, loop.var: extent}, place.values)

    def collect_nested(self, block: ir.Block, place: BlockPlace) -> list[TouchedRegion]:
        found = self.exprs((*block.bindings, *block.predicate), place)
        for condition in block.predicate:
            place = place.assume(condition)
        bound = {
            it.var: ir.substitute(binding, place.values)
            for it, binding in zip(block.iters, block.bindings, strict=True)
        }
        # If a reduction goes on over several runs of the outer block, later ones read its result.
        closed = not any(
            v in self.iters for it in block.iters if it.kind == "reduce" for v in ir.free_vars(bound[it.var])
        )
        place = place._replace(values={**place.values, **bound})
        return found + self.block(block, place, closed)

    def exprs(self, items: tuple[ir.Expr, ...], place: BlockPlace) -> list[TouchedRegion]:
        return [access for e in items for access in self.expr(e, place)]

    def expr(self, e: ir.Expr, place: BlockPlace) -> list[TouchedRegion]:
        """The loads in an expression, in order of evaluation."""
        if not ir.has_load(e):
            return []
        if isinstance(e, ir.Select):
            found = self.expr(e.cond, place) + self.expr(e.a, place.assume(e.cond))
            return found + self.expr(e.b, place.assume(e.cond, False))
        if isinstance(e, ir.Binary) and e.op in ("and", "or"):
            rest = place.assume(e.a, e.op == "and") if ir.has_load(e.b) else place
            return self.expr(e.a, place) + self.expr(e.b, rest)
        found = self.exprs(ir.operands(e), place)
        if isinstance(e, ir.Load):
            found.append(self.access(e, place, False))
        return found

    def access(self, at: ir.Load | ir.Store, place: BlockPlace, is_write: bool) -> TouchedRegion:
        indices = [ir.substitute(index, place.values) for index in at.indices]
        region = access_region(at.buffer, indices, place.loops, place.domain)
        ranges: list[tuple[ir.Expr, ir.Expr]] = []
        for (start, count), size in zip(region.ranges, at.buffer.shape):
            fine = self.is_stable(start) and self.is_stable(count)
            ranges.append((start, count) if fine else (ir.as_expr(0), ir.as_expr(size)))
        return TouchedRegion(ir.Region(at.buffer, tuple(ranges)), is_write)

    def is_stable(self, e: ir.Expr) -> bool:
        """Whether e has the same value wherever it is evaluated, and has one: an access under a guard
        may divide by what is zero where the guard fails."""
        for x in ir.subexpressions(e):
            if isinstance(x, ir.Load) or (isinstance(x, ir.Var) and x in self.unknown):
                return False
            if (
                isinstance(x, ir.Binary)
                and x.op in ("//", "%")
                and not self.domain.prove(ir.binary("!=", x.b, 0))
            ):
                return False
        return True
