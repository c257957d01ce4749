"""The builders of a cluster as the driver sees them: Ray tasks of some requests each, on any free core."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ... import __version__
from ..frames import Frame, pack
from ..outcome import Limits, WorkersError, one_line
from ..pool import Job
from .node import REFUSED, read

log = logging.getLogger("metaschedule")
CHUNK = 4  # requests in a task: starting one takes a millisecond of this process
START = 300.0  # seconds for a task to begin: its process imports the package, and others have their turn
WAKE_UP = 0.5  # seconds
MOST_ATTEMPTS = 2
NO_CORES = "the cluster has no cores to build on: start a node with --num-cpus"
MOST_PREPARED = 16  # builders that are started before there is work


class Builders:
    """`task` is what a builder runs; `check` raises what should end waiting for one; a cluster without cores
    is waited for as long as `patience`."""

    def __init__(
        self, ray: Any, task: Callable[..., list[bytes]], check: Callable[[], None], patience: float
    ) -> None:
        self._ray, self._check, self._patience = ray, check, patience
        self._task = ray.remote(num_cpus=1, max_retries=0)(task)
        self._changed = threading.Condition()
        self.cores = self._used = 0
        self._seen = time.monotonic()  # when there last were cores

    def prepare(self) -> None:
        """Their processes start while those of runners do."""
        self.count_cores()
        if not self.cores:
            raise WorkersError(NO_CORES)
        for _ in range(min(self.cores, MOST_PREPARED)):
            self._ray.submit(self._task, __version__, Limits().memory, [], [])

    def count_cores(self) -> None:
        """Nodes come and go."""
        with self._changed:
            self.cores = int(self._ray.cluster_resources().get("CPU", 0))
            if self.cores:
                self._seen = time.monotonic()
            self._changed.notify_all()

    def build(self, jobs: Iterable[Job], memory: int) -> Iterator[tuple[Job, Frame]]:
        """As many tasks at a time as the cluster has cores, of all batches. What was in one that died or does
        not end is tried once more, each job alone. Then it is a crash if it died; if it does not end, nobody
        knows whether it has begun, and nothing can be built."""
        todo = [(group, 1) for group in group_jobs(list(jobs), CHUNK)]
        flying: dict[Any, tuple[list[Job], int, float]] = {}
        try:
            while todo or flying:
                while todo and self._take_core(wait=not flying):
                    group, attempt = todo.pop()
                    reference, deadline = self._submit(group, memory)
                    flying[reference] = group, attempt, deadline
                self._check()
                if not self.cores and time.monotonic() - self._seen > self._patience:
                    raise WorkersError(NO_CORES)
                if not flying:
                    continue
                done, _ = self._ray.wait(list(flying), num_returns=1, timeout=1.0)
                late = [r for r in flying if r not in done and time.monotonic() > flying[r][2]]
                for reference in [*done, *late]:
                    group, attempt, _ = flying.pop(reference)
                    self._give_core_back()
                    try:
                        answers = [read(data) for data in self._ray.get(reference, timeout=1.0)]
                    except Exception as error:
                        log.debug("a builder failed", exc_info=True)
                        self._give_up(reference, error)
                        if attempt < MOST_ATTEMPTS:
                            todo += [([job], attempt + 1) for job in group]
                            continue
                        if reference in late:
                            raise WorkersError("no builder answers; see `ray status`") from error
                        detail = f"{attempt} builders died or hung, the last: {one_line(error)}"
                        answers = [({"kind": "crash", "detail": detail[:300]}, b"")] * len(group)
                    for job, (header, code) in zip(group, answers, strict=True):
                        if header["kind"] == REFUSED:
                            raise WorkersError(header["detail"])
                        yield job, (header, code)
        finally:
            for reference in flying:
                self._give_core_back()
                self._give_up(reference, None)

    def _take_core(self, wait: bool) -> bool:
        """Whether there is one; with `wait` after a moment."""
        with self._changed:
            if wait and self._used >= self.cores:
                self._changed.wait(WAKE_UP)
            if self._used >= self.cores:
                return False
            self._used += 1
            return True

    def _give_core_back(self) -> None:
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def _submit(self, group: list[Job], memory: int) -> tuple[Any, float]:
        """A task, and when it should have ended."""
        seconds = [job.seconds for job in group]
        requests = [pack(job.header, job.payload) for job in group]
        reference = self._ray.submit(self._task, __version__, memory, seconds, requests)
        return reference, time.monotonic() + START + 2 * sum(seconds)

    def _give_up(self, reference: Any, error: Exception | None) -> None:
        if error is not None:
            log.warning("a builder failed: %s", one_line(error))
            if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
                raise WorkersError(f"a node cannot import the package: {one_line(error)}; install it there")
        try:
            self._ray.cancel(reference, force=True)
        except Exception as why:
            log.info("a task could not be cancelled: %s", one_line(why), exc_info=True)


def group_jobs(jobs: list[Job], most: int) -> list[list[Job]]:
    """Up to `most` in each group.

    >>> [len(group) for group in group_jobs([None] * 9, 4)]
    [4, 4, 1]
    """
    return [jobs[n : n + most] for n in range(0, len(jobs), most)]
