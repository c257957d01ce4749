"""How well the analytical model ranks schedules of real GPUs that were measured elsewhere.

python benchmarks/gpu_prediction.py [--data DIR] [--all | --samples 500] [--target NAME=TARGET] [--json FILE]

Every configuration of the data is written as a schedule (benchmarks/gpu_schedules.py) and predicted from the
target's description alone. Columns: Spearman's rank correlation of predicted and measured times; how much
slower the best of the ten that are predicted fastest is than the true best; the median of predicted over
measured time.

The data: `gpu_gemm/<GPU>.csv`, CLBlast's Xgemm on 4096^3 float32 (`fjwillemsen/kernel_tuner_paper`), and
`gpu_convolution/<GPU>.csv`, a 15 x 15 filter on 4096 x 4096 (`AutoTuningAssociation/benchmark_hub`): one
column per parameter, and `time_ms`, no number where a configuration failed. The file's name says which GPU
(A100, A4000, ...). What `read_only` says (loads by an intrinsic of their own) is no part of a schedule: both
values are predicted alike.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gpu_schedules import Config, product, schedule_convolution, schedule_product
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.cost import rank_correlation
from metaschedule.cost.gpu import GpuEstimate
from metaschedule.cost.gpu.table import GpuTable
from metaschedule.target import Target, resolve
from metaschedule.target.gpus import DEVICES, SM

Measured = tuple[Config, float]
AT_ONCE = 500  # schedules in one table
BEST = 10


def read(path: Path) -> list[Measured]:
    """The configurations that worked, and milliseconds."""
    found: list[Measured] = []
    with path.open() as file:
        for row in csv.DictReader(file):
            try:
                took = float(row.pop("time_ms"))
            except ValueError:
                continue
            if math.isfinite(took):
                found.append(({name: int(value) for name, value in row.items()}, took))
    return found


def find_target(name: str, given: dict[str, str]) -> Target:
    """The target that a file's name stands for: "A4000" is "cuda:rtx-a4000"."""
    if name in given:
        return resolve(given[name])
    plain = name.lower().replace("_", "-").replace(" ", "-")
    keys = [key for key in DEVICES if key == plain] or [key for key in DEVICES if key.endswith(f"-{plain}")]
    if not keys:
        raise SystemExit(f"no device is called {name}; say --target {name}=TARGET")
    return resolve(f"{'cuda' if DEVICES[keys[0]][0] in SM else 'opencl'}:{keys[0]}")


def predict(schedules: list[ms.Schedule], targets: list[Target]) -> list[np.ndarray]:
    """Seconds of schedules, on each target."""
    times: list[list[np.ndarray]] = [[] for _ in targets]
    for begin in range(0, len(schedules), AT_ONCE):
        table = GpuTable(schedules[begin : begin + AT_ONCE])
        for n, target in enumerate(targets):
            assert target.gpu is not None
            times[n].append(GpuEstimate(table, target.gpu).seconds)
    return [np.concatenate(part) for part in times]


def compare(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    fastest = np.argsort(predicted, kind="stable")[:BEST]
    return {
        "configurations": len(measured),
        "spearman": rank_correlation(predicted, measured),
        "best of ten": float(measured[fastest].min() / measured.min()),
        "ratio": float(np.median(predicted * 1e3 / measured)),
    }


def rank(folder: Path, samples: int | None, given: dict[str, str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Figures of every GPU of a folder; a schedule serves all of them."""
    files = sorted(folder.glob("*.csv"))
    data = {path.stem: {tuple(c.items()): took for c, took in read(path)} for path in files}
    configs = sorted({config for found in data.values() for config in found})
    if samples is not None and samples < len(configs):
        configs = sorted(random.Random(0).sample(configs, samples))
    if folder.name == "gpu_gemm":
        program = product()
        schedules = [schedule_product(program, dict(config)) for config in configs]
    else:
        schedules = [schedule_convolution(dict(config)) for config in configs]
    times = predict(schedules, [find_target(name, given) for name in data])
    for (name, found), seconds in zip(data.items(), times, strict=True):
        there = [n for n, config in enumerate(configs) if config in found]
        measured = np.array([found[configs[n]] for n in there])
        yield name, compare(seconds[there], measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--all", action="store_true", help="every configuration, not a sample")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--target", action="append", default=[], metavar="NAME=TARGET")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    given = dict(text.split("=", 1) for text in options.target)
    folders = [options.data / name for name in ("gpu_gemm", "gpu_convolution")]
    if not any(folder.is_dir() for folder in folders):
        raise SystemExit(f"no data in {options.data}: --data DIRECTORY")
    table = Table("kernel", "GPU", "configurations", "Spearman", "best of ten / best", "predicted / measured")
    report: dict[str, dict[str, float]] = {}
    begin = time.monotonic()
    for folder in folders:
        for name, figures in rank(folder, None if options.all else options.samples, given):
            kernel = folder.name.removeprefix("gpu_")
            report[f"{kernel} {name}"] = figures
            table.add_row(
                kernel, name, f"{figures['configurations']:.0f}", f"{figures['spearman']:.3f}",
                f"{figures['best of ten']:.2f}", f"{figures['ratio']:.2f}",
            )  # fmt: skip
    Console().print(table)
    print(f"{time.monotonic() - begin:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
