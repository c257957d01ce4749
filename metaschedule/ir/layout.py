"""Layouts: how far apart the elements of a buffer are. Whatever computes an address asks here.

A shape says which elements there are, a layout where they are: padded rows, a transposed matrix, every
second column and a part of something larger are the same program over other strides. What lies *between* two
elements is nobody's business but the owner's of the memory: it is neither read nor written.

Strides are part of a program, the address of a parameter is not. `x[0]` and `x[7]` are one kernel called with
two addresses, so a parameter starts at its first element and has no offset. A buffer of the program's own has
one where its first element is not the lowest: `strides=(-1,), offset=7` are eight elements backwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_ENUMERATED = 1 << 20  # elements of which every address is looked at


@dataclass(frozen=True, slots=True)
class Layout:
    """Element (i, j) is `offset + strides[0] * i + strides[1] * j` elements behind where the memory starts.

    >>> rows = Layout(strides=(128, 2), offset=5)   # every second column of rows of 128
    >>> rows.offset + rows.strides[0] * 1 + rows.strides[1] * 3
    139
    """

    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        strides = self.strides
        if isinstance(strides, (int, np.integer)):
            strides = (strides,)
        if isinstance(strides, (str, bytes)) or not isinstance(strides, Sequence):
            raise TypeError(f"strides must be a tuple of integers, got {strides!r}")
        object.__setattr__(self, "strides", tuple([check_integer(n, "a stride") for n in strides]))
        object.__setattr__(self, "offset", check_integer(self.offset, "the offset"))

    def __str__(self) -> str:
        return f"strides {self.strides}" + (f" from {self.offset} on" if self.offset else "")


def check_integer(n: Any, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"{what} must be a known integer, got {n!r}")
    if not -(2**63) <= n < 2**63:
        raise ValueError(f"{what} does not fit 64 bits: {n}")
    return int(n)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major without gaps.

    >>> dense_strides((2, 3, 5))
    (15, 5, 1)
    """
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def normal_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """One spelling for strides that mean the same; None if they are dense and row-major.

    Nothing is a step along a dimension of extent 1; its stride is what it would be if inner ones were dense.

    >>> normal_strides((4, 1, 8), (16, 99, 2)), normal_strides((1, 8), (99, 1))
    ((16, 16, 2), None)
    """
    dense = dense_strides(shape)
    if 0 in shape:
        return None
    found = list(strides)
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1:
            found[d] = found[d + 1] * shape[d + 1] if d + 1 < len(shape) else 1
    return None if tuple(found) == dense else tuple(found)


def reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The lowest address, and the one behind the highest, as seen from the first element.

    >>> reach((4, 3), (8, 2)), reach((4, 3), (8, -2)), reach((0, 3), (8, 2))
    ((0, 29), (-4, 25), (0, 0))
    """
    if 0 in shape:
        return 0, 0
    ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum([end for end in ends if end < 0]), sum([end for end in ends if end > 0]) + 1


def may_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may be at one address; an answer is exact for up to a million elements.

    >>> may_overlap((4, 3), (3, 1)), may_overlap((4, 3), (2, 1)), may_overlap((2, 3), (3, 2))
    (False, True, False)
    """
    if math.prod(shape) < 2:
        return False
    # From the smallest stride up, a step must lead past all that the smaller ones reach: 3 > (3 - 1) * 1.
    reached, nested = 0, True
    for stride, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        nested = nested and stride > reached
        reached += stride * (extent - 1)
    if nested:
        return False
    if reached + 1 < math.prod(shape) or math.prod(shape) > MOST_ENUMERATED:
        return True
    return np.unique(addresses(shape, strides)).size < math.prod(shape)


def addresses(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Where every element is, as seen from the first.

    >>> addresses((2, 3), (10, 2)).tolist()
    [[0, 2, 4], [10, 12, 14]]
    """
    steps = [np.arange(n, dtype=np.int64) * stride for n, stride in zip(shape, strides, strict=True)]
    total = np.zeros((), np.int64)
    for step in steps:
        total = np.add.outer(total, step)
    return total


def strided_array(memory: np.ndarray, at: int, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """The elements as an array: element 0 is `memory[at]`. `memory` is one dimension, without gaps.

    >>> strided_array(np.arange(12), 1, (3, 2), (4, 2)).tolist()
    [[1, 3], [5, 7], [9, 11]]
    """
    size = memory.itemsize
    if 0 in shape:
        return np.empty(tuple(shape), memory.dtype)
    return np.ndarray(tuple(shape), memory.dtype, memory, at * size, [n * size for n in strides])


def aligned_strides(shape: tuple[int, ...], notes: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Row-major strides, rows padded such that, for every note (axis, factor, offset), neighbours along the
    axis are `offset` modulo `factor` elements apart. Those along the last axis stay 1 apart.

    >>> aligned_strides((5, 7), [(0, 8, 1)]), aligned_strides((2, 5, 7), [(1, 8, 0)])
    ((9, 1), (40, 8, 1))
    """
    strides: list[int] = []
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        for at, factor, offset in notes:
            if at == axis < len(shape) - 1:
                step += (offset - step) % factor
        strides.append(step)
        step *= shape[axis]
    return tuple(reversed(strides))
