"""Primitives that look: they change nothing and give handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ScheduleError
from ...ir import Block
from ..state import ROOT, Key, State
from .base import BlockRV, ExprRV, LoopRV, Primitive, Steps, primitive


class Query(Primitive):
    """What `check` finds are the results; nothing changes."""

    __slots__ = ()

    def apply(self, s: State, plan: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(plan)


@primitive("get_block")
class GetBlock(Query):
    """The block of a name.

    requires:  1. there is a block of that name
    A trace also keeps the block's place in the program (`index`), so that it replays on a program of the same
    structure whose blocks are called something else.
    """

    name: str
    index: int | None = None

    def check(self, s: State) -> list[str]:
        found = s.find_block(self.name)
        if found is None and self.index is not None:
            names = [k for k in s.nodes if isinstance(k, str)]
            found = names[self.index] if 0 <= self.index < len(names) else None
        if found is None:
            names = ", ".join(repr(k) for k in s.nodes if isinstance(k, str))
            raise ScheduleError(f"there is no block {self.name!r}", help=f"blocks here: {names}")
        return [found]


@primitive("get_loops")
class GetLoops(Query):
    """The loops around a block, outermost first, up to the block that it is in.

    requires:  1. there are `innermost` loops, if that is given: then only those are meant (a block that
                  moves to a drawn location has a fixed number of loops of its own)
    """

    block: BlockRV
    innermost: int = 0

    def check(self, s: State) -> list[Any]:
        loops = s.loops_around(s.block(self.block).name)
        if not 0 <= self.innermost <= len(loops):
            raise ScheduleError(f"there are {len(loops)} loops around the block, not {self.innermost}")
        return loops[-self.innermost :]


@primitive("get_extent")
class GetExtent(Query):
    """How many iterations a loop has, as a number to split another loop by.

    requires:  1. the extent is a constant
    """

    loop: LoopRV

    def check(self, s: State) -> list[int]:
        loop = s.loop(self.loop)
        extent = s.fixed_extent(loop.var)
        if extent is None:
            raise ScheduleError(
                f"the extent of the loop over {loop.var.name} is not a constant",
                marks={loop.var: "its extent is an expression"},
            )
        return [extent]


@primitive("get_child_blocks")
class GetChildBlocks(Query):
    """The blocks in the body of a block or loop, in program order; not the blocks inside those."""

    target: BlockRV | LoopRV

    def check(self, s: State) -> list[str]:
        key: Key = s.block(self.target).name if isinstance(self.target, BlockRV) else s.loop(self.target).var
        return s.blocks_below(key)


@primitive("get_producers")
class GetProducers(Query):
    """The blocks that write what a block reads, in program order."""

    block: BlockRV

    def check(self, s: State) -> list[str]:
        block = s.block(self.block)
        read = {r.buffer for r in block.reads}
        return [b.name for b in siblings(s, block) if any(w.buffer in read for w in b.writes)]


@primitive("get_consumers")
class GetConsumers(Query):
    """The blocks that read what a block writes, in program order."""

    block: BlockRV

    def check(self, s: State) -> list[str]:
        block = s.block(self.block)
        written = {r.buffer for r in block.writes}
        return [b.name for b in siblings(s, block) if any(r.buffer in written for r in b.reads)]


def siblings(s: State, block: Block) -> list[Block]:
    """The other blocks of the scope that a block is in, in program order."""
    names = s.blocks_below(s.scope(block.name) or ROOT)
    return [s.nodes[name] for name in names if name is not block.name]


class QuerySteps(Steps):
    def get_block(self, name: str) -> BlockRV:
        """The block of a name."""
        names = [k for k in self.state.nodes if isinstance(k, str)]
        return self.run(GetBlock(name, names.index(name) if name in names else None))[0]

    def get_loops(self, block: BlockRV, innermost: int = 0) -> list[LoopRV]:
        """The loops around a block, outermost first; or the `innermost` so many of them."""
        return list(self.run(GetLoops(block, innermost)))

    def get_extent(self, loop: LoopRV) -> ExprRV:
        """How many iterations a loop has; see `GetExtent`."""
        return self.run(GetExtent(loop))[0]

    def get_child_blocks(self, target: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks in the body of a block or loop."""
        return list(self.run(GetChildBlocks(target)))

    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that write what a block reads."""
        return list(self.run(GetProducers(block)))

    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that read what a block writes."""
        return list(self.run(GetConsumers(block)))
