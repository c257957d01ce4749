"""Whether memory is as it was: fingerprints of many small regions, read natively.

Regions are prefetched before they are read: thousands that no cache holds cost what the memory can deliver,
not what they cost one after the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from metaschedule.target import native

from .compile import compile_object
from .loader import load_object
from .watch_text import TEXT

LINE = 64  # bytes of a cache line
Region = tuple[int, int]  # an address and a number of bytes


class Watcher:
    """The compiled functions."""

    def __init__(self) -> None:
        get_item = ctypes.cast(ctypes.pythonapi.PyList_GetItem, ctypes.c_void_p).value or 0
        code = compile_object(TEXT, native(), opt=2)
        self._loaded = load_object(code, ("digest", "are_same"), {"PyList_GetItem": get_item})
        pointer, i64, function = ctypes.c_void_p, ctypes.c_int64, ctypes.PYFUNCTYPE
        self.digest: Any = function(i64, pointer, i64)(self._loaded["digest"])
        self.are_same: Any = function(i64, ctypes.py_object, pointer)(self._loaded["are_same"])


@cache
def watcher() -> Watcher:
    return Watcher()


class Watch:
    """Regions of memory and their fingerprint when this was made. The caller sees to it that they can be
    read.

    >>> a = np.zeros(5, "float32")
    >>> watch = Watch([(a.ctypes.data, a.nbytes)])
    >>> watch.is_same()
    True
    >>> a[4] = -0.0
    >>> watch.is_same()
    False
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = [region for region in regions if region[1] > 0]
        self.table = np.array(self.regions, "int64").reshape(-1, 2)
        self.fingerprint = self._digest()

    def _digest(self) -> int:
        return watcher().digest(self.table.ctypes.data, len(self.table))

    def is_same(self) -> bool:
        return self._digest() == self.fingerprint


class WatchedObjects:
    """Objects that stand at certain places of a list, with two sets of regions. The second set is read only
    if the objects are still there and the first set is as it was.

    >>> a, b = np.zeros(5), "b"
    >>> objects = WatchedObjects([1], [a], Watch([]), Watch([(a.ctypes.data, a.nbytes)]))
    >>> objects.are_same([b, a]), objects.are_same([a, b])
    (True, False)
    >>> a[2] = 1
    >>> objects.are_same([b, a])
    False
    """

    def __init__(
        self, places: Sequence[int], objects: Sequence[object], headers: Watch, samples: Watch
    ) -> None:
        self._kept = (objects, headers, samples)
        self._places = np.array(places, "int64")
        self._ids = np.array([id(one) for one in objects], "int64")
        fields = [self._places.ctypes.data, self._ids.ctypes.data, len(self._ids)]
        for watch in (headers, samples):
            fields += [watch.table.ctypes.data, len(watch.table), watch.fingerprint]
        self._table = np.array(fields, "int64")
        self._at = self._table.ctypes.data
        self._are_same = watcher().are_same

    def are_same(self, items: list[Any]) -> bool:
        return self._are_same(items, self._at) == 1
