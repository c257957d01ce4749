"""The workloads as a PyTorch user would write them, for comparison in speed and in result.

    theirs = counterpart("C2D", **workloads.configurations("C2D")[0])
    tensors = theirs.inputs_from(arrays, "channels last")
    theirs.output_to(theirs.call(*tensors))  # what our program gives for these arrays

Only `call` is to be timed: inputs are laid out before it, outputs brought back after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

CONVOLUTIONS = {"C1D": F.conv1d, "C2D": F.conv2d, "C3D": F.conv3d, "DIL": F.conv2d, "GRP": F.conv2d}


def channels_last(x: Tensor) -> Tensor:
    """The same tensor with dimension 1 innermost in memory: torch's format of this name, for any rank."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


@dataclass(frozen=True)
class Counterpart:
    """`call` is the operator. `layouts` are those of its tensors worth trying; the shapes do not differ."""

    call: Callable[..., Tensor]
    to_torch: Callable[..., Sequence[Tensor]] = lambda *x: x  # our inputs with torch's order of dimensions
    from_torch: Callable[[Tensor], Tensor] = lambda y: y
    layouts: tuple[str, ...] = ("contiguous",)

    def inputs_from(self, arrays: Iterable[np.ndarray], layout: str = "contiguous") -> list[Tensor]:
        if layout not in self.layouts:
            raise ValueError(f"layout must be one of {', '.join(self.layouts)}, got {layout!r}")
        tensors = self.to_torch(*map(torch.from_numpy, arrays))
        if layout == "channels last":
            return [channels_last(x) if x.ndim > 2 else x for x in tensors]
        return [x.contiguous() for x in tensors]

    def output_to(self, y: Tensor) -> np.ndarray:
        """The result of `call` in the layout of our program's output."""
        return self.from_torch(y).contiguous().numpy()


def counterpart(name: str, **config: Any) -> Counterpart:
    """The counterpart of `workloads.create(name, **config)`; all keywords of the workload are needed."""
    window = {"stride": config.get("s"), "padding": config.get("p")}
    match name:
        case "C1D" | "C2D" | "C3D" | "DIL" | "GRP":
            more = {key: config[key] for key in ("dilation", "groups") if key in config}
            return convolution(partial(CONVOLUTIONS[name], **window, **more), forward_weight)
        case "DEP":
            call = partial(F.conv2d, **window, groups=config["c"])
            return convolution(call, lambda w: w.permute(2, 0, 1).unsqueeze(1))
        case "T2D":
            return convolution(partial(F.conv_transpose2d, **window), lambda w: w.permute(2, 3, 0, 1))
        case "CBR":
            statistics = {"mean": torch.zeros(config["co"]), "variance": torch.ones(config["co"])}
            return convolution(partial(conv_bias_relu, **statistics, **window), forward_weight)
        case "CAP":
            return capsule(partial(F.conv2d, **window), config["cap"])
        case "GMM":
            return Counterpart(torch.bmm)
        case "TBG":
            return Counterpart(lambda q, k: torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)))
        case "NRM":
            return Counterpart(partial(torch.linalg.vector_norm, dim=(1, 2)))
        case "SFM":
            return Counterpart(partial(F.softmax, dim=-1))
        case "FDENSE":
            return Counterpart(lambda x, w, b: F.gelu(F.linear(x, w, b)), lambda x, w, b: (x, w.T, b))
    raise ValueError(f"no counterpart of {name!r} in torch")


def convolution(call: Callable[..., Tensor], weight: Callable[[Tensor], Tensor]) -> Counterpart:
    """Channels second instead of last; `weight` reorders the dimensions of ours."""
    return Counterpart(
        call,
        lambda x, w, *vectors: (x.movedim(-1, 1), weight(w), *vectors),
        lambda y: y.movedim(1, -1),
        ("contiguous", "channels last"),
    )


def forward_weight(w: Tensor) -> Tensor:
    """(k.., ci, co) as (co, ci, k..)."""
    return w.movedim((-1, -2), (0, 1))


def conv_bias_relu(
    x: Tensor, w: Tensor, bias: Tensor, scale: Tensor, offset: Tensor,
    *, mean: Tensor, variance: Tensor, **window: int,
) -> Tensor:  # fmt: skip
    y = F.conv2d(x, w, bias, **window)
    return F.relu(F.batch_norm(y, mean, variance, scale, offset, eps=0), inplace=True)


def capsule(call: Callable[..., Tensor], cap: int) -> Counterpart:
    """One convolution: rows of the input's matrices are batches, rows of the weight's are input channels,
    columns of the weight's are output channels."""

    def to_torch(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        images = x.permute(0, 3, 4, 5, 1, 2)  # n, i, m, ci, h, w
        kernels = w.permute(3, 5, 2, 4, 0, 1)  # j, co, m, ci, k, k
        return images.flatten(2, 3).flatten(0, 1), kernels.flatten(2, 3).flatten(0, 1)

    def from_torch(y: Tensor) -> Tensor:
        return y.unflatten(1, (cap, -1)).unflatten(0, (-1, cap)).permute(0, 4, 5, 1, 2, 3)

    return Counterpart(call, to_torch, from_torch, ("contiguous", "channels last"))
