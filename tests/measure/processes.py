"""The worker processes of a process, from the system's point of view."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def children(parent: int | None = None) -> list[int]:
    """Children of a process (default: this one), zombies included."""
    found: list[int] = []
    for task in Path(f"/proc/{parent or os.getpid()}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # it has ended meanwhile
            pass
    return found


def descendants(parent: int | None = None) -> list[int]:
    """Children of a process, their children, and so on."""
    found: list[int] = []
    for pid in children(parent):
        found += [pid, *descendants(pid)]
    return found


def workers(role: str, parent: int | None = None) -> list[int]:
    """Descendants that are workers of a role ("build" or "run")."""

    def is_worker(pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"metaschedule.measure.worker" in words and role.encode() in words

    return [pid for pid in descendants(parent) if is_worker(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return ""


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
