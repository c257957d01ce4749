"""`Candidate`: a schedule that may be tried, and what makes it the same as another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..database.record import split
from ..ir import structural_hash
from ..schedule import Schedule, Trace


@dataclass(frozen=True, eq=False)
class Candidate:
    """`sketch` and `decisions` are its trace as records keep it, so that one process knows what another
    tried; `program_hash` finds different traces that make the same program."""

    schedule: Schedule
    trace: Trace
    sketch: str
    decisions: str

    @staticmethod
    def of(schedule: Schedule, workload: str) -> Candidate:
        """`workload` is the structural hash of the program that was scheduled: hashing takes longer than
        the rest."""
        trace = schedule.trace
        trace = Trace(trace.instructions, trace.program, workload)
        return Candidate(schedule, trace, *split(trace))

    @property
    def key(self) -> tuple[str, str]:
        return self.sketch, self.decisions

    @cached_property
    def program_hash(self) -> str:
        return structural_hash(self.schedule.program)
