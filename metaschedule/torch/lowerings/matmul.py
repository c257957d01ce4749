"""Matrix products: one expression for all ranks, and the forms that add to it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import te
from ...ir import Expr, is_float
from ..dtypes import accumulator
from ..lowering import Kind, lowers
from .arithmetic import scale
from .pointwise import broadcast, element_of

aten = torch.ops.aten


def wide_product(x: te.Tensor, y: te.Tensor, dtype: str | None = None) -> te.Tensor:
    """`x @ y` as NumPy has it: vectors, matrices and batches of them, which broadcast. Sums are of `dtype`,
    or not rounded to the dtype of the operands yet."""
    rows, columns = x.shape[-2:-1], y.shape[-1:] if y.ndim > 1 else ()
    batch = tuple(torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    k = te.reduce_axis(x.shape[-1], name="k")
    dtype = dtype or accumulator(x.dtype)

    def element(*i: Expr) -> Expr:
        outer, inner = i[: len(batch)], i[len(batch) :]
        left = broadcast(x, (*outer, *inner[: len(rows)], k), (*batch, *x.shape[-2:]))
        right = broadcast(y, (*outer, k, *inner[len(rows) :]), (*batch, *y.shape[-2:]))
        return te.sum(te.cast(left, dtype) * te.cast(right, dtype), axis=k)

    names = [*(f"b{d}" for d in range(len(batch))), *("i" for _ in rows), *("j" for _ in columns)]
    return te.compute(batch + rows + columns, element, name="matmul", axes=names)


def round_to(x: te.Tensor, dtype: str) -> te.Tensor:
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: te.cast(x[i], dtype), name="rounded")


@lowers(
    *(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.matmul.default),
    kind=Kind.HEAVY,
)
def matmul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return round_to(wide_product(x, y), x.dtype)


@lowers("narrow_matmul", kind=Kind.HEAVY)
def narrow_matmul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Weights in fewer bits than what they are multiplied by."""
    return wide_product(x, y, x.dtype)


@lowers(aten.addmm.default, aten.baddbmm.default, aten.addmv.default, kind=Kind.HEAVY)
def add_product(term: te.Tensor, x: te.Tensor, y: te.Tensor, beta: float, alpha: float) -> te.Tensor:
    product = wide_product(x, y)
    if not is_float(x.dtype):
        beta = int(beta)  # as torch has it

    def element(*i: Expr) -> Expr:
        result = scale(product[i], alpha)
        if beta != 0:  # else `term` is not read, and a NaN in it does not count
            result = result + scale(element_of(term, i, product.shape, product.dtype), beta)
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
        return round_to(product, x.dtype)
    return te.compute(
        shape, lambda *i: te.cast(product[i] + element_of(bias, i, shape, dtype), x.dtype), name="add"
    )


@lowers(aten._trilinear.default, kind=Kind.HEAVY)
def trilinear(
    x: te.Tensor, y: te.Tensor, z: te.Tensor, new_x: Sequence[int], new_y: Sequence[int],
    new_z: Sequence[int], summed: Sequence[int], unrolled: int,
) -> te.Tensor:  # fmt: skip
    """The sum over some dimensions of the product of three tensors, each with new dimensions of extent 1."""
    factors = [
        (t, [d for d in range(t.ndim + len(new)) if d not in new])
        for t, new in ((x, new_x), (y, new_y), (z, new_z))
    ]
    ndim = x.ndim + len(new_x)
    extents = [max(t.shape[dims.index(d)] for t, dims in factors if d in dims) for d in range(ndim)]
    axes = {d: te.reduce_axis(extents[d], name=f"r{d}") for d in summed}
    kept = [d for d in range(ndim) if d not in axes]
    dtype = accumulator(x.dtype)

    def element(*i: Expr) -> Expr:
        index = dict(zip(kept, i)) | axes
        product: Expr | None = None
        for t, dims in factors:
            value = te.cast(broadcast(t, [index[d] for d in dims], [extents[d] for d in dims]), dtype)
            product = value if product is None else product * value
        assert product is not None
        return te.sum(product, axis=list(axes.values())) if axes else product

    return round_to(te.compute([extents[d] for d in kept], element, name="trilinear"), x.dtype)
