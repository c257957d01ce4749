"""The sampling primitives as methods of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from .distribution import Categorical, PartitionedTile, PerfectTile, Tile
from .primitive.base import ExprRV, LoopRV, Steps


class SamplingSteps(Steps):
    def sample_categorical(
        self, candidates: Sequence[int], probabilities: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of some numbers; the decision is the position in the list."""
        return self.sample(Categorical(tuple(candidates), tuple(probabilities)), decision)[0]

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 0, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """Factors whose product is the extent of a loop."""
        return list(self.sample(PerfectTile(loop, n, max_innermost_factor), decision))

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        max_innermost_factor: int = 0,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Factors whose product is the extent, those from `partition_pos` on a multiple of a number."""
        tile = PartitionedTile(loop, n, max_innermost_factor, partition_pos, innerpart_factor)
        return list(self.sample(tile, decision))

    def sample_tile(
        self,
        loop: LoopRV,
        n: int,
        max_innermost_factor: int = 0,
        innermost_multiple: int = 1,
        max_waste: float = 0.25,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Factors that need not divide the extent of a loop, the first rounded up; see `Tile`."""
        tile = Tile(loop, n, max_innermost_factor, innermost_multiple, max_waste)
        return list(self.sample(tile, decision))
