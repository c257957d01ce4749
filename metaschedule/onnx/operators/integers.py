"""Arithmetic of unsigned integers wider than a byte, which torch stores but does not compute with.

16 and 32 bits are computed in int64. 64 bits are computed modulo 2**64 on the same bits as int64; what
depends on their order flips the first bit, which makes the order of unsigned numbers that of signed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ..registry import Tensor, operator

WIDE = frozenset([torch.uint16, torch.uint32, torch.uint64])
FIRST_BIT = -(2**63)


def widen(x: Any) -> Any:
    return x.to(torch.int64) if isinstance(x, Tensor) and x.dtype in WIDE else x


def flip(x: Tensor) -> Tensor:
    """Signed numbers in the order of unsigned ones, and back."""
    return x ^ FIRST_BIT


def is_wide(inputs: Any) -> torch.dtype | None:
    return next((x.dtype for x in inputs if isinstance(x, Tensor) and x.dtype in WIDE), None)


def modular(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of sums, products and bits: the low bits of the results are right whatever the sign."""

    @wraps(function)
    def run(*inputs: Any, **attributes: Any) -> Tensor:
        dtype = is_wide(inputs)
        result = function(*map(widen, inputs), **attributes)
        return result.to(dtype) if dtype and result.dtype is torch.int64 else result

    return run


def ordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of comparisons, and of choices of the least or the greatest."""

    @wraps(function)
    def run(*inputs: Any, **attributes: Any) -> Any:
        dtype = is_wide(inputs)
        if dtype is None:
            return function(*inputs, **attributes)
        turn = flip if dtype is torch.uint64 else lambda x: x
        result = function(*[turn(widen(x)) if widen(x) is not x else x for x in inputs], **attributes)
        return result.to(torch.bool) if result.dtype is torch.bool else turn(result).to(dtype)

    return run


def divide(x: Tensor, y: Tensor) -> Tensor:
    """The quotient of integers, rounded towards 0."""
    if x.dtype is not torch.uint64:
        return modular(lambda a, b: torch.div(a, b, rounding_mode="trunc"))(x, y)
    a, b = widen(x), widen(y)
    half = ((a >> 1) & (2**63 - 1)) // torch.where(b > 0, b, 1) * 2
    rest = a - half * b
    quotient = half + (flip(rest) >= flip(b)).to(torch.int64)
    large = (flip(a) >= flip(b)).to(torch.int64)  # of divisors from 2**63 on
    return torch.where(b > 0, quotient, large).to(torch.uint64)


@operator("BitShift")
def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    bits = 8 * x.dtype.itemsize
    a, n = x.to(torch.int64), by.to(torch.int64)
    if direction == "LEFT":
        return torch.where(n < bits, a << n.clamp(max=63), 0).to(x.dtype)
    if x.dtype.is_signed:
        return (a >> n.clamp(max=63)).to(x.dtype)
    mask = torch.where(n > 0, ~(torch.full_like(n, -1) << (64 - n).clamp(0, 63)), -1)
    return torch.where(n < bits, (a >> n.clamp(max=63)) & mask, 0).to(x.dtype)
