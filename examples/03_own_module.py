"""A module of one's own: grow the default space for an operator that it does not know.

A separable blur is two stages. The second reads the first in three places, so inlining would compute
everything three times, and the default space makes two passes over memory instead. Who knows stencils
computes the first stage for a tile at a time: it stays in the cache. That knowledge is the module below; the
search is untouched.

python examples/03_own_module.py [--samples 64] [--seeds 3]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import metaschedule as ms
from metaschedule.schedule import BlockRV, Schedule
from metaschedule.space.block_predicates import is_output, is_spatial
from metaschedule.target import Target

TAPS = 3


# --- the module ---


@dataclass(frozen=True)
class ComputeInTiles:
    """Compute the producer of an element-wise output for a tile of its elements at a time; or as before."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        tiled = sch.fork()
        producers = tiled.get_producers(block)
        if not is_output(sch, block) or len(producers) != 1 or not is_spatial(tiled.get(producers[0])):
            return [sch]
        rows, columns = tiled.get_loops(block, 2)
        row_tiles, row = tiled.split(rows, tiled.sample_tile(rows, 2, 128))
        column_tiles, column = tiled.split(
            columns, tiled.sample_tile(columns, 2, 1024, target.lanes("float32"))
        )
        tiled.reorder(row_tiles, column_tiles, row, column)
        tiled.compute_at(producers[0], column_tiles)
        tiled.parallel(tiled.fuse(row_tiles, column_tiles))
        for stage in (block, producers[0]):
            (columns,) = tiled.get_loops(stage, 1)
            _, vector = tiled.split(columns, [None, 2 * target.lanes("float32")])
            tiled.vectorize(vector)
            tiled.annotate(stage, "module", "ComputeInTiles")
        return [sch, tiled]


# --- the operator, and the comparison ---


def blur(size: int) -> ms.Program:
    reach = TAPS - 1

    def mean(values: Iterable[Any]) -> Any:
        return sum(values) * (1 / TAPS)

    image = ms.te.placeholder((size + reach, size + reach), name="image")
    across = ms.te.compute(
        (size + reach, size), lambda i, j: mean(image[i, j + t] for t in range(TAPS)), name="across"
    )
    down = ms.te.compute((size, size), lambda i, j: mean(across[i + t, j] for t in range(TAPS)), name="down")
    return ms.te.program([image], [down])


def best_of(space: ms.space.Space, program: ms.Program, samples: int, seed: int) -> float:
    """The latency of the fastest of some random candidates."""
    rng = random.Random(seed)
    drawn = {space.sample(program, rng).trace: None for _ in range(samples)}
    return min(ms.build(trace.apply(program)).benchmark().min for trace in drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()

    program = blur(options.size)
    plain = ms.space.default()
    grown = plain + ComputeInTiles()
    print(grown)
    counts = [len(space.sketches(program)) for space in (plain, grown)]
    print(f"\n{counts[0]} sketches without the module, {counts[1]} with it")

    small = blur(37)
    image = np.random.default_rng(0).standard_normal((39, 39), "float32")
    for sketch in grown.sketches(small):  # every candidate computes the same
        np.testing.assert_allclose(
            ms.build(sketch.apply(small))(image), ms.interpret(small, image), atol=1e-5
        )

    for seed in range(options.seeds):
        without = best_of(plain, program, options.samples, seed)
        with_it = best_of(grown, program, options.samples, seed)
        print(
            f"seed {seed}: best of {options.samples} random candidates {without * 1e6:.0f} us without, "
            f"{with_it * 1e6:.0f} us with the module: {without / with_it:.2f}x"
        )


if __name__ == "__main__":
    main()
