"""Tensors out of shapes and numbers."""

from __future__ import annotations

import torch

from ..errors import Unsupported
from ..registry import Tensor, operator
from ..tensors import constant, dtype_of, ints, number


@operator("Constant")
def make_constant(
    *,
    value: Tensor | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    sparse_value: Tensor | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Tensor:
    for tensor in (value, sparse_value):
        if tensor is not None:
            return tensor
    for numbers, dtype in (
        (value_float, torch.float32), (value_floats, torch.float32),
        (value_int, torch.int64), (value_ints, torch.int64),
    ):  # fmt: skip
        if numbers is not None:
            return torch.tensor(numbers, dtype=dtype)
    raise Unsupported("Constant of strings")


@operator("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return constant(list(x.shape)[start:end], torch.int64)


@operator("Size")
def size(x: Tensor) -> Tensor:
    return constant(x.numel(), torch.int64)


@operator("ConstantOfShape")
def constant_of_shape(shape: Tensor, *, value: Tensor | None = None) -> Tensor:
    extents = ints(shape, "the shape of a constant")
    if value is None:
        return torch.zeros(extents)
    return value.reshape(()).expand(extents).clone()


@operator("Range")
def make_range(start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    first, end, by = (number(t, "the limits of Range") for t in (start, limit, step))
    count = max(0, -int(-(end - first) // by)) if by else 0
    return (
        torch.arange(count, dtype=torch.float64 if start.is_floating_point() else torch.int64) * by + first
    ).to(start.dtype)


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = (torch.arange(n) for n in x.shape)
    on_it = columns - rows[:, None] == k
    return on_it.to(x.dtype if dtype is None else dtype_of(dtype))


@operator("OneHot")
def one_hot(indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(number(depth, "the depth of OneHot"))
    rank = indices.ndim + 1
    place = indices.to(torch.int64)
    place = torch.where(place < 0, place + count, place).unsqueeze(axis % rank)
    numbers = torch.arange(count).reshape([-1] + [1] * (rank - 1 - axis % rank))
    return torch.where(place == numbers, values[1], values[0])


@operator("Trilu")
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(number(k, "the diagonal of Trilu"))
    rows, columns = (torch.arange(n) for n in x.shape[-2:])
    away = columns - rows[:, None]
    return torch.where(away >= diagonal if upper else away <= diagonal, x, torch.zeros_like(x))
