"""How well the cost models rank candidates of the default space, and how long they take.

python benchmarks/cost.py [NAME ...] [--samples 60] [--threads 1] [--json FILE]

Columns: rank correlation of the analytical model with measured times; how much slower its choice among the
samples is than the fastest of them; rank correlation of the learned model on the second half after learning
from the first; microseconds per program.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.cost import Analytical, Learned, rank_correlation
from metaschedule.space import default
from metaschedule.target import Target, resolve

NAMES = ("GMM", "C2D", "DEP", "SFM", "NRM", "T2D", "CBR")
SLOW = 0.05  # seconds: measured once


def measured(sch: ms.Schedule, threads: int) -> float:
    exe = ms.build(sch, threads=threads)
    once = exe.benchmark(repeats=1).min
    return once if once > SLOW else min(once, exe.benchmark().min)


def rank(name: str, samples: int, target: Target) -> dict[str, float]:
    program, space = ms.workloads.create(name), default(target)
    candidates = [space.sample(program, random.Random(seed)) for seed in range(samples)]
    seconds = np.array([measured(sch, target.cores) for sch in candidates])
    start = time.process_time()
    predicted = Analytical(target).predict(candidates)
    spent = time.process_time() - start
    half = samples // 2
    model = Learned(target)
    model.update(candidates[:half], seconds[:half].tolist())
    return {
        "analytical": rank_correlation(predicted, seconds),
        "choice": seconds[predicted.argmin()] / seconds.min(),
        "learned": rank_correlation(model.predict(candidates[half:]), seconds[half:]),
        "us": spent / samples * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    target = resolve("native").with_cores(options.threads)
    report = {name: rank(name, options.samples, target) for name in options.names}
    table = Table("workload", "analytical", "choice / best", "learned", "us per program")
    for name, row in report.items():
        table.add_row(
            name,
            f"{row['analytical']:.2f}",
            f"{row['choice']:.2f}",
            f"{row['learned']:.2f}",
            f"{row['us']:.0f}",
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
