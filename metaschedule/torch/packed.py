"""`unpack`: layers of `torch.ao.quantization.quantize_dynamic`, whose weights are packed for one library, as
modules that compute the same in operators that a compiler sees."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
import torch.ao.nn.quantized.dynamic as dynamic
from torch import Tensor, nn

from .quantised import extremes

SMALLEST_SCALE = 6.1e-5  # below, 1 / scale would be too large for a half
LEAST, MOST, REDUCED = 0, 255, 127  # 7 bits of activations, so that sums of two products fit 16


class DynamicLinear(nn.Module):
    """A linear layer with weights in int8, whose input is quantised by its own least and greatest element."""

    def __init__(self, packed: dynamic.Linear) -> None:
        super().__init__()
        weight, bias = packed._weight_bias()  # pyright: ignore
        per_channel = weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
        scale = weight.q_per_channel_scales() if per_channel else torch.tensor([weight.q_scale()])
        zero = weight.q_per_channel_zero_points() if per_channel else torch.tensor([weight.q_zero_point()])
        self.register_buffer("weight", weight.int_repr())
        self.register_buffer("scale", scale.float().reshape(-1, 1))
        self.register_buffer("zero", zero.int().reshape(-1, 1))
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.most = MOST if torch.backends.quantized.engine == "qnnpack" else REDUCED

    def forward(self, x: Tensor) -> Tensor:
        low, high = extremes(x)
        scale, zero = chosen_parameters(low.float(), high.float(), self.most)
        number = torch.clamp(torch.round(x * (1.0 / scale)) + zero, LEAST, MOST).to(torch.uint8)
        activation = (number.to(torch.int32) - zero) * scale
        weight = (self.weight.to(torch.int32) - self.zero) * self.scale  # pyright: ignore
        return nn.functional.linear(activation, weight, self.bias).to(x.dtype)  # pyright: ignore


def chosen_parameters(least: Tensor, most: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """Scale (float32) and zero (int32), as torch chooses them for numbers from 0 to `last`, in float64."""
    low, high = least.double(), most.double()
    scale = (high - low) / (last - LEAST)
    narrow = scale.float()
    scale = torch.where((narrow == 0) | torch.isinf(1.0 / narrow), 0.1, scale)
    small = scale < SMALLEST_SCALE
    widened = torch.where(small, SMALLEST_SCALE / scale, 1.0).float()
    scale = torch.where(small, SMALLEST_SCALE, scale)
    low, high = (least * widened).double(), (most * widened).double()
    from_low, from_high = LEAST - low / scale, last - high / scale
    closer = (low / scale).abs() < (last + (high / scale).abs())
    zero = torch.clamp(torch.where(closer, from_low, from_high), LEAST, last).round()
    return scale.float(), zero.to(torch.int32)


def unpack(model: nn.Module) -> nn.Module:
    """A copy of a model in which dynamically quantised linear layers are open to a compiler.

    >>> model = nn.Sequential(nn.Linear(8, 4)).eval()
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # torch says that it will move to torchao
    ...     packed = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    >>> x = torch.randn(2, 8)
    >>> run = torch.compile(unpack(packed), backend="metaschedule")
    >>> with torch.no_grad():
    ...     torch.allclose(run(x), packed(x), atol=1e-5)
    True
    """
    if isinstance(model, dynamic.Linear):
        return opened(model)
    model = copy.deepcopy(model)
    for parent, name, child in list(packed_layers(model)):
        setattr(parent, name, opened(child))
    return model


def opened(layer: dynamic.Linear) -> nn.Module:
    if layer._packed_params.dtype is not torch.qint8:
        raise ValueError(f"{layer} has no weights in int8; quantise with dtype=torch.qint8")
    return DynamicLinear(layer).train(layer.training)


def packed_layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, dynamic.Linear]]:
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, dynamic.Linear):
                yield parent, name, child
