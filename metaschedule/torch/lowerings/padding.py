"""Padding: by a constant, by the border, by reflection."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ... import te
from ...ir import Expr, Operand
from ..lowering import Kind, lowers

aten = torch.ops.aten

Sides = Sequence[tuple[int, int]]  # how much before and after, for each dimension


def pad_constant(x: te.Tensor, sides: Sides, value: Operand = 0) -> te.Tensor:
    """`x` with `value` around it (or less of it, where a side is negative); `x` itself if there is none.

    >>> pad_constant(te.placeholder((2, 3), name="x"), [(0, 0), (1, 1)])
    <tensor pad: float32[2, 5], elements are pad[i0, i1]>
    """
    if not any(low or high for low, high in sides):
        return x

    def element(*i: Expr) -> Expr:
        inside: list[Expr] = []
        for v, n, (low, high) in zip(i, x.shape, sides, strict=True):
            inside += [v >= low] if low > 0 else []
            inside += [v < n + low] if high > 0 else []
        index = tuple([v - low for v, (low, _) in zip(i, sides, strict=True)])
        return te.select(te.all_of(inside), x[index], value) if inside else x[index]

    shape = [n + low + high for n, (low, high) in zip(x.shape, sides, strict=True)]
    return te.compute(shape, element, name="pad")


def sides_of(x: te.Tensor, pad: Sequence[int]) -> Sides:
    """torch's list, which goes from the last dimension backwards."""
    last = [(pad[at], pad[at + 1]) for at in range(0, len(pad), 2)]
    return [(0, 0)] * (x.ndim - len(last)) + last[::-1]


@lowers(aten.constant_pad_nd.default, kind=Kind.INJECTIVE)
def constant_pad(x: te.Tensor, pad: Sequence[int], value: float) -> te.Tensor:
    sides = sides_of(x, pad)
    if any(low or high for low, high in sides):
        return pad_constant(x, sides, te.constant(value, x.dtype))
    return te.compute(x.shape, lambda *i: x[i], name="pad")


@lowers(
    *(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default),
    kind=Kind.INJECTIVE,
)
def reflection_pad(x: te.Tensor, pad: Sequence[int]) -> te.Tensor:
    sides = sides_of(x, pad)

    def reflect(i: Expr, extent: int, low: int, high: int) -> Expr:
        if low:
            i = te.abs(i - low)
        return extent - 1 - te.abs(extent - 1 - i) if high else i

    return around(x, sides, reflect, "reflection_pad")


@lowers(
    *(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default),
    kind=Kind.INJECTIVE,
)
def replication_pad(x: te.Tensor, pad: Sequence[int]) -> te.Tensor:
    def nearest(i: Expr, extent: int, low: int, high: int) -> Expr:
        if low:
            i = te.maximum(i - low, 0)
        return te.minimum(i, extent - 1) if high else i

    return around(x, sides_of(x, pad), nearest, "replication_pad")


def around(x: te.Tensor, sides: Sides, source: Callable[..., Expr], name: str) -> te.Tensor:
    """`x` extended on its `sides`; `source(i, extent, low, high)` is the index to read for each index."""
    shape = [n + low + high for n, (low, high) in zip(x.shape, sides, strict=True)]

    def element(*i: Expr) -> Expr:
        return x[tuple([source(v, n, *side) for v, n, side in zip(i, x.shape, sides, strict=True)])]

    return te.compute(shape, element, name=name)
