"""Buffers and rectangular regions of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import check_dtype, is_integer, numpy_dtype
from .expr import Const, Expr, Load, as_expr
from .layout import Layout, dense_strides, normal_strides, reach

# Where memory lives. "global" is the caller's or the workspace; the others are hints to lowering.
SCOPES = ("global", "local", "shared", "warp")


@dataclass(eq=False, slots=True)
class Buffer:
    """A tensor in memory: dense and row-major, unless `layout` says otherwise.

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
    layout: Layout | None = None  # None: dense and row-major; what means the same is None, too

    def __post_init__(self) -> None:
        self.shape = check_shape(self.shape, self.name)
        self.dtype = check_dtype(self.dtype)
        if self.scope not in SCOPES:
            raise ValueError(f"buffer {self.name}: unknown scope {self.scope!r}; known: {SCOPES}")
        if self.layout is not None:
            self.layout = self.check_layout(self.layout)
        if math.prod([max(1, n) for n in self.shape]) * numpy_dtype(self.dtype).itemsize >= 2**63:
            raise ValueError(f"{self.name}: the bytes of shape {self.shape} do not fit 63 bits")
        if self.data is not None and self.data.shape != self.shape:
            raise ValueError(f"table {self.name}: data of shape {self.data.shape}, not {self.shape}")

    def check_layout(self, layout: Layout) -> Layout | None:
        """The layout spelled as all that mean the same are."""
        if not isinstance(layout, Layout):
            raise TypeError(f"{self.name}: expected an ir.Layout, got {layout!r}")
        if len(layout.strides) != len(self.shape):
            raise ValueError(f"{self.name}: strides {layout.strides} for shape {self.shape}")
        if self.data is not None:
            raise ValueError(f"table {self.name}: embedded values are dense and row-major")
        strides = normal_strides(self.shape, layout.strides)
        low, high = reach(self.shape, strides or dense_strides(self.shape))
        size = numpy_dtype(self.dtype).itemsize
        if max(-low, high, abs(layout.offset + low), abs(layout.offset + high)) * size >= 2**63:
            raise ValueError(f"{self.name}: the bytes of {layout} do not fit 63 bits")
        if strides is None and not layout.offset:
            return None
        return Layout(strides or dense_strides(self.shape), layout.offset)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements of memory it is to the next one, in each dimension."""
        return dense_strides(self.shape) if self.layout is None else self.layout.strides

    @property
    def offset(self) -> int:
        """How many elements behind the start of its memory the first one is."""
        return 0 if self.layout is None else self.layout.offset

    @property
    def room(self) -> int:
        """Number of elements that its memory has room for, gaps included."""
        if self.layout is None or not self.size:
            return self.size
        return self.layout.offset + reach(self.shape, self.layout.strides)[1]

    @property
    def item_bytes(self) -> int:
        """Of an element."""
        return numpy_dtype(self.dtype).itemsize

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
