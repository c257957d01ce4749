"""Views: other shapes of the same elements in the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ... import te
from ...ir import Expr, const
from ..lowering import Kind, NotLowered, lowers

aten = torch.ops.aten


def reshape(x: te.Tensor, shape: Sequence[int], name: str = "view") -> te.Tensor:
    """`x` with another shape. Dimensions that both have stay as they are, so that the indices of the others
    are divided no more than needed."""
    shape = tuple(shape)
    groups = common_groups(x.shape, shape)

    def element(*i: Expr) -> Expr:
        index: list[Expr] = []
        for old, new in groups:
            flat: Expr = const(0)
            for at in new:
                flat = flat * shape[at] + i[at]
            index += digits(flat, [x.shape[d] for d in old])
        return x[tuple(index)]

    return te.compute(shape, element, name=name)


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
    """The indices of an element, given its position in row-major order.

    >>> from metaschedule.ir import Var
    >>> [str(d) for d in digits(Var("i"), (2, 1, 3))]
    ['i // 3', '0', 'i % 3']
    """
    found: list[Expr] = []
    stride = math.prod(extents)
    first = True
    for extent in extents:
        if extent <= 1:
            found.append(const(0))
            continue
        stride //= extent
        digit = flat // stride
        found.append(digit if first else digit % extent)
        first = False
    return found


def wrap_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front; of a tensor without dimensions torch allows 0 and -1."""
    return dim % rank if rank else 0


@lowers(
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.view_copy.default),
    kind=Kind.VIEW,
)
def view(x: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    rest = math.prod(n for n in shape if n != -1)
    known = math.prod(x.shape) // rest if rest else 0
    return reshape(x, [known if n == -1 else n for n in shape])


@lowers(aten.flatten.using_ints, kind=Kind.VIEW)
def flatten(x: te.Tensor, start: int, end: int) -> te.Tensor:
    start, end = wrap_dim(start, x.ndim), wrap_dim(end, x.ndim)
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


@lowers(aten.unflatten.int, kind=Kind.VIEW)
def unflatten(x: te.Tensor, dim: int, sizes: Sequence[int]) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim)
    return view(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@lowers(aten.unsqueeze.default, kind=Kind.VIEW)
def unsqueeze(x: te.Tensor, dim: int) -> te.Tensor:
    dim = wrap_dim(dim, x.ndim + 1)
    return reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))


@lowers(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, kind=Kind.VIEW)
def squeeze(x: te.Tensor, dims: int | Sequence[int] | None = None) -> te.Tensor:
    if dims is None:
        dims = range(x.ndim)
    named = {wrap_dim(d, x.ndim) for d in ([dims] if isinstance(dims, int) else dims)}
    return reshape(x, [n for d, n in enumerate(x.shape) if d not in named or n != 1])


@lowers(
    *(aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default),
    aten.lift_fresh_copy.default,
    kind=Kind.VIEW,
)
def identity(x: te.Tensor) -> te.Tensor:
    return reshape(x, x.shape)


@lowers(aten.dropout.default, kind=Kind.VIEW)
def dropout(x: te.Tensor, probability: float, train: bool) -> te.Tensor:
    if train and probability > 0:
        raise NotLowered("dropout while training needs random numbers")
    return identity(x)
