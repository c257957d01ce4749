"""Normalisation: of batches, channels, layers and groups."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..registry import Op, Tensor, operator


@operator("BatchNormalization")
def batch_normalization(
    op: Op,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    if not training_mode:
        return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)
    axes = [a for a in range(x.ndim) if a != 1]
    now, spread = x.mean(axes), x.var(axes, correction=0)
    result = F.batch_norm(x, now, spread, scale, bias, False, 0.0, epsilon)
    return result, mean * momentum + now * (1 - momentum), variance * momentum + spread * (1 - momentum)


@operator("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.group_norm(x, x.shape[1], scale, bias, epsilon)


@operator("GroupNormalization")
def group_normalization(
    op: Op,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Before opset 21 scale and bias were those of groups."""
    if op.version < 21:
        scale, bias = (t.repeat_interleave(x.shape[1] // num_groups) for t in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    inner = list(x.shape[axis:])
    weight = scale.expand(inner)
    term = None if bias is None else bias.expand(inner)
    return torch.native_layer_norm(x, inner, weight, term, epsilon)


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = list(range(axis % x.ndim, x.ndim))
    wide = x.double() if x.dtype is torch.float64 else x.float()
    normal = wide * torch.rsqrt((wide * wide).mean(axes, True) + epsilon)
    return normal.to(x.dtype) * scale


@operator("LRN")
def lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Divided by what the squares of neighbouring channels sum up to."""
    squares = F.pad(x * x, [0, 0] * (x.ndim - 2) + [(size - 1) // 2, size // 2])
    total = torch.stack([squares.narrow(1, n, x.shape[1]) for n in range(size)]).sum(0)
    return x / torch.pow(bias + alpha / size * total, beta)


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.abs(x).sum(axis, True) if p == 1 else torch.sqrt((x * x).sum(axis, True))
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)
