"""Views: other shapes of the same elements in the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import te
from ...ir import Expr, const
from ..lowering import Kind, lowers

aten = torch.ops.aten


def reshaped(x: te.Tensor, shape: Sequence[int], name: str = "view") -> te.Tensor:
    """`x` with another shape. Dimensions that both have stay as they are, so that the indices of the others
    are divided no more than needed."""
    groups = common_groups(x.shape, tuple(shape))

    def element(*i: Expr) -> Expr:
        index: list[Expr] = []
        for old, new in groups:
            flat: Expr = const(0)
            for at in new:
                flat = flat * shape[at] + i[at]
            index += digits(flat, [x.shape[d] for d in old])
        return x[tuple(index)]

    return te.compute(tuple(shape), element, name=name)


def common_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """The shortest runs of dimensions of both shapes that hold equally many elements.

    >>> common_groups((2, 3, 4), (2, 12))
    [(range(0, 1), range(0, 1)), (range(1, 3), range(1, 2))]
    """
    if math.prod(old) == 0:
        return [(range(len(old)), range(len(new)))]
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        size_i = size_j = 1
        if i < len(old):
            size_i, i = old[i], i + 1
        if j < len(new):
            size_j, j = new[j], j + 1
        while size_i != size_j:
            if size_i < size_j:
                size_i, i = size_i * old[i], i + 1
            else:
                size_j, j = size_j * new[j], j + 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def digits(flat: Expr, extents: Sequence[int]) -> list[Expr]:
    """The indices of an element, given its position in row-major order."""
    found: list[Expr] = []
    stride = math.prod(extents)
    for at, extent in enumerate(extents):
        stride //= max(extent, 1)
        digit = const(0) if extent == 1 else flat // stride
        found.append(digit % extent if at and extent > 1 else digit)
    return found


@lowers(aten.view.default, aten._unsafe_view.default, aten.reshape.default, kind=Kind.VIEW)
def view(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    rest = math.prod(n for n in shape if n != -1)
    known = math.prod(x.shape) // rest if rest else 0
    return reshaped(x, [known if n == -1 else n for n in shape])
