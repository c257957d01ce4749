"""Jobs for worker processes, which may die of them.

A job that ends its worker, or takes too long, fails alone: the worker is replaced and the others go on.
Whose fault a death was is not always clear (somebody killed the worker; an earlier job damaged its
memory; stopped it, for longer than the job may take), so a job is tried once more where it may be innocent.
"""

from __future__ import annotations

import select
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .frames import Frame, Header
from .outcome import MeasureError
from .process import GRACE, Worker

START_SECONDS = 60.0
START_ATTEMPTS = 3
NO_MEMORY = ("out of memory", "bad_alloc", "MemoryError")  # last words of LLVM, C++ and Python


@dataclass(eq=False)
class Job:
    """`key` is the caller's name for it; it has `seconds` to finish."""

    key: int
    seconds: float
    header: Header
    payload: bytes = b""
    retried: bool = False


class Pool:
    """`size` workers of a role, each with up to `depth` jobs in hand.

    Workers start when there is work for them. `setup` is the first thing each is told; `fds` they inherit;
    `module` is what they run.
    """

    def __init__(
        self,
        role: str,
        size: int,
        depth: int,
        setup: Header,
        fds: Sequence[int] = (),
        module: str = "metaschedule.measure.worker",
    ) -> None:
        self._role, self._size, self._depth = role, size, depth
        self._setup, self._fds, self._module = setup, fds, module
        self._workers: list[Worker] = []
        self._again: deque[Job] = deque()  # jobs whose worker died
        self._failed_starts = 0

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Frame]]:
        """Every job with its answer, as they come. `jobs` are asked for only when one can be given away, so
        that making the next goes on beside the last ones' work."""
        source = iter(jobs)
        more = True
        try:
            yield from self._exchange(0.0)  # workers that died idle
            while True:
                while more and self._has_room():
                    job = self._again.popleft() if self._again else next(source, None)
                    if job is None:
                        more = False
                    else:
                        self._give(job)
                        yield from self._exchange(0.0)
                if not any(worker.jobs for worker in self._workers):
                    return
                yield from self._exchange(self._patience())
                more = more or bool(self._again)
        finally:  # if the caller stopped early, what is still in work answers nobody
            for worker in [w for w in self._workers if w.jobs]:
                self._drop(worker)
            self._again.clear()

    def start(self) -> None:
        """Start a worker ahead of its work, if there is none."""
        if not self._workers:
            self._add()

    def close(self) -> None:
        for worker in list(self._workers):
            self._drop(worker)

    def _has_room(self) -> bool:
        return len(self._workers) < self._size or any(len(w.jobs) < self._depth for w in self._workers)

    def _give(self, job: Job) -> None:
        """To the worker with least to do, or to a new one if all have their hands full."""
        worker = min(self._workers, key=lambda w: len(w.jobs), default=None)
        if worker is None or len(worker.jobs) == self._depth:
            worker = self._add()
        if not worker.jobs and worker.ready:
            worker.since = time.monotonic()
        worker.jobs.append(job)
        worker.send(job.header, job.payload)

    def _add(self) -> Worker:
        self._workers.append(Worker(self._role, self._setup, self._fds, self._module))
        return self._workers[-1]

    def _deadline(self, worker: Worker) -> float:
        return worker.since + (worker.jobs[0].seconds if worker.ready else START_SECONDS)

    def _patience(self) -> float:
        """Seconds until the next deadline."""
        deadlines = [self._deadline(w) for w in self._workers if w.jobs]
        return max(0.0, min(deadlines) - time.monotonic())

    def _exchange(self, timeout: float) -> Iterator[tuple[Job, Frame]]:
        poll = select.poll()
        for worker in self._workers:
            worker.register(poll)
        poll.poll(1000 * timeout + 1 if timeout else 0)
        for worker in list(self._workers):
            for header, payload in worker.exchange():
                worker.since = time.monotonic()
                if not worker.ready:
                    worker.ready, self._failed_starts = True, 0
                elif worker.jobs:
                    worker.served += 1
                    yield worker.jobs.popleft(), (header, payload)
            if worker.ended:
                yield from self._mourn(worker)
            elif worker.jobs and time.monotonic() > self._deadline(worker):
                yield from self._give_up(worker)

    def _mourn(self, worker: Worker) -> Iterator[tuple[Job, Frame]]:
        detail, status = self._drop(worker, GRACE)
        if not worker.ready:
            self._failed_start(detail)
        elif worker.jobs:
            job = worker.jobs.popleft()
            if not job.retried and (worker.served or status == -signal.SIGKILL):
                job.retried = True
                worker.jobs.appendleft(job)
            else:
                starved = any(words in detail for words in NO_MEMORY)
                yield job, failure(worker, "out of memory" if starved else "crash", detail)
        self._again.extend(worker.jobs)

    def _give_up(self, worker: Worker) -> Iterator[tuple[Job, Frame]]:
        stopped = worker.stopped
        self._drop(worker)
        if not worker.ready:
            self._failed_start(f"not ready after {START_SECONDS:g} s")
        elif stopped and not worker.jobs[0].retried:
            worker.jobs[0].retried = True
        else:
            job = worker.jobs.popleft()
            why = ": its process was stopped" if stopped else ""
            yield job, failure(worker, "timeout", f"not finished after {job.seconds:g} s{why}")
        self._again.extend(worker.jobs)

    def _failed_start(self, detail: str) -> None:
        self._failed_starts += 1
        if self._failed_starts == START_ATTEMPTS:
            raise MeasureError(f"the worker process that should {self._role} does not start: {detail}")

    def _drop(self, worker: Worker, patience: float = 0.0) -> tuple[str, int]:
        self._workers.remove(worker)
        return worker.end(patience)


def failure(worker: Worker, kind: str, detail: str) -> Frame:
    """The answer that a worker did not live to give."""
    return {"kind": kind, "detail": detail, "seconds": time.monotonic() - worker.since}, b""
