"""Arrays in memory that processes share, each ending where a guard begins.

The memory is a file without a name. The process that made it keeps the arrays when another, that ran a
candidate, dies; a new one maps them again and nothing is computed twice.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence

import numpy as np

from ..runtime import ArgSpec

GUARD = 16 << 20  # costs addresses only; wide, because a stray access may be rows away
NONE, READ, WRITE = 0, 1, 2  # of mprotect


class Arena:
    """One array per spec. Without `fd` the memory is new, with it that of another process's arena."""

    def __init__(self, specs: Sequence[ArgSpec], fd: int | None = None) -> None:
        self._spans: list[tuple[int, int]] = []
        at = GUARD
        for spec in specs:
            pages = -(-spec.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            self._spans.append((at, at + pages))
            at += pages + GUARD
        if fd is None:
            fd = os.memfd_create("metaschedule-arena")
            os.ftruncate(fd, at)
        self.fd = fd
        self._map = mmap.mmap(self.fd, at)
        ends = [end for _, end in self._spans]
        self.arrays = [spec.array(self._map, end - spec.nbytes) for spec, end in zip(specs, ends)]
        # All of an array's memory, with what is between its elements, as bytes.
        self.bytes = [
            np.ndarray(spec.nbytes, np.uint8, self._map, end - spec.nbytes) for spec, end in zip(specs, ends)
        ]

    def protect(self, writable: range) -> None:
        """From now on this process faults on writing to other arrays than those, and on the guards."""
        libc = ctypes.CDLL(None, use_errno=True)

        def set_access(begin: int, end: int, access: int) -> None:
            if libc.mprotect(ctypes.c_void_p(base + begin), ctypes.c_size_t(end - begin), access):
                raise OSError(ctypes.get_errno(), "mprotect")

        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        set_access(0, len(self._map), NONE)
        for i, (begin, end) in enumerate(self._spans):
            if end > begin:
                set_access(begin, end, READ | WRITE if i in writable else READ)

    def close(self) -> None:
        """Give memory and file back; nobody may hold one of the arrays any more."""
        self.arrays.clear()
        self.bytes.clear()
        self._map.close()
        os.close(self.fd)
