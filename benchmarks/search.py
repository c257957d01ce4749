"""How fast tuning is, and how good.

python benchmarks/search.py [WORKLOAD ...] [--trials N] [--json FILE]  seconds, by what they were spent on
python benchmarks/search.py --compare [WORKLOAD ...]  against no trials, random ones, twice as many
python benchmarks/search.py --longer 512 [--seeds 1] [WORKLOAD ...]  against so many trials
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import metaschedule as ms
from metaschedule.cost import Learned
from metaschedule.ir import Program
from metaschedule.measure import Measurer
from metaschedule.report.case import TWELVE
from metaschedule.schedule import Schedule
from metaschedule.space.untuned import schedule_untuned
from metaschedule.target import Target, resolve

TIMED = ("GMM", "C2D", "CBR", "SFM")
COMPARED = ("GMM", "C1D", "DEP", "GRP", "TBG", "SFM")
TURNS = 5


class Counting(Learned):
    """The usual model; knows how many candidates it has scored."""

    scored = 0

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray:
        Counting.scored += len(programs)
        return super().predict(programs)


def times(name: str, trials: int) -> dict[str, Any]:
    """Seconds of one run from a cold start."""
    program = ms.workloads.create(name)
    Counting.scored = 0
    begin = time.perf_counter()
    result = ms.tune(program, trials=trials, model=Counting)
    total = time.perf_counter() - begin
    looking = result.seconds["search"] + result.seconds["model"]
    assert result.latency is not None
    return {
        "workload": name,
        "us": 1e6 * result.latency,
        "GFLOPS": ms.workloads.flops(name) / result.latency / 1e9,
        "scored": Counting.scored,
        "scored/s": Counting.scored / looking,
        **result.seconds,
        "total": total,
    }


def winners_compared(program: Program, schedules: Sequence[Schedule], target: Target) -> list[float]:
    """Seconds of several schedules, measured in turns; the smallest of several times, for what else the
    machine does only makes them longer."""
    with Measurer(program, target) as measurer:
        runs = [measurer.confirm([sch.program for sch in schedules]) for _ in range(TURNS)]
    return [min(outcome.latency or math.inf for outcome in outcomes) for outcomes in zip(*runs)]


def compared(name: str, seed: int, trials: int) -> dict[str, Any]:
    """How much faster evolutionary search makes a program than other ways; above 1 is better."""
    program, target = ms.workloads.create(name), resolve()
    ways = {
        "evolutionary": ms.tune(program, trials=trials, seed=seed).schedule,
        "untuned": schedule_untuned(program, target),
        "random": ms.tune(program, trials=trials, seed=seed, strategy="random").schedule,
        f"{2 * trials} trials": ms.tune(program, trials=2 * trials, seed=seed).schedule,
    }
    mine, *theirs = winners_compared(program, list(ways.values()), target)
    ratios = {f"vs {way}": seconds / mine for way, seconds in zip(list(ways)[1:], theirs)}
    return {"workload": name, "seed": seed, "us": 1e6 * mine, **ratios}


def longer(name: str, seed: int, trials: int, more: int) -> dict[str, Any]:
    """How much is left to find for many more trials; 1 if nothing."""
    program = ms.workloads.create(name)
    found = [ms.tune(program, trials=count, seed=seed).schedule for count in (trials, more)]
    few, many = winners_compared(program, found, resolve())
    return {"workload": name, "seed": seed, "us": 1e6 * few, f"vs {more} trials": many / few}


def show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()])
    for column in rows[0]:
        if column.startswith("vs "):
            mean = statistics.geometric_mean([row[column] for row in rows])
            table.caption = f"{table.caption or ''} {column}: {mean:.3f}"
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--longer", type=int, metavar="TRIALS")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args()
    if options.longer:
        names, seeds = options.workloads or TWELVE, range(options.seeds)
        runs = [
            partial(longer, name, seed, options.trials, options.longer) for name in names for seed in seeds
        ]
    elif options.compare:
        names, seeds = options.workloads or COMPARED, range(options.seeds)
        runs = [partial(compared, name, seed, options.trials) for name in names for seed in seeds]
    else:
        runs = [partial(times, name, options.trials) for name in options.workloads or TIMED]
    rows = [run() for run in track(runs, "Tuning", console=Console(stderr=True))]
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
