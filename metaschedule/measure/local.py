"""`LocalWorkers`: processes of this machine. Nothing runs while something is built: it would spoil times."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from .. import __version__
from ..target import Target, resolve
from .frames import Frame
from .pool import Job, Pool
from .runner import LocalRunner
from .workers import WorkerNode
from .workload import MeasuredWorkload

IN_FLIGHT = 2  # per builder: one compiles while the next is on its way


class LocalWorkers:
    """As many builders as this process has cores, which all programs share; a runner for each program."""

    slots = 1

    def __init__(self) -> None:
        self._builders: dict[int, Pool] = {}  # by the memory that each of their jobs may take

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def nodes(self) -> list[WorkerNode]:
        return [WorkerNode("this machine", resolve("native"), __version__)]

    def resolve(self, target: Target | str) -> Target:
        return resolve(target)

    def computing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def build(self, jobs: Iterable[Job], memory: int) -> Iterator[tuple[Job, Frame]]:
        if memory not in self._builders:
            cores = len(os.sched_getaffinity(0))
            self._builders[memory] = Pool("build", cores, IN_FLIGHT, {"memory": memory})
        return self._builders[memory].run(jobs)

    def open(self, workload: MeasuredWorkload) -> LocalRunner:
        return LocalRunner(workload)

    def close(self) -> None:
        for pool in self._builders.values():
            pool.close()
        self._builders.clear()
