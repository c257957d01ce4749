"""`Run`: steps of tasks until the budget is spent, then their leaders once more."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from ..database import DatabaseError
from ..measure import MeasureError, Workers, WorkersError
from .batches import Batch, Batches
from .candidate import Candidate
from .progress import Listener, Progress
from .scheduler import Scheduler, Tuned
from .task import LEADERS, Task

log = logging.getLogger("metaschedule")
INTERRUPTED = "interrupted"  # why a run stopped, after Ctrl-C
STEPS = 4  # at least, if a step of 4 candidates is not too small
LARGEST_STEP = 16  # candidates: what is learnt from them makes the next ones better
FIRST_STEP = 4  # candidates, of each program of a whole, if there is a time for it
MOST_RESERVED = 0.2  # of the time, for confirming
PERIOD = 64  # trials, of which
DESCENT = 0.25  # are neighbours of the best; of the whole budget too, at its end
PATIENCE = 256  # trials of a program without progress
PROGRESS = 0.99  # of the latency before, or less
CONFIRMATIONS = 40  # runs of candidates, in which the leaders of a program are confirmed
TELLING = 32  # trials, after which the course of a program says what is left; until then
UNKNOWN = 0.1  # of its latency is taken to be
OPEN = 4  # programs that have measuring processes at a time


@dataclass
class Budget:
    """`trials` of all programs and `minutes`; None: any number. `reserved` are the seconds that confirming
    the leaders is expected to take. With `enough` a run ends when no more than that share of the whole is
    left to win. Programs that have a whole (`is_shared`) are compared in it afterwards, so that their leaders
    are confirmed as far as there is time."""

    trials: int | None
    minutes: float | None
    began: float = field(default_factory=time.monotonic)
    reserved: float = 0.0
    enough: float | None = None
    is_shared: bool = False

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def share_left(self, done: int) -> float:
        """The share that is left after so many trials."""
        if self.trials == 0:
            return 0.0  # of no program
        trials = 1.0 if self.trials is None else 1 - done / self.trials
        minutes = 1.0
        if self.minutes is not None:
            seconds = 60 * self.minutes
            minutes = 1 - self.elapsed / (seconds - min(self.reserved, MOST_RESERVED * seconds))
        return max(0.0, min(trials, minutes))

    def descends(self, done: int, trials: int) -> bool:
        """Whether it is time to descend, after so many trials in all and so many of the program.

        A long run begins as a short one does, so that more trials are never worse.
        """
        return self.share_left(done) <= DESCENT or trials % PERIOD >= (1 - DESCENT) * PERIOD

    @property
    def leaders(self) -> int:
        """Of each program that are confirmed: fewer, if they are compared in a whole afterwards."""
        return LEADERS // 2 if self.is_shared and self.minutes is not None else LEADERS

    @property
    def is_late(self) -> bool:
        """Whether what programs have in common comes first now."""
        return self.is_shared and self.minutes is not None and self.elapsed > 60 * self.minutes

    def step(self, done: int, descends: bool, first: bool = False) -> int:
        """How many candidates make the next step: fewer around the best, where each may change it, and at
        first, where all programs of a whole are to have their turn."""
        if self.trials is None:
            return FIRST_STEP if first and self.is_shared else LARGEST_STEP // (2 if self.is_shared else 1)
        size = min(LARGEST_STEP, max(4, self.trials // STEPS))
        return min(size // 2 if descends else size, self.trials - done)


class Run:
    """`workers` are those that measure, if it is not this process: `slots` batches are then measured at a
    time, and search goes on beside them."""

    def __init__(
        self,
        tasks: Sequence[Task],
        budget: Budget,
        scheduler: Scheduler,
        listener: Listener | None,
        workers: Workers | None = None,
    ) -> None:
        self.tasks, self.budget, self.scheduler, self.listener = tasks, budget, scheduler, listener
        self.workers = workers
        self.batches = Batches(workers.slots if workers else 1)
        self.open: list[Task] = []  # the last used one at the end
        self.todo = budget.share_left(self.trials)  # the share of the budget that earlier runs have left
        self.searched = 0.0  # seconds, when all trials are done
        self.leaders: dict[int, Iterator[list[Candidate]]] = {}  # to be confirmed, by the task's number
        self.confirmed = 0  # tasks, and
        self.confirming_share = 0.0  # of the next
        self.telling = threading.Lock()  # of batches that are measured at a time, one after the other

    @property
    def trials(self) -> int:
        return sum(task.trials for task in self.tasks)

    def tune(self) -> None:
        """Whatever ends it, what the tasks know remains good."""
        try:
            self.work(self.next_trials, self.learn)
            self.searched = self.budget.elapsed
            first = sorted(
                range(len(self.tasks)),
                key=lambda n: -weigh(self.tasks[n], self.tasks[n].history.best or 0),
            )
            self.leaders = {n: self.tasks[n].leaders(self.budget.leaders) for n in first}
            self.work(self.next_leaders, self.settle)
        except KeyboardInterrupt:
            self.stop(INTERRUPTED)
        except (DatabaseError, WorkersError) as error:
            log.error("%s", error)
            self.stop(str(error), failed=True)
        finally:
            for task in self.open:
                task.close()
            for task in self.tasks:
                task.finish()

    def work(self, propose: Callable[[], Batch | None], finish: Callable[[Batch], None]) -> None:
        """Have the batches measured that there are, as many at a time as can be. A program that cannot be
        measured does not stop the others."""
        while True:
            while self.batches.has_room:
                with self.computing():
                    batch = propose()
                if batch is None:
                    break
                self.launch(batch)
            if not self.batches.flying:
                return
            batch = self.batches.land()
            if self.workers and self.batches.slots > 1:
                self.batches.slots = max(2, self.workers.slots)  # machines come and go
            if batch.error is None:
                with self.computing():
                    finish(batch)
            elif isinstance(batch.error, MeasureError) and not isinstance(batch.error, WorkersError):
                if len(self.tasks) == 1:
                    raise batch.error
                log.error("%s", batch.error)
                batch.task.stopped = str(batch.error)
                self.leaders.pop(self.tasks.index(batch.task), None)
            else:
                raise batch.error

    def computing(self) -> AbstractContextManager[object]:
        return self.workers.computing() if self.workers else nullcontext()

    def launch(self, batch: Batch) -> None:
        """Processes of a program that has not been used for long make room for those of this one."""
        task = batch.task
        self.open = [t for t in self.open if t is not task] + [task]
        task.listener = partial(self.pass_on, task)
        while len(self.open) > OPEN and self.batches.slots == 1:
            self.open.pop(0).close()
        self.batches.launch(batch)

    def next_trials(self) -> Batch | None:
        """Candidates of the program that has most to win; None if all that go on are being measured."""
        while self.budget.share_left(claimed := self.trials + self.batches.trials):
            self.budget.reserved = self.confirming() * len(self.tasks)
            if self.is_enough():
                self.end_search("what is left to win is less than was asked for")
                return None
            flying = self.batches.tasks
            going = [task for task in self.tasks if not task.stopped and task not in flying]
            if not going:
                return None
            task = going[self.scheduler(going)]
            task.listener = partial(self.pass_on, task)
            descends = self.budget.descends(claimed, task.trials)
            candidates = task.propose(self.budget.step(claimed, descends, not task.trials), descends)
            if candidates:
                self.notify("proposed", task, len(candidates))
                return Batch(task, candidates, partial(task.measure, candidates))
            task.stopped = task.history.exhausted
        return None

    def is_enough(self) -> bool:
        """Whether what all programs may still win is little, of what they take together."""
        if self.budget.enough is None or not all(task.trials or task.stopped for task in self.tasks):
            return False
        whole = sum(weigh(task, task.history.best or 0.0) for task in self.tasks)
        return sum(left_to_win(task) for task in self.tasks) < self.budget.enough * whole

    def end_search(self, why: str) -> None:
        for task in self.tasks:
            task.stopped = task.stopped or why

    def learn(self, batch: Batch) -> None:
        task = batch.task
        task.learn(batch.candidates, batch.outcomes)
        if is_out_of_patience(task.course):
            task.stopped = f"no progress in {PATIENCE} trials"
        self.notify("measured", task, len(batch.candidates))

    def next_leaders(self) -> Batch | None:
        """Of the first program whose leaders are not confirmed yet."""
        flying = self.batches.tasks
        if self.budget.is_late:
            self.leaders = {n: leaders for n, leaders in self.leaders.items() if self.tasks[n] in flying}
        for n, leaders in list(self.leaders.items()):
            task = self.tasks[n]
            if task in flying:
                continue
            if (group := next(leaders, None)) is not None:
                self.pass_on(task, "confirm", 0, 1, "")
                return Batch(task, group, partial(task.confirm, group))
            del self.leaders[n]
            self.confirmed, self.confirming_share = self.confirmed + 1, 0.0
            self.notify("confirmed", task, 0)
        return None

    def settle(self, batch: Batch) -> None:
        batch.task.settle(batch.candidates, batch.outcomes)

    def stop(self, why: str, failed: bool = False) -> None:
        for task in self.tasks:
            task.stopped, task.failed = task.stopped or why, failed
            self.notify("stopped", task, 0)

    def seconds_left(self) -> float | None:
        """Seconds until the end, as far as can be told: what the other trials take if they are like those so
        far, and what confirming the leaders does."""
        elapsed, share = self.budget.elapsed, self.budget.share_left(self.trials)
        if self.searched:
            done = self.confirmed + self.confirming_share
            each = (elapsed - self.searched) / done if done else self.confirming()
            left = each * (len(self.tasks) - done)
            if self.budget.is_shared and self.budget.minutes is not None:
                left = min(left, max(0.0, 60 * self.budget.minutes - elapsed))
            return left
        if self.todo <= share:
            return None
        reserved = self.confirming() * len(self.tasks)
        if self.budget.minutes is not None:
            reserved = min(reserved, MOST_RESERVED * 60 * self.budget.minutes)
        return elapsed * share / (self.todo - share) + reserved

    def whole(self) -> tuple[float | None, float | None]:
        """Seconds of what all programs are part of, as far as they have been measured: with the best so far,
        and untuned."""
        known = [
            (task, task.history.best, task.untuned_latency or task.history.best)
            for task in self.tasks
            if task.weight is not None and task.history.best is not None
        ]
        if not known:
            return None, None
        return (
            sum(weigh(task, min(best, untuned or best)) for task, best, untuned in known),
            sum(weigh(task, untuned or 0.0) for task, _, untuned in known),
        )

    def confirming(self) -> float:
        """Seconds that confirming the leaders of a task takes: some rounds of some candidates."""
        run = sum(task.seconds["run"] for task in self.tasks)
        return CONFIRMATIONS * self.budget.leaders / LEADERS * run / max(1, self.trials)

    def pass_on(self, task: Task, event: str, done: int, of: int, detail: str) -> None:
        if event == "confirm":
            self.confirming_share = done / of
        self.notify(event, task, 0, done, of, detail)

    def notify(
        self, event: str, task: Task, candidates: int, done: int = 0, of: int = 0, detail: str = ""
    ) -> None:
        if not of:
            log.info("%s: %s %d, best %s", task.program.name, event, candidates, task.history.best)
        if self.listener is None:
            return
        with self.telling:
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
                    self.seconds_left(),
                    *self.whole(),
                    self.workers.nodes() if self.batches.slots > 1 and self.workers else [],
                )
            )


def is_out_of_patience(course: Sequence[tuple[int, float]]) -> bool:
    """Whether the last trials have brought no progress."""
    trials, best = course[-1] if course else (0, 0.0)
    before = [latency for when, latency in course if when <= trials - PATIENCE]
    return bool(before) and best > PROGRESS * before[-1]


def weigh(task: Tuned, seconds: float) -> float:
    return seconds * (1.0 if task.weight is None else task.weight)


def left_to_win(task: Tuned) -> float:
    """Seconds that a program may be expected to win in as many trials as it has had: what the later half of
    those has won, and until there have been some, a share of what it takes."""
    if not task.course or task.stopped:
        return 0.0
    trials, best = task.course[-1]
    before = [latency for when, latency in task.course if when <= trials / 2]
    won = (before[-1] if before else task.course[0][1]) - best
    return weigh(task, won if trials >= TELLING else max(won, UNKNOWN * best))
