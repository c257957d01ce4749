"""Whose turn it is on the cores of a machine: anybody's who computes, or one's alone who times.

Files that are locked, because all that matters is what runs on this machine: builders of any cluster, the
process that searches, runners of several runs. The system gives a lock back when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "METASCHEDULE_GATE"  # a directory, where processes that share cores do not share the temporary one


def directory() -> Path:
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(tempfile.gettempdir()) / f"metaschedule-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@contextmanager
def hold_lock(name: str, how: int) -> Iterator[None]:
    file = os.open(directory() / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


@contextmanager
def computing() -> Iterator[None]:
    """Beside others that compute, while nobody times. One who waits to time goes first."""
    file = os.open(directory() / "cores", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with hold_lock("turn", fcntl.LOCK_EX):
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


@contextmanager
def timing() -> Iterator[None]:
    """While nobody else computes."""
    with hold_lock("turn", fcntl.LOCK_EX), hold_lock("cores", fcntl.LOCK_EX):
        yield
