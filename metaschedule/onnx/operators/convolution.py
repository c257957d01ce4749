"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from ..registry import Tensor, operator
from ..tensors import ints


def amounts_of(
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[tuple[int, int]]:
    """How much is padded before and after each spatial dimension."""
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        found: list[tuple[int, int]] = []
        for extent, k, s, d in zip(x.shape[2:], kernel, strides, dilations):
            whole = max(0, (-(-extent // s) - 1) * s + d * (k - 1) + 1 - extent)
            less, more = whole // 2, whole - whole // 2
            found.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
        return found
    if auto_pad == "VALID" or not pads:
        return [(0, 0)] * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def pad_by(x: Tensor, amounts: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    return F.pad(x, [n for pair in reversed(amounts) for n in pair], value=value)


@operator("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    rank = weight.ndim - 2
    stride, dilation = list(strides or [1] * rank), list(dilations or [1] * rank)
    amounts = amounts_of(x, weight.shape[2:], stride, dilation, pads, auto_pad)
    padding = [before for before, _ in amounts]
    if any(before != after or before < 0 for before, after in amounts):
        x, padding = pad_by(x, amounts), [0] * rank
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * rank, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Pads are cut off from the whole result, `output_padding` is added behind it."""
    rank = weight.ndim - 2
    stride, dilation = list(strides or [1] * rank), list(dilations or [1] * rank)
    more = list(output_padding or [0] * rank)
    reach = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation)]
    whole = [s * (n - 1) + r + o for n, s, r, o in zip(x.shape[2:], stride, reach, more)]
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape or [n * s for n, s in zip(x.shape[2:], stride)])[-rank:]
        cut = [w - n for w, n in zip(whole, wanted)]
        upper = auto_pad == "SAME_UPPER"
        amounts = [(c // 2, c - c // 2) if upper else (c - c // 2, c // 2) for c in cut]
    else:
        amounts = amounts_of(x, weight.shape[2:], stride, dilation, pads, auto_pad)
    if all(b == e and b >= 0 for b, e in amounts) and all(
        o < max(s, d) for o, s, d in zip(more, stride, dilation)
    ):
        padding = [before for before, _ in amounts]
        return torch.convolution(x, weight, bias, stride, padding, dilation, True, more, group)
    full = torch.convolution(x, weight, None, stride, [0] * rank, dilation, True, [0] * rank, group)
    full = pad_by(full, [(-b, o - e) for (b, e), o in zip(amounts, more)])
    return full if bias is None else full + bias.reshape([-1] + [1] * rank)


@operator("Col2Im")
def col2im(
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Blocks added up at their places: a transposed convolution that copies."""
    extents, kernel = ints(image, "the extents of Col2Im"), ints(block, "the blocks of Col2Im")
    rank = len(kernel)
    stride, dilation = list(strides or [1] * rank), list(dilations or [1] * rank)
    amounts = list(zip(pads[:rank], pads[rank:])) if pads else [(0, 0)] * rank
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    places = [(n + sum(a) - r) // s + 1 for n, a, r, s in zip(extents, amounts, reach, stride)]
    size = 1
    for k in kernel:
        size *= k
    batch, channels = x.shape[0], x.shape[1] // size
    blocks = x.reshape([batch * channels, size, *places])
    copies = torch.eye(size, dtype=x.dtype).reshape([size, 1, *kernel])
    full = torch.convolution(blocks, copies, None, stride, [0] * rank, dilation, True, [0] * rank, 1)
    cut = [(-b, n + b - whole) for (b, _), n, whole in zip(amounts, extents, full.shape[2:])]
    return pad_by(full, cut).reshape([batch, channels, *extents])
