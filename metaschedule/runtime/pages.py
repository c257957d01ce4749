"""Memory on large pages.

Caches are indexed by physical addresses. On pages of 4 KiB it is a matter of luck which lines of an array
compete for a place, and a kernel that streams through a few megabytes takes half as long again in one process
as in the next; on large pages neighbours in an array are neighbours in the cache.
"""

from __future__ import annotations

import math
import mmap

import numpy as np

LARGE = 2 << 20  # bytes


def zeros(nbytes: int) -> np.ndarray:
    """Zeroed bytes; on large pages if there are enough of them and the system lets us.

    >>> zeros(10 * LARGE).ctypes.data % LARGE
    0
    """
    if nbytes < LARGE // 4 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(nbytes, np.uint8)
    size = -(-nbytes // LARGE) * LARGE
    memory = mmap.mmap(-1, size + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(memory, np.uint8)
    first = -data.ctypes.data % LARGE
    return data[first : first + nbytes]


def array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A zeroed array in such memory.

    >>> array((3, 5), np.dtype("float32")).sum()
    np.float32(0.0)
    """
    return zeros(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
