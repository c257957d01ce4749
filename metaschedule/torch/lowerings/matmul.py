"""Matrix products: one expression for all ranks, and the forms that add to it."""

from __future__ import annotations

import torch

from ... import te
from ...ir import Expr, is_float
from ..dtypes import accumulator
from ..lowering import Kind, lowers
from .arithmetic import scaled
from .pointwise import broadcast, element_of

aten = torch.ops.aten


def wide_product(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x @ y` as NumPy has it: vectors, matrices and batches of them, which broadcast. Sums are not rounded
    to the dtype of the operands yet."""
    rows, columns = x.shape[-2:-1], y.shape[-1:] if y.ndim > 1 else ()
    batch = tuple(torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    k = te.reduce_axis(x.shape[-1], name="k")
    dtype = accumulator(x.dtype)

    def element(*i: Expr) -> Expr:
        outer, inner = i[: len(batch)], i[len(batch) :]
        left = broadcast(x, (*outer, *inner[: len(rows)], k), (*batch, *x.shape[-2:]))
        right = broadcast(y, (*outer, k, *inner[len(rows) :]), (*batch, *y.shape[-2:]))
        return te.sum(te.cast(left, dtype) * te.cast(right, dtype), axis=k)

    names = [*(f"b{d}" for d in range(len(batch))), *("i" for _ in rows), *("j" for _ in columns)]
    return te.compute(batch + rows + columns, element, name="matmul", axes=names)


def rounded(x: te.Tensor, dtype: str) -> te.Tensor:
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: te.cast(x[i], dtype), name="rounded")


@lowers(
    *(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.matmul.default),
    kind=Kind.HEAVY,
)
def matmul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return rounded(wide_product(x, y), x.dtype)


@lowers(aten.addmm.default, aten.baddbmm.default, aten.addmv.default, kind=Kind.HEAVY)
def add_product(term: te.Tensor, x: te.Tensor, y: te.Tensor, beta: float, alpha: float) -> te.Tensor:
    product = wide_product(x, y)
    if not is_float(x.dtype):
        beta = int(beta)  # as torch has it

    def element(*i: Expr) -> Expr:
        result = scaled(product[i], alpha)
        if beta != 0:  # else `term` is not read, and a NaN in it does not count
            result = result + scaled(element_of(term, i, product.shape, product.dtype), beta)
        return te.cast(result, x.dtype)

    return te.compute(product.shape, element, name="add")


@lowers(aten.linear.default, kind=Kind.HEAVY)
def linear(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """`x @ weight.T + bias`; the transposition is a matter of indices."""
    k = te.reduce_axis(x.shape[-1], name="k")
    dtype = accumulator(x.dtype)
    shape = x.shape[:-1] + weight.shape[:-1]

    def element(*i: Expr) -> Expr:
        batch, output = i[: x.ndim - 1], i[x.ndim - 1 :]
        return te.sum(te.cast(x[*batch, k], dtype) * te.cast(weight[*output, k], dtype), axis=k)

    product = te.compute(shape, element, name="matmul")
    if bias is None:
        return rounded(product, x.dtype)
    return te.compute(
        shape, lambda *i: te.cast(product[i] + element_of(bias, i, shape, dtype), x.dtype), name="add"
    )
