"""Steps for where blocks are computed: compute_at, reverse_compute_at, sample_compute_location."""

from __future__ import annotations

from .base import BlockRV, LoopRV, Steps
from .compute_at import ComputeAt
from .compute_location import ComputeLocation
from .reverse_compute_at import ReverseComputeAt


class LocationSteps(Steps):
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Compute a producer where it is used; see `ComputeAt`."""
        self.run(ComputeAt(block, loop, preserve_unit_loops))

    def reverse_compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Run a consumer where it is produced; see `ReverseComputeAt`."""
        self.run(ReverseComputeAt(block, loop, preserve_unit_loops))

    def sample_compute_location(
        self, block: BlockRV, outermost: int = 0, decision: int | None = None, moves: bool = False
    ) -> LoopRV:
        """A loop for compute_at, drawn from those where it is legal; see `ComputeLocation`."""
        return self.sample(ComputeLocation(block, outermost, moves), decision)[0]
