"""Builders of a cluster whose nodes come, go and keep silent; Ray itself is not needed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from metaschedule.measure import WorkersError
from metaschedule.measure.cluster import builders
from metaschedule.measure.cluster.builders import Builders
from metaschedule.measure.frames import pack
from metaschedule.measure.pool import Job
from tests.measure.processes import eventually


class StandIn:
    """Ray as far as builders use it: `cores` of a cluster whose tasks answer when `is_open`."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.is_open = threading.Event()
        self.flying: dict[int, int] = {}  # requests of tasks
        self.most = self.given = 0

    def remote(self, **_: object) -> Any:
        return lambda task: task

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cores} if self.cores else {}

    def submit(
        self, _: Any, version: str, memory: int, seconds: Sequence[float], jobs: Sequence[bytes]
    ) -> int:
        self.given += 1
        self.flying[self.given] = len(jobs)
        self.most = max(self.most, len(self.flying))
        return self.given

    def wait(self, futures: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        done = futures[:num_returns] if self.is_open.wait(0.01) else []
        return done, [f for f in futures if f not in done]

    def get(self, future: int, timeout: float) -> list[bytes]:
        if not self.is_open.is_set():
            raise TimeoutError
        return [pack({"kind": "ok"})] * self.flying.pop(future)

    def cancel(self, future: int, force: bool) -> None:
        self.flying.pop(future, None)


def opened(ray: StandIn, patience: float = 60.0) -> Builders:
    found = Builders(ray, list, lambda: None, patience)
    found.prepare()
    ray.flying.clear()
    ray.most = 0
    return found


def jobs(count: int) -> list[Job]:
    return [Job(n, 1.0, {}) for n in range(count)]


def test_cores_that_join_are_used() -> None:
    ray = StandIn(2)
    found = opened(ray)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.extend(found.build(jobs(40), 0)), daemon=True)
    thread.start()
    assert eventually(lambda: ray.most == 2)
    ray.cores = 8
    found.count_cores()
    assert eventually(lambda: ray.most == 8)
    ray.is_open.set()
    thread.join(20)
    assert sorted(job.key for job, _ in answers) == list(range(40))
    assert ray.most == 8


def test_a_cluster_that_has_lost_its_cores_says_so() -> None:
    ray = StandIn(2)
    found = opened(ray, patience=0.1)
    ray.cores = 0
    found.count_cores()
    with pytest.raises(WorkersError, match="no cores to build on: start a node"):
        list(found.build(jobs(9), 0))
    with pytest.raises(WorkersError, match="no cores to build on"):
        opened(StandIn(0))


def test_builders_that_do_not_answer_are_no_crash_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "START", -10.0)  # so that a task is late at once
    ray = StandIn(2)
    with pytest.raises(WorkersError, match="no builder answers"):
        list(opened(ray).build(jobs(9), 0))
    assert not ray.flying


def test_a_batch_that_is_given_up_gives_its_cores_back() -> None:
    ray = StandIn(2)
    found = opened(ray)
    ray.is_open.set()
    batch: Any = found.build(jobs(40), 0)
    next(batch)
    batch.close()
    assert len(list(found.build(jobs(8), 0))) == 8
