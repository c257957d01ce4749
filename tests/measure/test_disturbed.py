"""A machine on which other things run, stop and start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaschedule.measure import Limits, Measurer, Outcome
from metaschedule.measure.calibration import Calibration, calibration_kernel
from metaschedule.measure.machine import Machine, relative_frequency, stolen_seconds
from metaschedule.measure.runner import ENOUGH_ROUNDS, choose_better, merge_rounds
from metaschedule.measure.trial import Trial
from metaschedule.measure.watch import ThreadWatch
from metaschedule.runtime import rest
from metaschedule.target import resolve
from tests.measure import faulty_kernels as faulty
from tests.measure.processes import workers


@pytest.fixture
def burners() -> Iterator[None]:
    """A busy process for each core."""
    burn = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    busy = [subprocess.Popen([sys.executable, "-c", burn]) for _ in os.sched_getaffinity(0)]
    yield
    for process in busy:
        process.kill()
        process.wait()


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_beside_other_work_is_disturbed(burners: None) -> None:
    """Nobody has a core of his own for two seconds."""
    sample = ThreadWatch().time(lambda: work(0.3))
    assert sample.disturbed
    assert sample.waited > 0
    assert sample.least < sample.seconds


def test_a_process_that_does_not_run_is_disturbed() -> None:
    sample = ThreadWatch().time(lambda: time.sleep(0.05))
    assert sample.disturbed
    assert sample.idle > 0.02


def test_threads_that_come_and_go_are_followed() -> None:
    watch = ThreadWatch()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    watch.follow()
    done.set()
    thread.join()
    assert watch.time(lambda: None).seconds >= 0


def test_without_the_schedulers_account_switches_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("metaschedule.measure.watch.TASKS", tmp_path)
    assert ThreadWatch().time(lambda: None).waited >= 0


def test_calibration() -> None:
    """However busy the machine, a slowdown is relative to the shortest."""
    calibration = Calibration(calibration_kernel(resolve(), 1), 1, ThreadWatch())
    found = [calibration.slowdown(lambda: rest(1, 1e-3)) for _ in range(5)]
    assert all(slowdown is None or slowdown >= 1 for slowdown in found)


def test_what_the_system_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert stolen_seconds([0]) >= 0
    cpu = tmp_path / "cpu0" / "cpufreq"
    cpu.mkdir(parents=True)
    monkeypatch.setattr("metaschedule.measure.machine.CPUS", tmp_path)
    assert relative_frequency([0]) is None
    (cpu / "scaling_cur_freq").write_text("1200000\n")
    (cpu / "cpuinfo_max_freq").write_text("3000000\n")
    assert relative_frequency([0]) == pytest.approx(0.4)
    assert "cores at 40% of their frequency" in Machine([0]).describe()


def test_rounds_that_cannot_be_believed_do_not_count() -> None:
    good, bad = Outcome("ok", 2e-5, (2e-5,), disturbed=0.25), Outcome("ok", 1e-3, (1e-3,), disturbed=1.0)
    enough = merge_rounds([bad, *[good] * ENOUGH_ROUNDS])
    assert (enough.latency, enough.times, enough.reliable) == (2e-5, (2e-5,) * ENOUGH_ROUNDS, True)
    assert enough.disturbed == pytest.approx((1 + 0.25 * ENOUGH_ROUNDS) / (1 + ENOUGH_ROUNDS))
    few = merge_rounds([bad, good, bad])
    assert (few.latency, few.reliable) == (1e-3, False)
    assert choose_better(bad, good).reliable
    assert choose_better(bad, Outcome("ok", 2e-3, (2e-3,), disturbed=1.0)).latency == 1e-3
    assert choose_better(bad, Outcome("crash")).kind == "crash"


def test_beside_a_busy_process_a_latency_is_right_or_an_upper_bound(burners: None) -> None:
    """33.5 us were once reported as 9701."""
    with Measurer(faulty.program(), threads=1) as m:
        outcomes = m.measure([faulty.GOOD] * 3)
        (confirmed,) = m.confirm([faulty.GOOD])
    assert [o.kind for o in outcomes] == ["ok"] * 3
    for outcome in (*outcomes, confirmed):
        assert outcome.latency is not None
        assert not outcome.reliable or outcome.latency < 1e-3


def test_repeats_end_when_time_is_up() -> None:
    trial = object.__new__(Trial)
    trial._watch, trial._threads = ThreadWatch(), 1  # pyright: ignore[reportPrivateUsage]
    repeats: list[float] = []

    def repeat() -> list[float]:
        repeats.append(1.0)
        return repeats

    trial._time_undisturbed(time.perf_counter() + 60, repeat)  # pyright: ignore[reportPrivateUsage]
    assert len(repeats) == 1
    assert trial._time_undisturbed(0.0, repeat) == []  # pyright: ignore[reportPrivateUsage]
    assert len(repeats) == 1


def test_a_runner_that_was_stopped_is_not_believed() -> None:
    """Stopped for less than the limit: its answer is there, and its times are thrown away."""
    with Measurer(faulty.program(), threads=1) as m:
        assert m.measure([faulty.GOOD])[0].ok
        (runner,) = workers("run")
        os.kill(runner, signal.SIGSTOP)
        timer = threading.Timer(1.0, os.kill, (runner, signal.SIGCONT))
        timer.start()
        (outcome,) = m.measure([faulty.GOOD])
        timer.join()
        assert workers("run") == [runner]
    assert outcome.ok
    assert not outcome.reliable or (outcome.latency or 0) < 0.1


def test_a_runner_that_stays_stopped_is_replaced() -> None:
    """Its candidate is innocent, and tried once more."""
    with Measurer(faulty.program(), threads=1, limits=Limits(run_seconds=2)) as m:
        assert m.measure([faulty.GOOD])[0].ok
        (stopped,) = workers("run")
        os.kill(stopped, signal.SIGSTOP)
        outcomes = m.measure([faulty.GOOD, faulty.SUBTRACTS])
        assert stopped not in workers("run")
    assert [o.kind for o in outcomes] == ["ok", "wrong result"]


def test_more_threads_than_cores_are_measured_as_given_and_said() -> None:
    given = len(os.sched_getaffinity(0))
    with Measurer(faulty.program(), threads=given + 6) as m:
        (outcome,) = m.measure([faulty.GOOD])
    assert m.constraint.startswith(f"{given + 6} threads were asked for and {given} core")
    assert outcome.ok
    assert outcome.detail == m.constraint
    with Measurer(faulty.program(), threads=1) as m:
        assert m.constraint == ""
