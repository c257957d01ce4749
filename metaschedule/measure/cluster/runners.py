"""The runners of a cluster as the driver sees them: which there are, which are free, which share programs.

Two machines of one kind share the trials of a program only if a kernel of known length takes as long on
both, else a candidate would win by being on the faster one. A runner that died or does not answer is not used
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...target import Target
from ..workers import WorkerNode

AGREEMENT = 0.03  # of their peaks, by which two runners may differ that share a program
WAKE_UP = 0.5  # seconds


@dataclass(eq=False)
class RemoteRunner:
    """`heard` is when it last answered, `moved` when it last made progress."""

    key: str  # of its node
    actor: Any
    node: WorkerNode
    is_busy: bool = False
    died: str = ""  # of what, and
    ended: float = 0.0  # when
    heard: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    progress: int = -1
    status: dict[str, Any] = field(default_factory=dict)

    def agrees(self, other: RemoteRunner) -> bool:
        """Whether what was timed on one may be compared with what was on the other."""
        if self is other:
            return True
        mine, theirs = self.node.peak or 0.0, other.node.peak or 0.0
        same_kind = self.node.target.key == other.node.target.key
        return same_kind and abs(mine - theirs) <= AGREEMENT * max(mine, theirs)

    def hear(self, status: dict[str, Any]) -> None:
        self.heard = time.monotonic()
        is_idle = status["state"] == "idle" and not self.is_busy  # else a call has not arrived there
        if status["progress"] != self.progress or status["state"] == "waiting" or is_idle:
            self.moved, self.progress = self.heard, status["progress"]
        self.status = status

    def snapshot(self) -> WorkerNode:
        """What it is and does."""
        return replace(self.node, **as_fields(self.status) | ({"state": self.died} if self.died else {}))


def as_fields(status: dict[str, Any]) -> dict[str, Any]:
    """What a `WorkerNode` says of what a runner does."""
    if not status:
        return {}
    far = f" {status['done']}/{status['of']}" if status["of"] > 1 else ""
    trials = status["trials"]
    return {
        "state": status["state"] + far, "program": status["program"], "trials": trials,
        "rate": status["rate"], "disturbed": status["disturbed"] / max(1, trials),
    }  # fmt: skip


def can_run(target: Target, machine: Target) -> bool:
    """Whether code for a target runs on a machine."""
    have = set(machine.features)
    return target.arch == machine.arch and all(f in have for f in target.features if f[0] == "+")


class Runners:
    """Given away to whoever runs a batch, and taken back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.known: list[RemoteRunner] = []

    @property
    def alive(self) -> list[RemoteRunner]:
        return [runner for runner in self.known if not runner.died]

    def add(self, runner: RemoteRunner) -> None:
        with self._changed:
            self.known.append(runner)
            self._changed.notify_all()

    def bury(self, runner: RemoteRunner, why: str) -> bool:
        """Whether it lived."""
        with self._changed:
            if runner.died:
                return False
            runner.died, runner.ended = why, time.monotonic()
            self._changed.notify_all()
            return True

    def fitting(self, target: Target, home: RemoteRunner | None) -> list[RemoteRunner]:
        """Those that may run a program's candidates, with one that did so before; if that is dead, others
        of its kind."""
        able = [runner for runner in self.alive if can_run(target, runner.node.target)]
        if home is None:
            same = [r for r in able if r.node.target.with_cores(target.cores).key == target.key]
            able = same or able
            kinds = [runner.node.target.key for runner in able]
            most = max(kinds, key=kinds.count, default="")
            return [runner for runner in able if runner.node.target.key == most]
        able = [runner for runner in able if runner.node.target.key == home.node.target.key]
        return able if home.died else [runner for runner in able if runner.agrees(home)]

    def acquire(
        self, target: Target, home: RemoteRunner | None, most: int, wait: bool, check: Callable[[], None]
    ) -> list[RemoteRunner]:
        """Up to `most` free ones that may share a program; none if there are none and nobody is to wait.
        `check` raises what should end the wait."""
        with self._changed:
            while True:
                free = [runner for runner in self.fitting(target, home) if not runner.is_busy]
                first = home if home and not home.died else next(iter(free), None)
                taken = [runner for runner in free if first and runner.agrees(first)]
                if taken or not wait:
                    taken = taken[:most]
                    for runner in taken:
                        runner.is_busy, runner.moved = True, time.monotonic()
                    return taken
                self._changed.wait(WAKE_UP)
                check()

    def release(self, runners: Sequence[RemoteRunner]) -> None:
        with self._changed:
            for runner in runners:
                runner.is_busy = False
            self._changed.notify_all()
