"""Workers that are killed, parents that are killed, and what remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from metaschedule.measure import Limits, Measurer, Workers
from tests.measure import faulty_kernels as faulty
from tests.measure.conftest import NEEDS_RAY
from tests.measure.processes import alive, children, command_line, descendants, eventually, workers

HANGS = """
import sys
from metaschedule.measure import Limits, Measurer, open_workers
from tests.measure import faulty_kernels as faulty
with (
    open_workers(sys.argv[1]) as workers,
    Measurer(faulty.program(), limits=Limits(run_seconds=100), workers=workers) as m,
):
    print(m.measure([faulty.GOOD])[0].kind, flush=True)
    m.measure([faulty.LOOPS_FOR_EVER])
"""


AGENTS: dict[int, str] = {}  # of Ray, that were left when all else had ended


def is_agent(line: str) -> bool:
    return line.startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))


@pytest.mark.parametrize("name", ["local", pytest.param("ray", marks=NEEDS_RAY)])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_survives_its_parent(end: signal.Signals, name: str) -> None:
    """Not even one that is in an endless loop."""
    parent = subprocess.Popen(
        [sys.executable, "-c", HANGS, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ok\n"
        time.sleep(0.3)
        pids = descendants(parent.pid)
        assert workers("run", parent.pid)
        parent.send_signal(end)
        assert parent.wait(60) != 0
    finally:
        parent.kill()
        parent.communicate()

    def left() -> dict[int, str]:
        return {pid: command_line(pid) for pid in pids if alive(pid)}

    eventually(lambda: all(map(is_agent, left().values())), 60)
    assert [line for line in left().values() if not is_agent(line)] == []
    AGENTS.update(left())


@pytest.fixture(scope="module")
def measurer(place: Workers) -> Iterator[Measurer]:
    with Measurer(faulty.program(), workers=place) as m:
        yield m


@pytest.mark.parametrize("role", ["build", "run"])
def test_a_killed_worker_costs_no_candidate(measurer: Measurer, role: str) -> None:
    assert measurer.measure([faulty.GOOD])[0].ok
    (victim, *_) = workers(role)
    killer = threading.Timer(0.05 if role == "build" else 0.2, os.kill, (victim, signal.SIGKILL))
    killer.start()
    long = faulty.SLEEPS if role == "run" else faulty.long_to_build(5_000)
    outcomes = measurer.measure([long, faulty.GOOD, faulty.SUBTRACTS])
    killer.join()
    assert [o.kind for o in outcomes] == ["ok", "ok", "wrong result"]
    assert victim not in workers(role)


def test_a_worker_killed_while_idle_is_replaced(measurer: Measurer) -> None:
    measurer.measure([faulty.GOOD])
    for pid in workers("build") + workers("run"):
        os.kill(pid, signal.SIGKILL)
    assert [o.kind for o in measurer.measure([faulty.GOOD] * 3)] == ["ok"] * 3


def test_what_the_last_candidate_left_is_not_the_next_ones_fault(measurer: Measurer) -> None:
    assert measurer.measure([faulty.GOOD])[0].ok
    before = workers("run")
    outcomes = measurer.measure([faulty.ENDS_THE_NEXT, faulty.SLEEPS_LONGER, faulty.GOOD])
    assert [o.kind for o in outcomes] == ["ok", "ok", "ok"]
    assert workers("run") != before


def test_a_broken_batch_leaves_no_stale_answers(measurer: Measurer) -> None:
    """An exception between two answers, as Ctrl-C raises it."""
    measurer.measure([faulty.GOOD])
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        measurer.measure([faulty.SLEEPS] * 20)
    timer.join()
    assert [o.kind for o in measurer.measure([faulty.SUBTRACTS, faulty.GOOD])] == ["wrong result", "ok"]


def test_nothing_is_left_behind() -> None:
    files, processes = os.listdir("/proc/self/fd"), children()
    with Measurer(faulty.program(), limits=Limits(run_seconds=0.5)) as m:
        m.measure([faulty.SEGFAULTS, faulty.LOOPS_FOR_EVER, faulty.GOOD])
    assert os.listdir("/proc/self/fd") == files
    assert children() == processes


def test_a_closed_measurer_leaves_no_runner_process(place: Workers) -> None:
    before = workers("run")
    with Measurer(faulty.program(), workers=place) as m:
        assert m.measure([faulty.GOOD])[0].ok
        assert set(workers("run")) - set(before)
    assert eventually(lambda: not set(workers("run")) - set(before))


def test_agents_of_ray_end_by_themselves() -> None:
    """They report the death of their raylet to the head, which has ended as well, and wait a minute for its
    answer; Ray has no setting for that (`publish_error_to_driver`). Other tests ran meanwhile."""

    def left() -> list[int]:
        return [pid for pid, line in AGENTS.items() if command_line(pid) == line]

    assert eventually(lambda: not left(), 100), left()
