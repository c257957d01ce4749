"""What a call pays to make sure that its weights are as they were built in.

    python benchmarks/weights.py [--weights N] [--rounds N]

The weights are those of BERT-base's layers, as many as asked for. Before a cold call 64 MB are read, so that
caches and the translation of addresses hold nothing of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from metaschedule.torch.weights import Weights

WIDE, FLUSH = 768, 64 << 20  # bytes


def tensors() -> Iterator[torch.Tensor]:
    """The parameters of one layer after the other."""
    while True:
        for inputs, outputs in ((1, 1), (1, 1), (1, 1), (1, 1), (1, 4), (4, 1)):  # q, k, v, out, up, down
            yield torch.randn(outputs * WIDE, inputs * WIDE)
            yield torch.randn(outputs * WIDE)
        for _ in range(4):  # two normalisations
            yield torch.randn(WIDE)


def times(weights: Weights, args: list[torch.nn.Parameter], rounds: int, cold: bool) -> list[float]:
    """Microseconds of each call."""
    other = np.ones(FLUSH // 8)
    found: list[float] = []
    for _ in range(rounds):
        if cold:
            other.sum()
        begin = time.perf_counter()
        same = weights.are_same(args)
        found.append(1e6 * (time.perf_counter() - begin))
        assert same
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--weights", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    with torch.no_grad():
        args = [torch.nn.Parameter(t) for t in islice(tensors(), options.weights)]
    weights = Weights(args, range(len(args)))
    for name, cold in (("cold", True), ("warm", False)):
        found = times(weights, args, options.rounds, cold)
        print(f"{name}: median {statistics.median(found):.0f} us, min {min(found):.0f} us")


if __name__ == "__main__":
    main()
