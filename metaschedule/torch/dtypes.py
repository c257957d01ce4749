"""torch's dtypes by our names, and torch's rules of which dtype an operator computes in."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from .. import te
from ..ir import DTYPES
from .lowering import NotLowered


def dtype_name(dtype: torch.dtype) -> str:
    """
    >>> dtype_name(torch.float32)
    'float32'
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise NotLowered(f"no programs with {name}")
    return name


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def promote_dtypes(
    *operands: te.Tensor | complex, promotion: Promotion = Promotion.DEFAULT
) -> tuple[str, str]:
    """The dtypes that torch computes in and gives, of tensors and Python numbers together.

    >>> x = te.placeholder((4,), "float16", name="x")
    >>> promote_dtypes(x, 2.5), promote_dtypes(te.placeholder((4,), "int32"), 2.5)
    (('float32', 'float16'), ('float32', 'float32'))
    """
    computed, given = elementwise_dtypes(*map(_stand_in, operands), type_promotion_kind=promotion)
    return dtype_name(computed), dtype_name(given)


def _stand_in(operand: Any) -> Any:
    if not isinstance(operand, te.Tensor):
        return operand
    return torch.empty(operand.shape, dtype=torch_dtype(operand.dtype), device="meta")


def accumulator(dtype: str) -> str:
    """The dtype in which torch sums numbers of `dtype`, to be rounded at the end."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
