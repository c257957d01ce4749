"""Primitives for blocks made of loops and replaced by intrinsics: blockize in `outer_block.py`, tensorize in
`tensorize.py`."""

from __future__ import annotations

from .base import BlockRV, LoopRV, Steps
from .outer_block import Blockize
from .tensorize import Tensorize


class BlockizeSteps(Steps):
    def blockize(self, loop: LoopRV) -> BlockRV:
        """Make a block of a loop and what is in it; see `Blockize`."""
        return self.run(Blockize(loop))[0]

    def tensorize(self, target: BlockRV | LoopRV, intrinsic: str) -> None:
        """Replace a block, or a loop made a block, by a registered intrinsic; see `Tensorize`."""
        self.run(Tensorize(target, intrinsic))
