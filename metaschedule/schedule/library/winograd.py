"""winograd: a convolution by minimal filtering along one dimension, or along several.

    for i, j, k, l: C[i, j] += A[i + k, j + l] * W[k, l]                              (3 x 3 taps, tiles of 2)
    -->  A_points:   what 4 x 3 elements of A are at 4 points, along j      then A_points_points, along i
         W_points:   3 x 3 taps at 4 points, along l                        then W_points_points, along k
         for a, b, i_tile, j_tile: C_products_products = A_points_points * W_points_points
         C_products: results of 2 tiles out of 4 products, along i          then C, along j

The products of a convolution that was filtered along one dimension are a convolution along the others again,
so several dimensions are the primitive several times: 16 products for 4 results instead of 36.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from ...errors import ScheduleError
from ...ir import Block
from ..primitive.base import BlockRV, LoopRV
from ..primitive.winograd import Winograd

if TYPE_CHECKING:
    from ..schedule import Schedule


def winograd(
    sch: Schedule, block: BlockRV, loops: Sequence[LoopRV], tiles: Sequence[int]
) -> tuple[BlockRV, BlockRV, BlockRV]:
    """Filter along the loops, with tiles of so many results; gives the last block that transforms data, the
    last that transforms weights, and that of the products."""
    with sch.transaction(f"winograd(block={block}, loop={tuple(loops)}, tile={tuple(tiles)})"):
        if not loops or len(loops) != len(tiles):
            raise ScheduleError(f"there are {len(loops)} loops and {len(tiles)} sizes of tiles")
        node: Block = sch.get(block)
        own = {binding: n for n, binding in enumerate(node.bindings)}
        found = [own.get(sch.get(loop).var, len(own)) for loop in loops]
        if len(set(found)) != len(loops):
            raise ScheduleError(
                "the loops are not those of different iterators", marks={node.name: "this block"}
            )
        # The last dimension first: each step puts two iterators in the place of one, and those before stay.
        (_, loop, tile), *rest = sorted(
            zip(found, loops, tiles, strict=True), reverse=True, key=itemgetter(0)
        )
        data, weights, products = sch.run(Winograd(block, loop, tile))
        for position, _, tile in rest:
            loop = sch.get_loops(products)[position]
            data, weights, products = sch.run(Winograd(products, loop, tile))
    return data, weights, products
