"""What runners say of themselves, and what is made of it; no cluster is needed."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from metaschedule.measure import WorkerNode
from metaschedule.measure.cluster.connection import is_installed
from metaschedule.measure.cluster.runners import RemoteRunner, Runners
from metaschedule.target import resolve


def machine(peak: float, cpu: str = "znver4") -> RemoteRunner:
    target = replace(resolve("x86-64-v3"), cpu=cpu)
    return RemoteRunner(f"{cpu}-{peak}", None, WorkerNode(f"{cpu}-{peak}", target, "0", peak))


def test_machines_that_differ_in_speed_do_not_share_a_program() -> None:
    runners = Runners()
    for one in (machine(100), machine(98), machine(90), machine(100, "skylake")):
        runners.add(one)
    target = replace(resolve("x86-64-v3"), cpu="znver4")
    taken = runners.acquire(target, None, 4, False, lambda: None)
    assert [r.key for r in taken] == ["znver4-100", "znver4-98"]
    home = taken[0]
    assert runners.acquire(target, home, 4, False, lambda: None) == []
    assert [r.key for r in runners.acquire(target, None, 4, False, lambda: None)] == ["znver4-90"]
    for runner in taken:
        assert runners.bury(runner, "killed")
        assert not runners.bury(runner, "killed again")
    runners.release(runners.known)
    assert [r.key for r in runners.acquire(target, home, 4, False, lambda: None)] == ["znver4-90"]


@pytest.mark.parametrize(
    ("state", "is_busy", "moves"),
    [("run", True, False), ("waiting", True, True), ("idle", False, True), ("idle", True, False)],
)
def test_a_call_that_does_not_arrive_is_no_progress(state: str, is_busy: bool, moves: bool) -> None:
    runner = machine(100)
    runner.is_busy = is_busy
    status = {"progress": 7, "state": state}
    runner.hear(status)
    before = runner.moved
    time.sleep(0.01)
    runner.hear(status)
    assert (runner.moved > before) is moves


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.skipif(not is_installed(), reason='Ray is not installed: pip install "metaschedule[ray]"')
@pytest.mark.usefixtures("hurried")
def test_a_runner_says_how_it_is_while_it_works() -> None:
    """By threads of its own, beside the one that counts."""
    from metaschedule.measure.cluster.node import RunnerActor

    actor: Any = RunnerActor(3600.0)
    errors: list[Exception] = []
    actor._finished = deque([(time.monotonic() + n, 1) for n in range(-5000, 5000)], maxlen=20_000)
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                actor.status()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        actor._finished.append((time.monotonic(), 1))
        time.sleep(1e-5)
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    heard = actor._heard
    assert actor.look()["rate"] > 0
    assert actor._heard == heard


@pytest.mark.skipif(not is_installed(), reason='Ray is not installed: pip install "metaschedule[ray]"')
def test_runners_are_given_back_if_a_batch_cannot_be_sent() -> None:
    """Else other programs would wait for them for ever."""
    from metaschedule.measure.cluster.batch import RemoteBatch
    from metaschedule.measure.workload import Built

    runners = Runners()
    for _ in range(2):
        runners.add(machine(100))

    class Workers:
        patience = 30.0
        runners: Any = None

        def check(self, _: object = None) -> None:
            """Nothing is wrong."""

        def discard(self, *_: object) -> None:
            raise AssertionError("nothing was on a runner")

    class Runner:
        target, home, seconds = replace(resolve("x86-64-v3"), cpu="znver4"), None, 1.0

        def run_by_call(self, *_: object) -> None:
            raise MemoryError("the object store is full")

    workers: Any = Workers()
    workers.runners = runners
    built = Built({"stages": [], "sizes": []}, b"", 0.0, 0.0)
    batch: Any = RemoteBatch(workers, Runner(), [built] * 8, None, False)  # pyright: ignore
    with pytest.raises(MemoryError):
        batch.run()
    assert [runner.is_busy for runner in runners.known] == [False, False]
