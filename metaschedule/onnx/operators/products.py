"""Matrix products and what is made of them."""

from __future__ import annotations

import torch

from ..registry import Tensor, operator


@operator("MatMul")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.matmul(x, y)


@operator("Gemm")
def gemm(
    x: Tensor,
    y: Tensor,
    term: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    x, y = x.T if transA else x, y.T if transB else y
    if term is not None and x.is_floating_point():
        return torch.addmm(term, x, y, beta=beta, alpha=alpha)
    product = torch.mm(x, y)
    product = product if alpha == 1 else (product * alpha).to(x.dtype)
    return product if term is None else product + (term if beta == 1 else (term * beta).to(x.dtype))


@operator("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation.replace(" ", ""), *inputs)


@operator("Det")
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)
