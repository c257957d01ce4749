"""Work beside the calls of a model: kernels that are compiled while eager runs.

A thread for each graph, of which the first call of new shapes starts one. When the process ends it is told to
stop and waited for, which takes no longer than one kernel.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

import torch

from ..measure.build import Cancelled

log = logging.getLogger("metaschedule")


class Background:
    """One thing at a time. `failure` is what the last one raised, until somebody takes it."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failure: Exception | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], object]) -> bool:
        """Begin with `work`, unless something else is being done; whether it was begun."""
        with self._lock:
            if self._thread is not None or self.stop.is_set():
                return False
            # Daemons are not waited for before `stop_all` is called.
            self._thread = threading.Thread(target=self._run, args=(work,), daemon=True, name="metaschedule")
            RUNNING.add(self)
            self._thread.start()
            return True

    def _run(self, work: Callable[[], object]) -> None:
        try:
            with torch.no_grad():
                work()
        except Cancelled:
            log.debug("compiling in the background was cancelled")
        except Exception as error:  # for the next call to raise
            self.failure = error
        finally:
            with self._lock:
                self._thread = None
                RUNNING.discard(self)

    def take_failure(self) -> Exception | None:
        found, self.failure = self.failure, None
        return found

    def wait(self, seconds: float | None = None) -> bool:
        """Whether nothing is being done, now or after so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()


RUNNING: set[Background] = set()


def wait_for_all() -> None:
    """Until nothing is compiled in the background."""
    for one in list(RUNNING):
        one.wait()


def begin_anew() -> None:
    """In a forked process nothing is being done: threads stay with the parent."""
    for one in list(RUNNING):
        one._thread, one._lock = None, threading.Lock()
    RUNNING.clear()


os.register_at_fork(after_in_child=begin_anew)


@atexit.register
def stop_all() -> None:
    for one in list(RUNNING):
        one.stop.set()
    wait_for_all()
