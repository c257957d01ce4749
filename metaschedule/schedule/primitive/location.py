"""Primitives for where blocks are computed: compute_at, reverse_compute_at."""

from __future__ import annotations

from typing import Any

from ..analysis.accesses import refresh_scopes
from ..analysis.moving import Move, carry_out
from ..analysis.mirroring import plan_reverse_compute_at
from ..analysis.placement import plan_compute_at
from ..state import ROOT, State
from .base import BlockRV, LoopRV, Primitive, Steps, primitive


@primitive("compute_at")
class ComputeAt(Primitive):
    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        return plan_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        if plan is not None:
            carry_out(s, plan)
            if s.scope(plan.loop) is not ROOT:
                refresh_scopes(s, plan.loop)
        return ()


@primitive("reverse_compute_at")
class ReverseComputeAt(Primitive):
    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        return plan_reverse_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        if plan is not None:
            carry_out(s, plan)
            if s.scope(plan.loop) is not ROOT:
                refresh_scopes(s, plan.loop)
        return ()


class LocationSteps(Steps):
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Compute a producer where it is used; see `ComputeAt`."""
        self.run(ComputeAt(block, loop, preserve_unit_loops))

    def reverse_compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = True) -> None:
        """Run a consumer where it is produced; see `ReverseComputeAt`."""
        self.run(ReverseComputeAt(block, loop, preserve_unit_loops))
