"""A module of one's own: grow the default space for an operator that it does not know.

A separable blur is two stages. The second reads the first in nine places, so inlining would compute
everything nine times, and the default space makes two passes over memory instead. Who knows stencils computes
the first stage for a strip of rows at a time: it stays in the cache. That knowledge is the module below; the
search is untouched.

python examples/03_own_module.py [--samples 64] [--seeds 3]
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass

import numpy as np

import metaschedule as ms
from metaschedule.schedule import BlockRV, Schedule
from metaschedule.space.facts import is_output, is_spatial
from metaschedule.target import Target

TAPS = 9


# --- the module ---


@dataclass(frozen=True)
class ComputeInStrips:
    """Compute the producer of an element-wise output for a strip of its rows at a time, or as before."""

    most_rows: int = 64

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        strips = sch.fork()
        producers = strips.get_producers(block)
        if not is_output(sch, block) or len(producers) != 1 or not is_spatial(strips.get(producers[0])):
            return [sch]
        rows, *_ = strips.get_loops(block)
        strip, _ = strips.split(rows, strips.sample_tile(rows, 2, self.most_rows))
        strips.compute_at(producers[0], strip)
        strips.parallel(strip)
        for stage in (block, producers[0]):
            columns = strips.get_loops(stage, 1)[0]
            _, vector = strips.split(columns, [None, 2 * target.lanes("float32")])
            strips.vectorize(vector)
            strips.annotate(stage, "module", "ComputeInStrips")
        return [sch, strips]


# --- the operator, and the comparison ---


def blur(size: int) -> ms.Program:
    image = ms.te.placeholder((size + TAPS - 1, size + TAPS - 1), name="image")
    across = ms.te.compute(
        (size + TAPS - 1, size), lambda i, j: sum(image[i, j + t] for t in range(TAPS)) / TAPS, name="across"
    )
    down = ms.te.compute(
        (size, size), lambda i, j: sum(across[i + t, j] for t in range(TAPS)) / TAPS, name="down"
    )
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
    grown = plain + ComputeInStrips()
    print(grown)
    counts = [len(space.sketches(program)) for space in (plain, grown)]
    print(f"\n{counts[0]} sketches without the module, {counts[1]} with it")

    small = blur(37)
    image = np.random.default_rng(0).standard_normal((45, 45), "float32")
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
