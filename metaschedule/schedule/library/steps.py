"""The library as methods of `Schedule`. Each is a function over primitives: all of its steps are carried out
and recorded, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ..primitive.base import BlockRV, LoopRV, Steps
from .matrix_product import matrix_product
from .winograd import winograd

if TYPE_CHECKING:
    from ..schedule import Schedule


class LibrarySteps(Steps):
    def matrix_product(self, block: BlockRV) -> None:
        """Lay a sum of products out as a batch of matrix products; see `library/matrix_product.py`."""
        matrix_product(cast("Schedule", self), block)

    def winograd(
        self, block: BlockRV, loop: LoopRV | Sequence[LoopRV], tile: int | Sequence[int]
    ) -> tuple[BlockRV, BlockRV, BlockRV]:
        """Compute tiles of a convolution along loops by minimal filtering; gives the blocks that transform
        the data and the weights, and that of the products. The block is then what transforms these back.
        See `library/winograd.py`.

        >>> from metaschedule import Schedule, workloads
        >>> sch = Schedule(workloads.create("C1D"))
        >>> conv = sch.get_block("conv")
        >>> data, weights, products = sch.winograd(conv, sch.get_loops(conv)[1], 4)
        >>> sch.get(products).name
        'conv_products'
        """
        loops = [loop] if isinstance(loop, LoopRV) else list(loop)
        tiles = [tile] * len(loops) if isinstance(tile, int) else list(tile)
        return winograd(cast("Schedule", self), block, loops, tiles)
