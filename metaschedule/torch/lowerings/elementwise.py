"""Arithmetic, element by element."""

from __future__ import annotations

import torch

from ... import te
from ...ir import Expr
from .pointwise import elementwise

aten = torch.ops.aten


@elementwise(aten.add.Tensor, aten.add.Scalar)
def add(x: Expr, y: Expr, alpha: float = 1) -> Expr:
    if x.dtype == "bool":
        return x | y
    return x + (y if alpha == 1 else y * alpha)


@elementwise(aten.mul.Tensor, aten.mul.Scalar)
def mul(x: Expr, y: Expr) -> Expr:
    return x & y if x.dtype == "bool" else x * y


@elementwise(aten.relu.default)
def relu(x: Expr) -> Expr:
    return te.maximum(x, 0)
