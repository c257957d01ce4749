"""`ThreadWatch`: how long something took, and whether anything came between.

A wall clock cannot tell a slow kernel from one that had to wait for a core. The scheduler can: it counts, for
every thread, the nanoseconds for which that could have run and did not. So a sample of 30 us during which
no thread waited is one of 30 us also beside a busy process, and one of 8 ms during which a thread waited for
8 ms says nothing. Nor does one for part of which no thread ran at all: the process was stopped, frozen, or
throttled by a quota.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")
TOLERATED = 0.02  # of a sample: what threads may have waited
SWITCH = 1e-3  # seconds that an involuntary switch counts for, where the system does not say how long it was
UNEASY = 1e-3  # seconds without a running thread that are no accident: waking one up does not take so long


class Sample(NamedTuple):
    """`waited` are the seconds for which threads waited for cores, `idle` those for which none ran."""

    seconds: float
    waited: float = 0.0
    idle: float = 0.0

    @property
    def disturbed(self) -> bool:
        """
        >>> Sample(30e-6).disturbed, Sample(8e-3, waited=7.9e-3).disturbed, Sample(60.0, idle=59.9).disturbed
        (False, True, True)
        """
        return self.waited + self.idle > TOLERATED * self.seconds

    @property
    def least(self) -> float:
        """What it would have taken at least without waiting."""
        return self.seconds - self.waited


class ThreadWatch:
    """Of the threads that this process has when it is made, or when `follow` was last called."""

    def __init__(self) -> None:
        self._accounts: dict[str, int] = {}  # open files, by thread
        self.follow()

    def follow(self) -> None:
        """Watch the threads that there are now."""
        present = set(os.listdir(TASKS)) if (TASKS / str(os.getpid()) / "schedstat").exists() else set()
        for thread in set(self._accounts) - present:
            os.close(self._accounts.pop(thread))
        for thread in present - set(self._accounts):
            try:
                self._accounts[thread] = os.open(TASKS / thread / "schedstat", os.O_RDONLY)
            except OSError:  # it has ended meanwhile
                pass

    def time(self, call: Callable[[], object]) -> Sample:
        """One sample: of what `call` does."""
        waited, ran = self._waited_seconds(), time.process_time()
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
        ran = time.process_time() - ran
        idle = seconds - ran if seconds - ran > UNEASY else 0.0
        return Sample(seconds, self._waited_seconds() - waited, idle)

    def _waited_seconds(self) -> float:
        """Seconds for which threads could have run and did not, since they began."""
        if not self._accounts:
            return SWITCH * resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        try:
            return sum(int(os.pread(file, 64, 0).split()[1]) for file in self._accounts.values()) / 1e9
        except ProcessLookupError:  # a thread has ended
            self.follow()
            return self._waited_seconds()
