"""Fewer full collections of garbage while a program is scheduled.

Schedules hold many small records for a while, none of them in cycles, and Python takes every 70,000 more of
them for a reason to look at all objects that there are. Of a program of 512 stages that all differ this was
a third of the time, and grew with the square of the stages. Young objects are collected as ever.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RARER = 20  # times


class Users:
    """How many ask for it now, and the thresholds to go back to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.before = gc.get_threshold()


USERS = Users()


def forget_users() -> None:
    """In a forked process: the threads that would have ended it stay with the parent."""
    if USERS.count:
        gc.set_threshold(*USERS.before)
    USERS.__init__()


os.register_at_fork(after_in_child=forget_users)


@contextmanager
def rare_collections() -> Iterator[None]:
    """
    >>> before = gc.get_threshold()
    >>> with rare_collections():
    ...     gc.get_threshold()[2] == before[2] * RARER
    True
    >>> gc.get_threshold() == before
    True
    """
    with USERS.lock:
        if not USERS.count:
            USERS.before = gc.get_threshold()
            gc.set_threshold(*USERS.before[:2], USERS.before[2] * RARER)
        USERS.count += 1
    try:
        yield
    finally:
        with USERS.lock:
            USERS.count -= 1
            if not USERS.count:
                gc.set_threshold(*USERS.before)
