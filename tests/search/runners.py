"""Measurers that measure nothing, for tests that need the same figures again."""

from __future__ import annotations

from collections.abc import Sequence

import metaschedule as ms
from metaschedule.cost import Analytical
from metaschedule.database import Record
from metaschedule.ir import Program
from metaschedule.measure import Outcome
from metaschedule.target import Target, resolve


class Synthetic:
    """As if on a machine that is not as the cost model of the search thinks: smaller caches, one core."""

    def __init__(self, program: Program, target: Target) -> None:
        self.machine = Analytical(resolve("x86-64-v3,cores=1"))
        self.measured = 0

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        self.measured += len(candidates)
        return [Outcome("ok", float(s), (float(s),)) for s in self.machine.predict(candidates)]

    def confirm(self, candidates: Sequence[Program]) -> list[Outcome]:
        return self.measure(candidates)

    def close(self) -> None:
        """Nothing is open."""


class Recorded:
    """What was recorded of a program, as if measured now. What was not recorded is a `KeyError`."""

    def __init__(self, program: Program, records: Sequence[Record]) -> None:
        self.outcomes: dict[str, Outcome] = {}
        for record in records:
            assert record.trace is not None
            key = ms.structural_hash(record.trace.apply(program).program)
            self.outcomes[key] = Outcome(
                record.outcome, record.latency, record.times, record.detail, disturbed=record.disturbed
            )

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        return [self.outcomes[ms.structural_hash(candidate)] for candidate in candidates]

    def confirm(self, candidates: Sequence[Program]) -> list[Outcome]:
        return self.measure(candidates)

    def close(self) -> None:
        """Nothing is open."""
