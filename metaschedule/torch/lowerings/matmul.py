"""Matrix products."""

from __future__ import annotations

import torch

from ... import te
from ..lowering import Kind, lowers

aten = torch.ops.aten


@lowers(aten.mm.default, kind=Kind.HEAVY)
def mm(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[1], name="k")
    shape = (x.shape[0], y.shape[1])
    return te.compute(shape, lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="matmul")
