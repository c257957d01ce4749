"""Models of sequences: recurrent cells and layers, speech, time series; and a recommender."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GRUSteps(nn.Module):
    """A cell step by step, and a classifier of its last state."""

    def __init__(self, features: int = 128, hidden: int = 256, classes: int = 32) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(features, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], self.cell.hidden_size)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
        return self.head(h)


class Tagger(nn.Module):
    """Embeddings, an LSTM in both directions, a class for every token."""

    def __init__(self, words: int = 5000, features: int = 128, hidden: int = 128, tags: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(words, features)
        self.lstm = nn.LSTM(features, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(ids))[0])


class StackedGRU(nn.Module):
    """Three recurrent layers over a batch of sequences."""

    def __init__(self, features: int = 64, hidden: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(features, hidden, layers, batch_first=True), nn.Linear(hidden, features)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, a gated depthwise convolution over time, half a feed-forward."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.heads = heads

        def feed() -> nn.Sequential:
            wide = nn.Linear(width, 4 * width)
            return nn.Sequential(nn.LayerNorm(width), wide, nn.SiLU(), nn.Linear(4 * width, width))

        self.before, self.after = feed(), feed()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gated = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.last = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = F.glu(self.gated(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.last(F.silu(self.batch_norm(self.depthwise(y)))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.after(x))


class Speech(nn.Module):
    """A spectrogram, halved twice by convolutions over time, then blocks of attention and convolution."""

    def __init__(
        self, bins: int = 80, width: int = 144, heads: int = 4, depth: int = 4, kernel: int = 31,
        tokens: int = 128,
    ) -> None:  # fmt: skip
        super().__init__()
        self.halve = nn.Sequential(
            nn.Conv1d(bins, width, 3, 2, 1), nn.ReLU(), nn.Conv1d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.blocks = nn.Sequential(*(ConformerBlock(width, heads, kernel) for _ in range(depth)))
        self.head = nn.Linear(width, tokens)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.halve(x).transpose(1, 2))).log_softmax(-1)


class KeywordSpotter(nn.Module):
    """Convolutions over the waveform itself."""

    def __init__(self, width: int = 32, classes: int = 35) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(1, width, 80, 16)]
        ci = width
        for co in (width, 2 * width, 2 * width):
            layers += [nn.BatchNorm1d(ci), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(ci, co, 3, padding=1)]
            ci = co
        self.layers, self.head = nn.Sequential(*layers, nn.BatchNorm1d(ci), nn.ReLU()), nn.Linear(ci, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(-1)).log_softmax(-1)


class TemporalConvolutions(nn.Module):
    """Causal convolutions whose dilation doubles: a forecast of several series."""

    def __init__(self, series: int = 16, width: int = 64, depth: int = 5, ahead: int = 24) -> None:
        super().__init__()
        widths = [series, *[width] * depth]
        self.convs = nn.ModuleList([nn.Conv1d(a, b, 3, dilation=1 << n)
                                    for n, (a, b) in enumerate(zip(widths, widths[1:]))])  # fmt: skip
        self.gates = nn.ModuleList([nn.Conv1d(b, b, 1) for b in widths[1:]])
        self.head = nn.Linear(width, series * ahead)

    def forward(self, x: Tensor) -> Tensor:
        for n, (conv, gate) in enumerate(zip(self.convs, self.gates)):
            y = torch.relu(conv(F.pad(x, (2 << n, 0))))
            y = y * torch.sigmoid(gate(y))
            x = x + y if n else y
        return self.head(x[:, :, -1])


class NBeats(nn.Module):
    """Fully connected blocks that each explain a part of the past and of the future."""

    def __init__(self, past: int = 96, ahead: int = 24, width: int = 256, blocks: int = 4) -> None:
        super().__init__()
        self.past = past
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                    nn.Linear(width, width), nn.ReLU(), nn.Linear(width, past + ahead),
                )
                for _ in range(blocks)
            ]
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor | None = None
        for block in self.blocks:
            found = block(x)
            x = x - found[:, : self.past]
            part = found[:, self.past :]
            total = part if total is None else total + part
        assert total is not None
        return total


class Recommender(nn.Module):
    """Numbers through an MLP, categories through embeddings, products of all pairs, and an MLP."""

    def __init__(
        self, rows: Sequence[int] = (10000,) * 12, width: int = 32, numbers: int = 13, hidden: int = 256
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, width) for n in rows])
        self.bottom = nn.Sequential(
            nn.Linear(numbers, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        count = len(rows) + 1
        self.register_buffer("pairs", torch.tril_indices(count, count, -1), persistent=False)
        self.top = nn.Sequential(
            nn.Linear(width + count * (count - 1) // 2, hidden), nn.ReLU(), nn.Linear(hidden, hidden // 2),
            nn.ReLU(), nn.Linear(hidden // 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        first = self.bottom(numbers)
        vectors = torch.stack([first, *(table(ids[:, n]) for n, table in enumerate(self.tables))], 1)
        products = vectors @ vectors.transpose(1, 2)
        pairs = self.get_buffer("pairs")
        return self.top(torch.cat([first, products[:, pairs[0], pairs[1]]], 1))
