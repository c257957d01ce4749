"""Whether memory is as it was: fingerprints of many small regions, read natively.

Regions are prefetched before they are read: thousands that no cache holds cost what the memory can deliver,
not what they cost one after the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .layout import Region, Watched
from .native import native_module

LINE = 64  # bytes of a cache line


class MemoryWatch:
    """Regions of memory and their fingerprint when this was made. The caller sees to it that they can be
    read.

    >>> import numpy as np
    >>> a = np.zeros(5, "float32")
    >>> watch = MemoryWatch([(a.ctypes.data, a.nbytes)])
    >>> watch.is_same()
    True
    >>> a[4] = -0.0
    >>> watch.is_same()
    False
    """

    def __init__(self, regions: Sequence[tuple[int, int]]) -> None:
        self.regions = [region for region in regions if region[1] > 0]
        self.table = (Region * len(self.regions))(*self.regions)
        self.fingerprint = self._digest()

    def _digest(self) -> int:
        return native_module().digest(self.table, len(self.table))

    def is_same(self) -> bool:
        return self._digest() == self.fingerprint


class WatchedObjects:
    """Objects that stand at certain places of a list, with two sets of regions. The second set is read only
    if the objects are still there and the first set is as it was.

    >>> import numpy as np
    >>> a, b = np.zeros(5), "b"
    >>> objects = WatchedObjects([1], [a], MemoryWatch([]), MemoryWatch([(a.ctypes.data, a.nbytes)]))
    >>> objects.are_same([b, a]), objects.are_same([a, b])
    (True, False)
    >>> a[2] = 1
    >>> objects.are_same([b, a])
    False
    """

    def __init__(
        self, places: Sequence[int], objects: Sequence[object], headers: MemoryWatch, samples: MemoryWatch
    ) -> None:
        self._kept = (objects, headers, samples)
        count = len(objects)
        self._watched = Watched(
            (ctypes.c_int64 * count)(*places), (ctypes.c_void_p * count)(*map(id, objects)), count,
            headers.table, len(headers.table), headers.fingerprint,
            samples.table, len(samples.table), samples.fingerprint,
        )  # fmt: skip
        self._at = ctypes.addressof(self._watched)
        self._are_same = native_module().are_same

    def are_same(self, items: list[Any]) -> bool:
        return self._are_same(items, self._at) == 1
