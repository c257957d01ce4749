"""Primitives for where blocks are computed: compute_at, reverse_compute_at."""

from __future__ import annotations

from typing import Any

from ..analysis.compute_at import plan_compute_at
from ..analysis.moving import Move, carry_out
from ..analysis.reverse_compute_at import plan_reverse_compute_at
from ..analysis.signature import refresh_scopes
from ..state import ROOT, State
from .base import BlockRV, LoopRV, Primitive, Steps, primitive
from .compute_location import STAY, ComputeLocation


@primitive("compute_at")
class ComputeAt(Primitive):
    """Compute a producer where it is used: each iteration of a loop computes what the blocks below read.

    rewrite:   for i: P[i] = ...
               for j_0: for j_1: C[j_0 * 4 + j_1] = ... P[j_0 * 4 + j_1] ...
          -->  for j_0:
                   for ax0 in range(4): if j_0 * 4 + ax0 < n: P[j_0 * 4 + ax0] = ...
                   for j_1: C[j_0 * 4 + j_1] = ... P[j_0 * 4 + j_1] ...
    requires:  1. the block is complete or a reduction: it has iterators of constant extents, no block inside
                  and no assertion; no two instances store to one element, or read what others store
               2. it is the only one that stores to its buffers, and none of them is an output
               3. it is not below the loop already, in the same block as the loop, before it, and under no
                  condition of its own; no loop around is vectorized
               4. all that read what it stores are in blocks below the loop, and there is one
               5. what it reads is final: written before only, whatever loops around both do
               6. a reduction is over loops of its own, not around both places; it commutes or keeps its order
               7. its predicate is one of its iterators; it moves along
    The new loops, one for each iterator in order, have constant extents; a test keeps them within the domain
    where that is not certain. The old loops go if nothing else is in them. With `preserve_unit_loops=False`
    no loop of one iteration is made (the structure then depends on the extents). A location that was drawn
    (`sample_compute_location`) may say that the block stays where it is.
    """

    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        if s.value(self.loop) is STAY:
            return None
        return plan_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        move(s, plan)
        return ()


@primitive("reverse_compute_at")
class ReverseComputeAt(Primitive):
    """Run a consumer where its producer is computed: each iteration of a loop consumes what it has produced.

    rewrite:   for i_0: for i_1: if i_0 * 4 + i_1 < n: P[i_0 * 4 + i_1] = ...
               for j: C[j] = ... P[j] ...
          -->  for i_0:
                   for i_1: if i_0 * 4 + i_1 < n: P[i_0 * 4 + i_1] = ...
                   for ax0 in range(4): if i_0 * 4 + ax0 < n: C[i_0 * 4 + ax0] = ... P[i_0 * 4 + ax0] ...
    requires:  1. the block is complete or a reduction (as for compute_at), the only one that stores to its
                  buffers
               2. it is not below the loop already, in the same block as the loop, after it, and under no
                  condition of its own; no loop around is vectorized
               3. what reads its results comes after it, and after its reduction
               4. a block below the loop stores what it reads, finishes in one iteration of the loop (the loop
                  and those around are none of its reduction loops) and never stores other values again
               5. where an iteration stores only a part of a dimension, the block reads one element along it;
                  such elements tell its iterators
               6. over all iterations its producer stores everything that the block reads
               7. all other blocks that it reads from have stored by then what it reads
               8. terms of a reduction come once each, the first one first
               9. iterations of a parallel loop do not store the same elements
    The new loops are the mirror image of the producer's, with the tests of its tiles: one loop per
    iterator, or one for each of the producer's loops where the elements of an iteration are not contiguous.
    """

    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        if s.value(self.loop) is STAY:
            return None
        return plan_reverse_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        move(s, plan)
        return ()


def move(s: State, plan: Move | None) -> None:
    if plan is not None:
        carry_out(s, plan)
        if s.scope(plan.loop) is not ROOT:
            refresh_scopes(s, plan.loop)


class LocationSteps(Steps):
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Compute a producer where it is used; see `ComputeAt`."""
        self.run(ComputeAt(block, loop, preserve_unit_loops))

    def reverse_compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Run a consumer where it is produced; see `ReverseComputeAt`."""
        self.run(ReverseComputeAt(block, loop, preserve_unit_loops))

    def sample_compute_location(
        self, block: BlockRV, outermost: int = 0, decision: int | None = None
    ) -> LoopRV:
        """A loop for compute_at, drawn from those where it is legal; see `ComputeLocation`."""
        return self.sample(ComputeLocation(block, outermost), decision)[0]
