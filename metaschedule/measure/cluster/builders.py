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
MOST_ATTEMPTS = 2
MOST_PREPARED = 16  # builders that are started before there is work


class Builders:
    """`task` is what a builder runs; `check` raises what should end waiting for one."""

    def __init__(self, ray: Any, task: Callable[..., list[bytes]], check: Callable[[], None]) -> None:
        self._ray, self._check = ray, check
        self._task = ray.remote(num_cpus=1, max_retries=0)(task)
        self._free = threading.Semaphore(1)

    def prepare(self) -> None:
        """Their processes start while those of runners do."""
        count = int(self._ray.cluster_resources().get("CPU", 0))
        if not count:
            raise WorkersError("the cluster has no cores to build on: start a node with --num-cpus")
        self._free = threading.Semaphore(count)
        for _ in range(min(count, MOST_PREPARED)):
            self._ray.submit(self._task, __version__, Limits().memory, [], [])

    def build(self, jobs: Iterable[Job], memory: int) -> Iterator[tuple[Job, Frame]]:
        """As many tasks at a time as the cluster has cores, of all batches. What was in one that died or does
        not end is tried once more, each job alone."""
        todo = [(group, 1) for group in group_jobs(list(jobs), CHUNK)]
        flying: dict[Any, tuple[list[Job], int, float]] = {}
        try:
            while todo or flying:
                while todo and self._free.acquire(blocking=not flying, timeout=None if flying else 0.5):
                    group, attempt = todo.pop()
                    reference, deadline = self._submit(group, memory)
                    flying[reference] = group, attempt, deadline
                self._check()
                if not flying:
                    continue
                done, _ = self._ray.wait(list(flying), num_returns=1, timeout=1.0)
                late = [r for r in flying if r not in done and time.monotonic() > flying[r][2]]
                for reference in [*done, *late]:
                    group, attempt, _ = flying.pop(reference)
                    self._free.release()
                    try:
                        answers = [read(data) for data in self._ray.get(reference, timeout=1.0)]
                    except Exception as error:
                        log.debug("a builder failed", exc_info=True)
                        self._give_up(reference, error)
                        if attempt < MOST_ATTEMPTS:
                            todo += [([job], attempt + 1) for job in group]
                            continue
                        detail = f"{attempt} builders died or hung, the last: {one_line(error)}"
                        answers = [({"kind": "crash", "detail": detail[:300]}, b"")] * len(group)
                    for job, (header, code) in zip(group, answers, strict=True):
                        if header["kind"] == REFUSED:
                            raise WorkersError(header["detail"])
                        yield job, (header, code)
        finally:
            for reference in flying:
                self._free.release()
                self._give_up(reference, None)

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
