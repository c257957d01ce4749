"""Any length on the kernels of a few: each size beside a compilation for that size alone.

    .venv/bin/python benchmarks/lengths.py [--layers 12] [--lengths 1,7,16,33,64,100,128,200,333,400,512]

BERT-base over lengths of a sequence and a small convolutional network over sizes of an image, both compiled
once with `dynamic=True`. Printed are, of each size, the time of its first call and how many kernels were
compiled for it, the median time of further calls (ms), that of the model compiled for this size alone, and
their ratio.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

import metaschedule.torch  # noqa: F401  (registers the backend)

backend = importlib.import_module("metaschedule.torch.backend")


def builds() -> int:
    return sum(family.builds for one in list(backend.EVERY) for family in one.families.values())


def time_both(one: Callable[[], Any], other: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Medians of calls in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 5:
        for run, found in zip((one, other), times):
            begin = time.perf_counter()
            run()
            found.append(time.perf_counter() - begin)
    return median(times[0]), median(times[1])


def measure(
    name: str,
    model: torch.nn.Module,
    make: Callable[[int], torch.Tensor],
    sizes: Sequence[int],
    seconds: float,
) -> list[float]:
    print(f"{name}\n{'size':>6} {'first s':>8} {'built':>6} {'ms':>8} {'alone':>8} {'ratio':>6}", flush=True)
    run = torch.compile(model, backend="metaschedule", dynamic=True)
    alone = {}
    ratios = []
    for size in sizes:
        x = make(size)
        before, begin = builds(), time.perf_counter()
        run(x)
        first, built = time.perf_counter() - begin, builds() - before
        alone[size] = torch.compile(model.forward, backend="metaschedule", dynamic=False, fullgraph=True)
        torch._dynamo.config.recompile_limit = 10**6
        alone[size](x)
        ours, best = time_both(lambda x=x: run(x), lambda x=x, size=size: alone[size](x), seconds)
        ratios.append(ours / best)
        print(
            f"{size:>6} {first:>8.2f} {built:>6} {1e3 * ours:>8.2f} {1e3 * best:>8.2f} {ours / best:>6.2f}",
            flush=True,
        )
    print(f"largest ratio {max(ratios):.2f}, median {median(ratios):.2f}\n")
    return ratios


def bert(layers: int) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(num_hidden_layers=layers)).eval()


def convolutions() -> torch.nn.Module:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    channels = 3
    for width in (32, 64, 128):
        layers += [torch.nn.Conv2d(channels, width, 3, 2, 1), torch.nn.ReLU()]
        layers += [torch.nn.Conv2d(width, width, 3, 1, 1), torch.nn.ReLU()]
        channels = width
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--lengths", default="1,7,16,33,64,100,128,200,333,400,512")
    parser.add_argument("--images", default="160,192,224,256,288,320")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring, per size")
    options = parser.parse_args()
    with torch.no_grad():
        if options.lengths:
            lengths = [int(n) for n in options.lengths.split(",")]
            words = lambda n: torch.randint(0, 30000, (1, n))  # noqa: E731
            name = f"BERT-base, {options.layers} layers"
            measure(name, bert(options.layers), words, lengths, options.seconds)
        if options.images:
            images = [int(n) for n in options.images.split(",")]
            picture = lambda n: torch.randn(1, 3, n, n)  # noqa: E731
            measure("convolutions", convolutions(), picture, images, options.seconds)


if __name__ == "__main__":
    main()
