"""Weights that come from memory.

Between two calls of a kernel its model uses the weights of all other layers, so that its own are no longer in
a cache, while the data comes from the kernel before. A kernel that reads weights row by row of a wide matrix
may win with warm weights, and take half as long again in a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Program, numpy_dtype
from ..runtime import pages
from ..target import Target

LINE = 64  # bytes: one is read in each
MOST = 256 << 20  # bytes that are read before a call


def cold_inputs(program: Program, target: Target) -> list[int]:
    """The numbers of the inputs that are weights, where they are too many to stay near the core."""
    weights = [n for n, b in enumerate(program.inputs) if b.constant]
    sizes = [program.inputs[n].size * numpy_dtype(program.inputs[n].dtype).itemsize for n in weights]
    return weights if sum(sizes) > target.l2 // 2 else []


class Cooler:
    """Drives everything out of a cache of this size, as far as that takes no longer than a trial may, except
    what is named."""

    def __init__(self, cache: int) -> None:
        self._other = pages.zeros(min(2 * cache, MOST))
        self._other.fill(1)  # pages that were never written share one in memory

    def __call__(self, warm: Sequence[np.ndarray]) -> None:
        for array in (self._other, *warm):
            array.reshape(-1).view(np.uint8)[::LINE].sum()
