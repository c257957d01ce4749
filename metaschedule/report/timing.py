"""Timing of calls from Python that allocate their results, fair to both sides."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Make malloc reuse what was freed and give nothing back to the system.

    Otherwise chance decides whether the pages of a large result are new at every call: a convolution of torch
    with 3 MB of output took 2.7 ms with old ones and 10 ms with new ones.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def fastest(call: Callable[[], object], seconds: float) -> float:
    """The shortest of the calls that begin within this time, of one at least."""
    best, now = float("inf"), time.perf_counter()
    end = now + seconds
    while now < end:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
    return best
