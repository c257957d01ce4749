"""`Access`: a region of a buffer that the instances of a block read or write."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..ir import Block, Buffer, Expr, Region
from .form import Iteration, iteration


class Access(NamedTuple):
    """A region over the iterators of a block, which are bound to `iters`."""

    block: Block
    region: Region
    is_write: bool
    iters: Iteration

    @property
    def buffer(self) -> Buffer:
        return self.region.buffer

    @property
    def guards(self) -> tuple[Expr, ...]:
        """Where one of these does not hold, nothing is touched."""
        return self.block.predicate


@lru_cache(maxsize=1024)  # records do not change, and every step asks about all below a loop
def accesses_of(block: Block) -> tuple[Access, ...]:
    """What a block reads, then what it writes, as its signature says."""
    iters = iteration(block)
    reads = [Access(block, r, False, iters) for r in block.reads]
    return (*reads, *[Access(block, r, True, iters) for r in block.writes])


def accessed(block: Block, region: Region, is_write: bool) -> Access:
    """An access of a block that need not be in its signature."""
    return Access(block, region, is_write, iteration(block))
