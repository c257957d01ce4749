"""`Run`: steps of tasks until the budget is spent, then their leaders once more."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..database import DatabaseError
from ..measure import MeasureError
from .progress import Listener, Progress
from .scheduler import Scheduler
from .task import Task

log = logging.getLogger("metaschedule")
INTERRUPTED = "interrupted"  # why a run stopped, after Ctrl-C
STEPS = 4  # at least, if a step of 4 candidates is not too small
LARGEST_STEP = 16  # candidates: what is learnt from them makes the next ones better
PERIOD = 64  # trials, of which
DESCENT = 0.25  # are neighbours of the best; of the whole budget too, at its end
PATIENCE = 256  # trials of a program without progress
PROGRESS = 0.99  # of the latency before, or less
CONFIRMATIONS = 40  # runs of candidates, in which the leaders of a program are confirmed
OPEN = 4  # programs that have measuring processes at a time


@dataclass
class Budget:
    """`trials` of all programs and `minutes`; None: any number."""

    trials: int | None
    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def left(self, done: int) -> float:
        """The share that is left after so many trials."""
        if self.trials == 0:
            return 0.0  # of no program
        trials = 1.0 if self.trials is None else 1 - done / self.trials
        minutes = 1.0 if self.minutes is None else 1 - self.elapsed / (60 * self.minutes)
        return max(0.0, min(trials, minutes))

    def descends(self, done: int, trials: int) -> bool:
        """Whether it is time to descend, after so many trials in all and so many of the program.

        A long run begins as a short one does, so that more trials are never worse.
        """
        return self.left(done) <= DESCENT or trials % PERIOD >= (1 - DESCENT) * PERIOD

    def step(self, done: int, descends: bool) -> int:
        """How many candidates make the next step: fewer around the best, where each may change it."""
        if self.trials is None:
            return LARGEST_STEP
        size = min(LARGEST_STEP, max(4, self.trials // STEPS))
        return min(size // 2 if descends else size, self.trials - done)


class Run:
    def __init__(
        self, tasks: Sequence[Task], budget: Budget, scheduler: Scheduler, listener: Listener | None
    ) -> None:
        self.tasks, self.budget, self.scheduler, self.listener = tasks, budget, scheduler, listener
        self.open: list[Task] = []  # the last used one at the end
        self.todo = budget.left(self.trials)  # the share of the budget that earlier runs have left
        self.searched = 0.0  # seconds, when all trials are done
        self.confirmed = 0  # tasks, and
        self.confirming_share = 0.0  # of the next

    @property
    def trials(self) -> int:
        return sum(task.trials for task in self.tasks)

    def tune(self) -> None:
        """Whatever ends it, what the tasks know remains good."""
        try:
            while self.budget.left(self.trials) and (going := [t for t in self.tasks if not t.stopped]):
                self.attempt(self.advance, going[self.scheduler(going)])
            self.searched = self.budget.elapsed
            for task in self.tasks:
                self.attempt(self.confirm, task)
        except KeyboardInterrupt:
            self.stop(INTERRUPTED)
        except DatabaseError as error:
            log.error("%s", error)
            self.stop(str(error))
        finally:
            for task in self.open:
                task.close()

    def attempt(self, action: Callable[[Task], None], task: Task) -> None:
        """A program that cannot be measured does not stop the others. Processes of one that has not been
        used for long make room for those of this one."""
        self.open = [t for t in self.open if t is not task] + [task]
        task.listener = partial(self.pass_on, task)
        while len(self.open) > OPEN:
            self.open.pop(0).close()
        try:
            action(task)
        except MeasureError as error:
            if len(self.tasks) == 1:
                raise
            log.error("%s", error)
            task.stopped = str(error)

    def advance(self, task: Task) -> None:
        """One step of a task."""
        descends = self.budget.descends(self.trials, task.trials)
        candidates = task.propose(self.budget.step(self.trials, descends), descends)
        if not candidates:
            task.stopped = task.history.exhausted
            return
        self.tell("proposed", task, len(candidates))
        task.measure(candidates)
        if lost_patience(task.course):
            task.stopped = f"no progress in {PATIENCE} trials"
        self.tell("measured", task, len(candidates))

    def confirm(self, task: Task) -> None:
        self.pass_on(task, "confirm", 0, 1, "")
        task.confirm()
        self.confirmed, self.confirming_share = self.confirmed + 1, 0.0
        self.tell("confirmed", task, 0)

    def stop(self, why: str) -> None:
        for task in self.tasks:
            task.stopped = task.stopped or why
            self.tell("stopped", task, 0)

    def left(self) -> float | None:
        """Seconds until the end, as far as can be told: what the other trials take if they are like those so
        far, and what confirming the leaders does."""
        elapsed, share = self.budget.elapsed, self.budget.left(self.trials)
        if self.searched:
            done = self.confirmed + self.confirming_share
            each = (elapsed - self.searched) / done if done else self.confirming()
            return each * (len(self.tasks) - done)
        if self.todo <= share:
            return None
        return elapsed * share / (self.todo - share) + self.confirming() * len(self.tasks)

    def confirming(self) -> float:
        """Seconds that confirming the leaders of a task takes: some rounds of some candidates."""
        run = sum(task.seconds["run"] for task in self.tasks)
        return CONFIRMATIONS * run / max(1, self.trials)

    def pass_on(self, task: Task, event: str, done: int, of: int, detail: str) -> None:
        if event == "confirm":
            self.confirming_share = done / of
        self.tell(event, task, 0, done, of, detail)

    def tell(
        self, event: str, task: Task, candidates: int, done: int = 0, of: int = 0, detail: str = ""
    ) -> None:
        if not of:
            log.info("%s: %s %d, best %s", task.program.name, event, candidates, task.history.best)
        if self.listener is not None:
            self.listener(
                Progress(
                    event,
                    task.program.name,
                    self.tasks.index(task),
                    len(self.tasks),
                    candidates,
                    self.trials,
                    self.budget.trials,
                    self.budget.elapsed,
                    self.budget.minutes,
                    task.history.best,
                    task.untuned_latency,
                    task.outcomes,
                    getattr(task.history.model, "accuracy", None),
                    dict(task.seconds),
                    done,
                    of,
                    detail,
                    self.left(),
                )
            )


def lost_patience(course: Sequence[tuple[int, float]]) -> bool:
    """Whether the last trials have brought no progress."""
    trials, best = course[-1] if course else (0, 0.0)
    before = [latency for when, latency in course if when <= trials - PATIENCE]
    return bool(before) and best > PROGRESS * before[-1]
