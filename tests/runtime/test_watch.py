"""Fingerprints of memory show a change of any byte."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.runtime.watch import MemoryWatch, WatchedObjects


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 88, 168, 184, 200])
def test_a_change_of_any_byte_shows(size: int) -> None:
    memory = np.random.default_rng(size).integers(0, 256, 3 * 256, dtype=np.uint8)
    starts = [1, 256, 515]  # aligned or not
    regions = [(memory.ctypes.data + start, size) for start in starts]
    watch = MemoryWatch(regions)
    watched = np.concatenate([np.arange(start, start + size) for start in starts])
    for at in watched:
        memory[at] ^= 1 << at % 8
        assert not watch.is_same(), at
        memory[at] ^= 1 << at % 8
    others = np.setdiff1d(np.arange(memory.size), watched)
    memory[others] += 1
    assert watch.is_same()


def test_regions_that_change_places_show() -> None:
    memory = np.random.default_rng(0).integers(0, 256, (200, 64), dtype=np.uint8)
    watch = MemoryWatch([(row.ctypes.data, 64) for row in memory])
    memory[[3, 150]] = memory[[150, 3]]
    assert not watch.is_same()


def test_samples_are_not_read_when_headers_changed() -> None:
    header = np.zeros(1)
    objects = WatchedObjects([0], [header], MemoryWatch([(header.ctypes.data, 8)]), MemoryWatch([]))
    assert objects.are_same([header])
    gone = WatchedObjects([0], [header], MemoryWatch([(header.ctypes.data, 8)]), MemoryWatch([]))
    gone._watched.samples_count = 1 << 20  # whoever reads these dies
    header[0] = 1
    assert not gone.are_same([header])
