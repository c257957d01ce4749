"""`Access`: a region of a buffer that the instances of a block read or write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .. import ir
from .form import Iteration, iteration


@dataclass(slots=True, eq=False)
class Access:
    """A region over the iterators of a block, which are bound to `iters`."""

    block: ir.Block
    region: ir.Region
    is_write: bool
    iters: Iteration

    @property
    def buffer(self) -> ir.Buffer:
        return self.region.buffer

    @property
    def guards(self) -> tuple[ir.Expr, ...]:
        """Where one of these does not hold, nothing is touched."""
        return self.block.predicate


def accesses_of(block: ir.Block) -> tuple[Access, ...]:
    """What a block reads, then what it writes, as its signature says."""
    iters = iteration(block)
    reads = [Access(block, r, False, iters) for r in block.reads]
    return (*reads, *[Access(block, r, True, iters) for r in shared_regions(block.reads, block.writes)])


@lru_cache(maxsize=8192)
def shared_regions(reads: tuple[ir.Region, ...], writes: tuple[ir.Region, ...]) -> tuple[ir.Region, ...]:
    """What is written; as the very region that is read, where a reduction reads what it writes."""
    return tuple([next((r for r in reads if is_same_region(r, w)), w) for w in writes])


def is_same_region(a: ir.Region, b: ir.Region) -> bool:
    return a.buffer is b.buffer and all(map(ir.same_exprs, a.ranges, b.ranges))


def make_access(block: ir.Block, region: ir.Region, is_write: bool) -> Access:
    """An access of a block that need not be in its signature."""
    return Access(block, region, is_write, iteration(block))
