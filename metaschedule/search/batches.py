"""`Batches`: what is measured meanwhile. With one slot nothing is: it is measured when it is waited for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..measure import Outcome
from .candidate import Candidate
from .task import Task

WAKE_UP = 0.5  # seconds: Ctrl-C reaches a thread that waits, but not at once


@dataclass
class Batch:
    """Candidates of a task that are measured by calling `measure`, for the first time or as leaders: their
    `outcomes`, or the `error` because of which there are none."""

    task: Task
    candidates: Sequence[Candidate]
    measure: Callable[[], list[Outcome]]
    outcomes: list[Outcome] = field(default_factory=list)
    error: Exception | None = None

    def run(self) -> None:
        try:
            self.outcomes = self.measure()
        except Exception as error:
            self.error = error


class Batches:
    """Up to `slots` at a time, each in a thread of its own."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self._done: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self.flying: list[Batch] = []

    @property
    def has_room(self) -> bool:
        return len(self.flying) < self.slots

    @property
    def tasks(self) -> list[Task]:
        return [batch.task for batch in self.flying]

    @property
    def trials(self) -> int:
        return sum(len(batch.candidates) for batch in self.flying)

    def launch(self, batch: Batch) -> None:
        self.flying.append(batch)
        if self.slots > 1:
            threading.Thread(target=self._fly, args=(batch,), daemon=True).start()

    def land(self) -> Batch:
        """One that is done, after waiting for it."""
        if self.slots == 1:
            batch = self.flying[0]
            batch.run()  # here, where Ctrl-C ends it
        else:
            batch = self._wait()
        self.flying.remove(batch)
        return batch

    def _fly(self, batch: Batch) -> None:
        batch.run()
        self._done.put(batch)

    def _wait(self) -> Batch:
        while True:
            try:
                return self._done.get(timeout=WAKE_UP)
            except queue.Empty:
                pass
