"""Tensors from nothing but numbers, and conversions of dtype."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import te
from ...ir import Expr, const, is_float
from ..dtypes import dtype_name, torch_dtype
from ..lowering import Kind, lowers
from .pointwise import broadcast

aten = torch.ops.aten
prims = torch.ops.prims


@lowers(aten.full.default, kind=Kind.ELEMENTWISE)
def full(shape: Sequence[int], value: float, dtype: torch.dtype | None = None) -> te.Tensor:
    number = torch.tensor(value, dtype=dtype)
    element = const(number.item(), dtype_name(number.dtype))
    return te.compute(tuple(shape), lambda *i: element, name="full")


@lowers(aten.scalar_tensor.default, kind=Kind.ELEMENTWISE)
def scalar_tensor(value: float, dtype: torch.dtype | None = None) -> te.Tensor:
    return full((), value, dtype or torch.get_default_dtype())


@lowers(
    *(aten.zeros.default, aten.empty.memory_format, aten.empty_strided.default),
    kind=Kind.ELEMENTWISE,
)
def zeros(shape: Sequence[int], *strides: Sequence[int], dtype: torch.dtype | None = None) -> te.Tensor:
    return full(shape, 0, dtype or torch.get_default_dtype())


@lowers(aten.ones.default, kind=Kind.ELEMENTWISE)
def ones(shape: Sequence[int], dtype: torch.dtype | None = None) -> te.Tensor:
    return full(shape, 1, dtype or torch.get_default_dtype())


@lowers(aten.full_like.default, aten.fill.Scalar, kind=Kind.ELEMENTWISE)
def full_like(x: te.Tensor, value: float, dtype: torch.dtype | None = None) -> te.Tensor:
    return full(x.shape, value, dtype or torch_dtype(x.dtype))


@lowers(aten.zeros_like.default, aten.empty_like.default, kind=Kind.ELEMENTWISE)
def zeros_like(x: te.Tensor, dtype: torch.dtype | None = None) -> te.Tensor:
    return full_like(x, 0, dtype)


@lowers(aten.ones_like.default, kind=Kind.ELEMENTWISE)
def ones_like(x: te.Tensor, dtype: torch.dtype | None = None) -> te.Tensor:
    return full_like(x, 1, dtype)


@lowers(aten.new_full.default, kind=Kind.INJECTIVE)
def new_full(x: te.Tensor, shape: Sequence[int], value: float, dtype: torch.dtype | None = None) -> te.Tensor:
    return full(shape, value, dtype or torch_dtype(x.dtype))


@lowers(
    *(aten.new_zeros.default, aten.new_empty.default, aten.new_empty_strided.default),
    kind=Kind.INJECTIVE,
)
def new_zeros(
    x: te.Tensor, shape: Sequence[int], *strides: Sequence[int], dtype: torch.dtype | None = None
) -> te.Tensor:
    return new_full(x, shape, 0, dtype)


@lowers(aten.new_ones.default, kind=Kind.INJECTIVE)
def new_ones(x: te.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> te.Tensor:
    return new_full(x, shape, 1, dtype)


@lowers(aten.arange.start_step, aten.arange.start, kind=Kind.ELEMENTWISE)
def arange(start: float, end: float, step: float = 1, dtype: torch.dtype | None = None) -> te.Tensor:
    """As torch does it: integers exactly, other numbers in float64 and rounded at the end."""
    like = torch.arange(start, end, step, dtype=dtype, device="meta")
    kind = dtype_name(like.dtype)

    def element(i: Expr) -> Expr:
        if is_float(kind):
            return te.cast(float(start) + te.cast(i, "float64") * float(step), kind)
        return te.cast(int(start) + i * int(step), kind)

    return te.compute(like.shape, element, name="arange")


@lowers(aten.arange.default, kind=Kind.ELEMENTWISE)
def arange_from_zero(end: float, dtype: torch.dtype | None = None) -> te.Tensor:
    return arange(0, end, 1, dtype)


@lowers(prims.iota.default, kind=Kind.ELEMENTWISE)
def iota(length: int, start: int, step: int, dtype: torch.dtype, requires_grad: bool) -> te.Tensor:
    kind = dtype_name(dtype)
    return te.compute((length,), lambda i: te.cast(start + i * step, kind), name="iota")


@lowers(aten.linspace.default, kind=Kind.ELEMENTWISE)
def linspace(start: float, end: float, steps: int, dtype: torch.dtype | None = None) -> te.Tensor:
    kind = dtype_name(dtype or torch.get_default_dtype())
    step = (end - start) / max(steps - 1, 1)

    def element(i: Expr) -> Expr:
        back = float(end) - te.cast(steps - 1 - i, "float64") * step
        return te.cast(te.select(i < steps // 2, float(start) + te.cast(i, "float64") * step, back), kind)

    if steps == 1:
        return full((1,), start, torch_dtype(kind))
    return te.compute((steps,), element, name="linspace")


@lowers(aten.eye.default, aten.eye.m, kind=Kind.ELEMENTWISE)
def eye(rows: int, columns: int | None = None, dtype: torch.dtype | None = None) -> te.Tensor:
    kind = dtype_name(dtype or torch.get_default_dtype())
    shape = (rows, rows if columns is None else columns)
    return te.compute(shape, lambda i, j: te.select(i == j, const(1, kind), const(0, kind)), name="eye")


@lowers(aten._to_copy.default, prims.convert_element_type.default, kind=Kind.ELEMENTWISE)
def to_copy(x: te.Tensor, dtype: torch.dtype | None = None) -> te.Tensor:
    kind = x.dtype if dtype is None else dtype_name(dtype)
    return te.compute(x.shape, lambda *i: te.cast(x[i], kind), name="cast")


@lowers(aten.copy.default, kind=Kind.ELEMENTWISE)
def copy(x: te.Tensor, source: te.Tensor) -> te.Tensor:
    kind = x.dtype
    return te.compute(x.shape, lambda *i: te.cast(broadcast(source, i, x.shape), kind), name="copy")
