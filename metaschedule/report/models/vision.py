"""ResNet-50, MobileNet-V2 and GoogLeNet, laid out as in torchvision (GoogLeNet without auxiliary heads)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def conv_bn(
    ci: int, co: int, kernel: int = 1, stride: int = 1, *,
    groups: int = 1, act: type[nn.Module] | None = nn.ReLU, eps: float = 1e-5,
) -> nn.Sequential:  # fmt: skip
    """Convolution that keeps the size (but for the stride), batch norm and, unless None, the activation."""
    conv = nn.Conv2d(ci, co, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(co, eps=eps), *([act()] if act else []))


def classifier(channels: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, classes))


class Bottleneck(nn.Module):
    EXPANSION = 4

    def __init__(self, ci: int, width: int, stride: int) -> None:
        super().__init__()
        co = width * self.EXPANSION
        self.main = nn.Sequential(
            conv_bn(ci, width), conv_bn(width, width, 3, stride), conv_bn(width, co, act=None)
        )
        same = ci == co and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(ci, co, stride=stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, width, 7, 2), nn.MaxPool2d(3, 2, padding=1)]
        ci = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                layers.append(Bottleneck(ci, width << stage, 2 if stage > 0 and block == 0 else 1))
                ci = (width << stage) * Bottleneck.EXPANSION
        self.layers = nn.Sequential(*layers, classifier(ci, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class InvertedResidual(nn.Module):
    def __init__(self, ci: int, co: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = ci * expansion
        self.layers = nn.Sequential(
            *([conv_bn(ci, wide, act=nn.ReLU6)] if expansion > 1 else []),
            conv_bn(wide, wide, 3, stride, groups=wide, act=nn.ReLU6),
            conv_bn(wide, co, act=None),
        )
        self.residual = stride == 1 and ci == co

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    # expansion, channels, blocks, stride of the first
    STAGES = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    )  # fmt: skip

    def __init__(
        self,
        stages: Sequence[tuple[int, int, int, int]] = STAGES,
        stem: int = 32,
        head: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, stem, 3, 2, act=nn.ReLU6)]
        ci = stem
        for expansion, co, count, stride in stages:
            for block in range(count):
                layers.append(InvertedResidual(ci, co, stride if block == 0 else 1, expansion))
                ci = co
        self.layers = nn.Sequential(*layers, conv_bn(ci, head, act=nn.ReLU6), classifier(head, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Inception(nn.Module):
    """Four branches side by side; the one meant for 5x5 has 3x3 kernels in torchvision, so here too."""

    def __init__(self, ci: int, c1: int, c3_in: int, c3: int, c5_in: int, c5: int, pooled: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv_bn(ci, c1, eps=1e-3),
                nn.Sequential(conv_bn(ci, c3_in, eps=1e-3), conv_bn(c3_in, c3, 3, eps=1e-3)),
                nn.Sequential(conv_bn(ci, c5_in, eps=1e-3), conv_bn(c5_in, c5, 3, eps=1e-3)),
                nn.Sequential(nn.MaxPool2d(3, 1, padding=1, ceil_mode=True), conv_bn(ci, pooled, eps=1e-3)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Module):
    # channels of the branches of each Inception block, by stage; a pool before every stage
    STAGES = (
        ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
        (
            (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128),
        ),
        ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
    )  # fmt: skip

    def __init__(
        self,
        stages: Sequence[Sequence[tuple[int, int, int, int, int, int]]] = STAGES,
        stem: tuple[int, int] = (64, 192),
        classes: int = 1000,
    ) -> None:
        super().__init__()
        first, ci = stem
        layers: list[nn.Module] = [
            conv_bn(3, first, 7, 2, eps=1e-3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            conv_bn(first, first, eps=1e-3),
            conv_bn(first, ci, 3, eps=1e-3),
        ]
        for kernel, stage in zip((3, 3, 2), stages):
            layers.append(nn.MaxPool2d(kernel, 2, ceil_mode=True))
            for c1, c3_in, c3, c5_in, c5, pooled in stage:
                layers.append(Inception(ci, c1, c3_in, c3, c5_in, c5, pooled))
                ci = c1 + c3 + c5 + pooled
        self.layers = nn.Sequential(*layers, classifier(ci, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
