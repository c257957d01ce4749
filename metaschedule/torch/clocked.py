"""`Clocked`: a plan carried out with a clock after every kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from .plan import EagerStep, KernelStep, Plan
from .runner import Kernels, KernelSequence, Runner


class Clocked(Runner):
    """Keeps the times of the steps of the last call: of kernels natively, in one sequence, as they run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._taken: dict[int, float] = {}

    def _sequence(self, steps: Sequence[KernelStep]) -> KernelSequence:
        return KernelSequence([self._call(step) for step in steps], self.plan.bases, clocked=True)

    def _in_turn(self) -> Iterator[Kernels | EagerStep]:
        for part in self._parts:
            start = time.perf_counter()
            yield part
            if isinstance(part, EagerStep):
                self._taken[id(part)] = time.perf_counter() - start

    @property
    def seconds(self) -> list[float]:
        """Of each step of the plan."""
        found: list[float] = []
        for part in self._parts:
            found += part.seconds if isinstance(part, KernelSequence) else [self._taken.get(id(part), 0.0)]
        return found
