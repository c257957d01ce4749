"""Models outside the paper: transposed convolutions, recurrence, norms over channels, mixing of tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DCGANGenerator(nn.Sequential):
    """A 64x64 image from a latent vector."""

    def __init__(self, latent: int = 100, width: int = 64) -> None:
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent, width * 8, 4, 1, 0, bias=False)]
        for shift in (3, 2, 1):
            channels = width << shift
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1, bias=False)]
        layers += [
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        ]
        super().__init__(*layers)


class LSTM(nn.Module):
    """One layer, a cell applied step by step: torch.nn.LSTM would be a single operator."""

    def __init__(self, features: int = 256, hidden: int = 256) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.cell.hidden_size)
        outputs = []
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs, 1)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + (self.scale * self.mlp(self.norm(y))).permute(0, 3, 1, 2)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int, token_width: int) -> None:
        super().__init__()

        def mlp(size: int, hidden: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.over_tokens = mlp(tokens, token_width)
        self.over_channels = mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


class MLPMixer(nn.Module):
    def __init__(
        self, image: int = 224, patch: int = 16, width: int = 512, token_width: int = 256, depth: int = 8,
        classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        tokens = (image // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, width, token_width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))
