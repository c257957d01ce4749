"""Buffers and rectangular regions of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import check_dtype, is_integer, numpy_dtype
from .expr import Const, Expr, Load, as_expr

# Where memory lives. "global" is the caller's or the workspace; the others are hints to lowering.
SCOPES = ("global", "local", "shared", "warp")


@dataclass(eq=False, slots=True)
class Buffer:
    """A dense, row-major tensor.

    `constant` marks a parameter whose values are fixed when the kernel is built (weights): only the
    flag is part of a program's identity. `data` embeds a small table in the program itself, values
    and all.

    >>> a = Buffer("A", (4, 8), "float32")
    >>> str(a[1, 2] + 1.0)
    'A[1, 2] + 1.0'
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    scope: str = "global"
    constant: bool = False
    data: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.shape = check_shape(self.shape, self.name)
        self.dtype = check_dtype(self.dtype)
        if self.scope not in SCOPES:
            raise ValueError(f"buffer {self.name}: unknown scope {self.scope!r}; known: {SCOPES}")
        if math.prod([max(1, n) for n in self.shape]) * numpy_dtype(self.dtype).itemsize >= 2**63:
            raise ValueError(f"{self.name}: the bytes of shape {self.shape} do not fit 63 bits")
        if self.data is not None and self.data.shape != self.shape:
            raise ValueError(f"table {self.name}: data of shape {self.data.shape}, not {self.shape}")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __getitem__(self, indices: Any) -> Load:
        return load(self, indices)

    def region(self, *ranges: Any) -> Region:
        """A region by one index, or one (start, extent) pair, per dimension."""
        pairs = [r if isinstance(r, tuple) else (r, 1) for r in ranges]
        return Region(self, tuple((as_expr(start), as_expr(extent)) for start, extent in pairs))

    def whole(self) -> Region:
        """The region that is the whole buffer."""
        return self.region(*((0, extent) for extent in self.shape))


@dataclass(eq=False, slots=True)
class Region:
    """A box of a buffer: per dimension the first index and the number of indices."""

    buffer: Buffer
    ranges: tuple[tuple[Expr, Expr], ...]


def check_shape(shape: Any, name: str) -> tuple[int, ...]:
    """A shape as a tuple of ints; a single int is a vector."""
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise TypeError(f"{name}: shape must be a tuple of integers, got {shape!r}")
    extents: list[int] = []
    for extent in shape:
        if isinstance(extent, Const) and is_integer(extent.dtype):
            extent = extent.value
        if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)):
            raise TypeError(
                f"{name}: every extent of a shape must be a known integer, got {extent!r} in "
                f"{tuple(shape)!r}; dynamic shapes are not supported: make one program per shape"
            )
        if extent < 0:
            raise ValueError(f"{name}: negative extent {extent} in shape {tuple(shape)!r}")
        extents.append(int(extent))
    return tuple(extents)


def aligned(shape: tuple[int, ...], axis: int, factor: int, offset: int) -> tuple[int, ...] | None:
    """The shape with the dimension after `axis` grown until neighbours along `axis` are `offset` modulo
    `factor` elements apart; None if no size gives that.

    >>> aligned((5, 7), axis=0, factor=8, offset=1)
    (5, 9)
    """
    size, below = shape[axis + 1], math.prod(shape[axis + 2 :])
    # n * below = offset (mod factor), solved for the smallest n from `size` on.
    common = math.gcd(below, factor)
    if offset % common:
        return None
    period = factor // common
    first = offset // common * pow(below // common, -1, period)
    return (*shape[: axis + 1], size + (first - size) % period, *shape[axis + 2 :])


def load(buffer: Buffer, indices: Any) -> Load:
    """The element of `buffer` at `indices` (one, or a tuple of as many as it has dimensions)."""
    return Load(buffer, check_indices(buffer, indices))


def check_indices(buffer: Buffer, indices: Any) -> tuple[Expr, ...]:
    if not isinstance(indices, tuple):
        indices = (indices,)
    exprs = tuple([as_expr(index) for index in indices])
    if len(exprs) != len(buffer.shape):
        raise IndexError(f"{buffer.name} has {len(buffer.shape)} dimension(s), indexed with {len(exprs)}")
    for expr in exprs:
        if not is_integer(expr.dtype):
            raise TypeError(f"index of {buffer.name} must be an integer, got {expr.dtype}: {expr}")
    return exprs
