"""Operators that we say in other operators, where torch's own way has more steps than needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two products and a softmax. The scale comes after the first, where it is part of the softmax's kernel
    and not a copy of the query. A query that may attend to nothing gets zeros."""
    if dropout_p > 0:
        return NotImplemented
    if query.shape[-3] != key.shape[-3]:  # several heads of the query share one of the keys and values
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = torch.where(past, scores, -math.inf)
    softmax = torch.softmax if attn_mask is None else aten._safe_softmax
    return torch.matmul(softmax(scores, -1), value), torch.logsumexp(scores, -1)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention,
}
