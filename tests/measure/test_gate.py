"""Who computes and who times on the cores of a machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from metaschedule.measure.cluster import gate
from tests.measure.processes import eventually

HOLDS = """
from metaschedule.measure.cluster import gate
with gate.{how}():
    print("holds", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gate.VARIABLE, str(tmp_path))


def holder(how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(how=how)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def entered(how: str) -> threading.Event:
    """Set when a thread is in, which stays there."""
    event = threading.Event()

    def enter() -> None:
        with getattr(gate, how)():
            event.set()

    threading.Thread(target=enter, daemon=True).start()
    return event


@pytest.mark.parametrize(
    ("first", "second"), [("computing", "timing"), ("timing", "computing"), ("timing", "timing")]
)
def test_one_times_alone_and_a_killed_holder_gives_back(first: str, second: str) -> None:
    process = holder(first)
    waiting = entered(second)
    assert not waiting.wait(0.3)
    process.kill()
    process.communicate()
    assert waiting.wait(20)


def test_many_compute_and_one_who_waits_to_time_goes_first() -> None:
    process = holder("computing")
    assert entered("computing").wait(20)
    timing = entered("timing")
    assert not timing.wait(0.3)
    late = entered("computing")
    assert not late.wait(0.3)
    process.communicate("\n")
    assert timing.wait(20)
    assert late.wait(20)
    assert eventually(lambda: process.poll() is not None)


def test_a_process_that_is_stopped_does_not_stop_those_who_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LONGEST", 0.5)
    process = holder("computing")
    process.send_signal(signal.SIGSTOP)
    try:
        timing = entered("timing")
        assert not timing.wait(0.2)
        assert timing.wait(20)
    finally:
        process.kill()
        process.communicate()
