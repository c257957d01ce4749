"""`Workers`: where candidates are built and run. Who tunes does not know whether that is here or elsewhere.

`LocalWorkers` are processes of this machine; `cluster.RayWorkers` those of a Ray cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..target import Target
from .frames import Frame
from .outcome import Outcome
from .pool import Job
from .workload import Built, MeasuredWorkload

Listener = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class WorkerNode:
    """A machine that runs candidates: what it is (`target` as detected there, `version` of the package and
    `peak` in GFLOPS, None if it was not measured), and what it does now.

    `rate` are trials a minute; `disturbed` is the share of the last trials that could not be measured."""

    name: str
    target: Target
    version: str
    peak: float | None = None
    state: str = "idle"
    program: str = ""
    trials: int = 0
    rate: float = 0.0
    disturbed: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """For who is to see it elsewhere."""
        return {
            "name": self.name, "kind": f"{self.target.cpu}, {self.target.cores} cores", "state": self.state,
            "program": self.program, "trials": self.trials, "rate": self.rate, "disturbed": self.disturbed,
        }  # fmt: skip


class CandidateRunner(Protocol):
    """A workload, and whoever runs its candidates."""

    constraint: str  # what to know about the machine, if it is less than was asked for

    def establish(self, reference: Built | Outcome) -> None:
        """Tell what results are compared with: the program as written, built, or why it could not be."""
        ...

    def run(self, entries: Sequence[Built | Outcome], best: float | None = None) -> list[Outcome]:
        """What becomes of each; see `Measurer.measure`."""
        ...

    def confirm(self, entries: Sequence[Built | Outcome]) -> list[Outcome]:
        """See `Measurer.confirm`."""
        ...

    def listen(self, listener: Listener) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Workers(Protocol):
    """Builds batches, runs batches, says what the machines are."""

    @property
    def slots(self) -> int:
        """Batches at a time that keep all of them busy."""
        ...

    def nodes(self) -> list[WorkerNode]:
        """The machines that run candidates."""
        ...

    def resolve(self, target: Target | str) -> Target:
        """The target that a name stands for; "native" is the machine that runs candidates."""
        ...

    def computing(self) -> AbstractContextManager[object]:
        """To be entered by who computes in this process, so that nothing is timed beside it."""
        ...

    def build(self, jobs: Iterable[Job], memory: int) -> Iterator[tuple[Job, Frame]]:
        """Every job (a request of `build`) with its answer, as they come; `memory` is what each may take."""
        ...

    def open(self, workload: MeasuredWorkload) -> CandidateRunner: ...
    def close(self) -> None: ...
