"""Whose turn it is on the cores of a machine: anybody's who computes, or one's alone who times.

Files that are locked, because all that matters is what runs on this machine: builders of any cluster, the
process that searches, runners of several runs. The system gives a lock back when its holder dies. One that is
stopped (Ctrl-Z) keeps it, but does not compute: who times does not wait for ever, and would notice others.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("metaschedule")
LONGEST = 300.0  # seconds; a step of a search or what a builder has in hand takes less
POLL = 0.02  # seconds
VARIABLE = "METASCHEDULE_GATE"  # a directory, where processes that share cores do not share the temporary one


def directory() -> Path:
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(tempfile.gettempdir()) / f"metaschedule-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@contextmanager
def computing() -> Iterator[None]:
    """Beside others that compute, while nobody times. One who waits to time goes first."""
    with open_lock("cores") as cores:
        with open_lock("turn") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(cores, fcntl.LOCK_SH)
        yield


@contextmanager
def timing() -> Iterator[None]:
    """While nobody else computes."""
    with open_lock("turn") as turn, open_lock("cores") as cores:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not lock_within(cores, LONGEST):
            log.warning("somebody has computed for %g s, or was stopped; timing beside it", LONGEST)
        yield


@contextmanager
def open_lock(name: str) -> Iterator[int]:
    """A file to be locked, given back with its lock."""
    file = os.open(directory() / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def lock_within(file: int, seconds: float) -> bool:
    """Whether a file is locked now, for this process alone, after so long at most."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(POLL)
