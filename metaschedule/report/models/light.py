"""Light networks of images: squeeze-and-excitation, channel shuffles, ghosts, fire modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .vision import classifier, conv_bn


class SqueezeExcitation(nn.Module):
    """Channels scaled by a function of the means of all."""

    def __init__(self, channels: int, squeezed: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1), act(),
            nn.Conv2d(squeezed, channels, 1), gate(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


class MobileBlock(nn.Module):
    """Expansion, depthwise convolution, squeeze-and-excitation of `squeezed` channels if any, projection."""

    def __init__(
        self, ci: int, co: int, wide: int, kernel: int, stride: int, squeezed: int, act: type[nn.Module],
        inner: type[nn.Module], gate: type[nn.Module],
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = nn.Sequential(
            *([conv_bn(ci, wide, act=act)] if wide != ci else []),
            conv_bn(wide, wide, kernel, stride, groups=wide, act=act),
            *([SqueezeExcitation(wide, squeezed, inner, gate)] if squeezed else []),
            conv_bn(wide, co, act=None),
        )
        self.residual = stride == 1 and ci == co

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV3(nn.Module):
    """The small one: kernel, expanded channels, channels, whether squeezed, hard swish or ReLU, stride."""

    BLOCKS = (
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
        (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
        (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
        (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
    )  # fmt: skip

    def __init__(
        self, blocks: Sequence[tuple[int, int, int, bool, bool, int]] = BLOCKS, head: int = 576,
        classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        ci = 16
        layers: list[nn.Module] = [conv_bn(3, ci, 3, 2, act=nn.Hardswish)]
        for kernel, wide, co, squeezed, hard, stride in blocks:
            act = nn.Hardswish if hard else nn.ReLU
            few = max(8, (wide // 4 + 4) // 8 * 8) if squeezed else 0
            layers.append(MobileBlock(ci, co, wide, kernel, stride, few, act, nn.ReLU, nn.Hardsigmoid))
            ci = co
        layers += [conv_bn(ci, head, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        layers += [nn.Linear(head, 1024), nn.Hardswish(), nn.Linear(1024, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class EfficientNet(nn.Module):
    """B0: expansion, channels, blocks, stride of the first, kernel."""

    STAGES = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    )  # fmt: skip

    def __init__(
        self, stages: Sequence[tuple[int, int, int, int, int]] = STAGES, stem: int = 32, head: int = 1280,
        classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, stem, 3, 2, act=nn.SiLU)]
        ci = stem
        for expansion, co, count, stride, kernel in stages:
            for n in range(count):
                step, few = stride if n == 0 else 1, max(1, ci // 4)
                layers.append(
                    MobileBlock(ci, co, ci * expansion, kernel, step, few, nn.SiLU, nn.SiLU, nn.Sigmoid)
                )
                ci = co
        self.layers = nn.Sequential(*layers, conv_bn(ci, head, act=nn.SiLU), classifier(head, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ShuffleUnit(nn.Module):
    """One half of the channels passes, the other is computed; then the halves are interleaved."""

    def __init__(self, ci: int, co: int, stride: int) -> None:
        super().__init__()
        half = co // 2
        self.stride = stride
        own = ci if stride > 1 else half
        self.main = nn.Sequential(
            conv_bn(own, half), conv_bn(half, half, 3, stride, groups=half, act=None), conv_bn(half, half)
        )
        if stride > 1:
            self.short = nn.Sequential(conv_bn(ci, ci, 3, stride, groups=ci, act=None), conv_bn(ci, half))

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            y = torch.cat([self.short(x), self.main(x)], 1)
        else:
            kept, taken = x.chunk(2, 1)
            y = torch.cat([kept, self.main(taken)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleNetV2(nn.Module):
    def __init__(
        self, units: Sequence[int] = (4, 8, 4), widths: Sequence[int] = (24, 116, 232, 464, 1024),
        classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        first, *inner, head = widths
        layers: list[nn.Module] = [conv_bn(3, first, 3, 2), nn.MaxPool2d(3, 2, 1)]
        ci = first
        for count, co in zip(units, inner):
            layers += [ShuffleUnit(ci, co, 2), *(ShuffleUnit(co, co, 1) for _ in range(count - 1))]
            ci = co
        self.layers = nn.Sequential(*layers, conv_bn(ci, head), classifier(head, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Ghost(nn.Module):
    """Half of the channels by a 1x1 convolution, the others from these by a depthwise one."""

    def __init__(self, ci: int, co: int, act: type[nn.Module] | None = nn.ReLU) -> None:
        super().__init__()
        self.first = conv_bn(ci, co // 2, act=act)
        self.cheap = conv_bn(co // 2, co // 2, 3, groups=co // 2, act=act)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.cat([y, self.cheap(y)], 1)


class GhostBlock(nn.Module):
    def __init__(self, ci: int, wide: int, co: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Ghost(ci, wide),
            *([conv_bn(wide, wide, 3, stride, groups=wide, act=None)] if stride > 1 else []),
            Ghost(wide, co, act=None),
        )
        self.short = (
            nn.Identity() if stride == 1 and ci == co
            else nn.Sequential(conv_bn(ci, ci, 3, stride, groups=ci, act=None), conv_bn(ci, co, act=None))
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.short(x)


class GhostNet(nn.Module):
    """Expanded channels, channels, stride."""

    BLOCKS = (
        (16, 16, 1), (48, 24, 2), (72, 24, 1), (72, 40, 2), (120, 40, 1), (240, 80, 2), (200, 80, 1),
        (480, 112, 1), (672, 160, 2), (960, 160, 1),
    )  # fmt: skip

    def __init__(self, blocks: Sequence[tuple[int, int, int]] = BLOCKS, classes: int = 1000) -> None:
        super().__init__()
        ci = 16
        layers: list[nn.Module] = [conv_bn(3, ci, 3, 2)]
        for wide, co, stride in blocks:
            layers.append(GhostBlock(ci, wide, co, stride))
            ci = co
        self.layers = nn.Sequential(*layers, conv_bn(ci, 6 * ci), classifier(6 * ci, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Fire(nn.Module):
    """A few channels, then 1x1 and 3x3 convolutions of these side by side."""

    def __init__(self, ci: int, few: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(ci, few, 1)
        self.narrow, self.wide = nn.Conv2d(few, each, 1), nn.Conv2d(few, each, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.narrow(x)), torch.relu(self.wide(x))], 1)


class SqueezeNet(nn.Module):
    STAGES = (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256)))

    def __init__(
        self, stages: Sequence[Sequence[tuple[int, int]]] = STAGES, stem: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, stem, 3, 2), nn.ReLU()]
        ci = stem
        for stage in stages:
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            for few, each in stage:
                layers.append(Fire(ci, few, each))
                ci = 2 * each
        layers += [nn.Conv2d(ci, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
