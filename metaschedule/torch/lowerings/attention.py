"""Attention whole: scores, softmax and the weighted sum of values."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import accumulator
from ..lowering import Kind, NotLowered, lowers
from .matmul import rounded
from .normalisation import powers
from .pointwise import broadcast

aten = torch.ops.aten


class Attention(NamedTuple):
    result: te.Tensor
    weights: te.Tensor
    logsumexp: te.Tensor


def attention(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    mask: te.Tensor | None,
    causal: bool,
    scale: float | None,
) -> Attention:
    """Query(.., l, e), key(.., s, e), value(.., s, v). Several heads of the query may share one of the keys
    and values. A query that may attend to nothing gets zeros."""
    dtype = accumulator(query.dtype)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    e, s = te.reduce_axis(query.shape[-1], name="e"), te.reduce_axis(key.shape[-2], name="s")
    shape = (*query.shape[:-1], key.shape[-2])

    def shared(i: tuple[Expr, ...], x: te.Tensor) -> list[Expr]:
        """The batch and head of a key or value."""
        outer = list(i[:-2])
        if len(outer) > 1 and x.shape[-3] != query.shape[-3]:
            outer[-1] = outer[-1] // (query.shape[-3] // x.shape[-3])
        return outer

    def product(*i: Expr) -> Expr:
        left, right = query[*i[:-1], e], key[*shared(i, key), i[-1], e]
        return te.sum(te.cast(left, dtype) * te.cast(right, dtype), axis=e)

    products = te.compute(shape, product, name="matmul")

    def score(*i: Expr) -> Expr:
        result: Expr = products[i] * factor
        nothing = const(-math.inf, dtype)
        if mask is not None:
            term = broadcast(mask, i, shape)
            if mask.dtype == "bool":
                result = te.select(term, result, nothing)
            else:
                result = result + te.cast(term, dtype)
        return te.select(i[-1] <= i[-2], result, nothing) if causal else result

    top, power, total = powers(te.compute(shape, score, name="scores"), len(shape) - 1)

    def share(*i: Expr) -> Expr:
        return te.select(top[i[:-1]] == -math.inf, const(0, dtype), power[i] / total[i[:-1]])

    weights = te.compute(shape, share, name="softmax")

    def weighted(*i: Expr) -> Expr:
        term = weights[*i[:-1], s] * te.cast(value[*shared(i, value), s, i[-1]], dtype)
        return te.cast(te.sum(term, axis=s), query.dtype)

    result = te.compute((*query.shape[:-1], value.shape[-1]), weighted, name="attention")
    logs = te.compute(top.shape, lambda *i: top[i] + te.log(total[i]), name="logsumexp")
    return Attention(result, weights, logs)


def check_no_dropout(probability: float) -> None:
    if probability > 0:
        raise NotLowered("dropout needs random numbers")


@lowers(aten._scaled_dot_product_flash_attention_for_cpu.default, kind=Kind.HEAVY)
def flash_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, dropout: float, causal: bool,
    attn_mask: te.Tensor | None, scale: float | None,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    check_no_dropout(dropout)
    found = attention(query, key, value, attn_mask, causal, scale)
    return found.result, found.logsumexp


@lowers(aten.scaled_dot_product_attention.default, kind=Kind.HEAVY)
def scaled_dot_product_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, dropout: float, causal: bool,
    scale: float | None, enable_gqa: bool,
) -> te.Tensor:  # fmt: skip
    check_no_dropout(dropout)
    return attention(query, key, value, mask, causal, scale).result


@lowers(aten._scaled_dot_product_attention_math.default, kind=Kind.HEAVY)
def attention_math(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, dropout: float, causal: bool,
    dropout_mask: te.Tensor | None, scale: float | None, enable_gqa: bool,
) -> tuple[te.Tensor, te.Tensor]:  # fmt: skip
    check_no_dropout(dropout)
    found = attention(query, key, value, mask, causal, scale)
    return found.result, rounded(found.weights, query.dtype)
