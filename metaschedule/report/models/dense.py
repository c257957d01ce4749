"""Networks whose layers look at many before them: dense and skip connections, pyramids, diffusion."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .vision import conv_bn


class DenseLayer(nn.Module):
    """Norm and activation first; what it computes is appended to its input."""

    def __init__(self, ci: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(ci), nn.ReLU(), nn.Conv2d(ci, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(nn.Module):
    """DenseNet-121."""

    def __init__(
        self, blocks: Sequence[int] = (6, 12, 24, 16), growth: int = 32, classes: int = 1000
    ) -> None:
        super().__init__()
        ci = 2 * growth
        layers: list[nn.Module] = [conv_bn(3, ci, 7, 2), nn.MaxPool2d(3, 2, 1)]
        for n, count in enumerate(blocks):
            for _ in range(count):
                layers.append(DenseLayer(ci, growth))
                ci += growth
            layers += [nn.BatchNorm2d(ci), nn.ReLU()]
            if n < len(blocks) - 1:
                layers += [nn.Conv2d(ci, ci // 2, 1, bias=False), nn.AvgPool2d(2)]
                ci //= 2
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(ci, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def double(ci: int, co: int) -> nn.Sequential:
    return nn.Sequential(conv_bn(ci, co, 3), conv_bn(co, co, 3))


class UNet(nn.Module):
    """Segmentation: down by pooling, up by transposed convolutions, joined with what was there before."""

    def __init__(self, width: int = 16, depth: int = 4, classes: int = 4) -> None:
        super().__init__()
        widths = [width << n for n in range(depth + 1)]
        self.first = double(3, width)
        self.down = nn.ModuleList([double(a, b) for a, b in zip(widths, widths[1:])])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:])])
        self.join = nn.ModuleList([double(2 * a, a) for a in widths[:-1]])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            y = join(torch.cat([kept.pop(), up(y)], 1))
        return self.last(y)


class Detector(nn.Module):
    """Three scales of a small backbone, a pyramid by upsampling, and boxes and classes at every place."""

    def __init__(self, width: int = 24, pyramid: int = 64, classes: int = 20) -> None:
        super().__init__()
        widths = [width << n for n in range(5)]
        blocks = [
            nn.Sequential(conv_bn(a, b, 3, 2, act=nn.SiLU), conv_bn(b, b, 3, act=nn.SiLU))
            for a, b in zip([3, *widths], widths)
        ]
        self.stem, self.stages = nn.Sequential(*blocks[:2]), nn.ModuleList(blocks[2:])
        self.lateral = nn.ModuleList([nn.Conv2d(c, pyramid, 1) for c in widths[2:]])
        self.head = nn.Sequential(
            conv_bn(pyramid, pyramid, 3, act=nn.SiLU), nn.Conv2d(pyramid, 4 + classes, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scales = []
        for stage in self.stages:
            x = stage(x)
            scales.append(x)
        tops: list[Tensor] = []
        for lateral, scale in zip(reversed(self.lateral), reversed(scales)):
            y = lateral(scale)
            tops.append(y + F.interpolate(tops[-1], scale_factor=2.0) if tops else y)
        found = torch.cat([self.head(y).flatten(2) for y in tops], 2).transpose(1, 2)
        return torch.cat([found[..., :2].sigmoid(), found[..., 2:4].exp(), found[..., 4:].sigmoid()], 2)


class DiffusionBlock(nn.Module):
    """Residual convolutions with the time added, then attention over the pixels and to a text."""

    def __init__(self, width: int = 128, side: int = 16, text: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.GroupNorm(8, width) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])
        self.rows = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own = nn.Linear(width, 3 * width)
        self.query, self.given = nn.Linear(width, width), nn.Linear(text, 2 * width)
        self.out = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y = self.convs[0](F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        x = x + self.convs[1](F.silu(self.norms[1](y)))
        rows = self.norms[2](x).flatten(2).transpose(1, 2)
        rows = rows + self.out[0](self.attend(*self.own(self.rows[0](rows)).chunk(3, -1)))
        rows = rows + self.out[1](self.attend(self.query(self.rows[1](rows)), *self.given(text).chunk(2, -1)))
        rows = rows + self.mlp(self.rows[2](rows))
        return x + rows.transpose(1, 2).reshape(x.shape)
