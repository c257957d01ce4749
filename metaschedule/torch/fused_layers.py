"""Layers that torch computes by one operator in evaluation, without gradients, said in the operators they are
made of: `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

aten = torch.ops.aten
SCORES, KEYS, BOTH = range(3)  # what a mask has: queries and keys; batches and keys; everything


def masked_softmax(
    scores: torch.Tensor, mask: torch.Tensor | None, dim: int = -1, mask_type: int | None = None
) -> torch.Tensor:
    """The mask tells what is left out, whatever its number: torch makes a condition of any mask. A query to
    which nothing is left gets NaN, as in eager."""
    if mask is None:
        return torch.softmax(scores, dim)
    left_out = mask.to(torch.bool)
    if mask_type == KEYS:
        left_out = left_out.reshape(mask.shape[0], 1, 1, mask.shape[1])
    return torch.softmax(torch.where(left_out, -math.inf, scores), dim)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """With the weights of attention, averaged over the heads or not, if they are asked for."""
    if not query.numel() or not key.numel():
        return NotImplemented
    batch, _, width = query.shape
    if query is key and key is value:
        products = functional.linear(query, qkv_weight, qkv_bias).split(embed_dim, -1)
    else:
        parts = zip((query, key, value), qkv_weight.split(embed_dim), qkv_bias.split(embed_dim))
        products = [functional.linear(x, w, b) for x, w, b in parts]
    q, k, v = (x.reshape(batch, x.shape[1], heads, -1).transpose(1, 2) for x in products)
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(embed_dim // heads))
    shares = masked_softmax(scores, mask, -1, mask_type)
    found = torch.matmul(shares, v).transpose(1, 2).reshape(batch, query.shape[1], width)
    result = functional.linear(found, weight, bias)
    if not need_weights:
        return result, query.new_empty(0)
    return result, shares.mean(1) if average else shares


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm1: torch.Tensor,
    norm_bias1: torch.Tensor,
    norm2: torch.Tensor,
    norm_bias2: torch.Tensor,
    up: torch.Tensor,
    up_bias: torch.Tensor,
    down: torch.Tensor,
    down_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    if not src.numel():
        return NotImplemented
    activation = functional.gelu if use_gelu else functional.relu

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, weight, bias)
        return attention(x, x, x, embed_dim, heads, *weights, mask, False, True, mask_type)[0]

    def feed(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(activation(functional.linear(x, up, up_bias)), down, down_bias)

    def first(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm1, norm_bias1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm2, norm_bias2, eps)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))


FUSED_LAYERS: dict[Any, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: attention,
    aten._masked_softmax.default: masked_softmax,
}
