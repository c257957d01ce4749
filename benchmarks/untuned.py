"""What `ms.build(program)` gives without tuning, beside the loops as written, PyTorch and the FMA peak.

    python benchmarks/untuned.py [NAMES] [--config K] [--json FILE] [--threads N]

Ours, PyTorch (eager, the better of the layouts of its tensors) and the peak are measured in alternating
rounds, the first two called from Python and allocating their outputs; each counts with its fastest call, so
that what else the machine does weighs little. The loops as written run on one thread, the long ones once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch  # before anything is built: our threads are then torch's
from codegen import Bench
from rich import box
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.report.case import TWELVE
from metaschedule.report.contestants.torch_operators import counterpart
from metaschedule.report.timing import fastest, keep_freed_memory
from metaschedule.runtime.timing import duration

ROUNDS = 10
ROUND_TIME = 0.1  # seconds of each contender's calls
LARGE_PRODUCT = {"b": 1, "n": 1024, "m": 1024, "k": 1024}
# Shares of peak of Halide's Adams2019 autoscheduler, which does not measure either.
TO_PASS = {("GMM", 1, 128, 128, 128): 0.36, ("GMM", 1, 1024, 1024, 1024): 0.42}


@dataclass
class Row:
    name: str
    config: dict[str, Any]
    build: float  # this and the next three in seconds
    latency: float
    naive: float
    torch: float
    torch_layout: str
    gflops: float
    peak: float  # GFLOPS

    @property
    def over_naive(self) -> float:
        return self.naive / self.latency

    @property
    def over_torch(self) -> float:
        return self.torch / self.latency

    @property
    def to_pass(self) -> float | None:
        return TO_PASS.get((self.name, *self.config.values()))


def measure(name: str, config: dict[str, Any], threads: int, peak: Callable[[], float]) -> Row:
    program = ms.workloads.create(name, **config)
    start = time.perf_counter()
    untuned = ms.build(program, threads=threads)
    build = time.perf_counter() - start
    naive = ms.build(ms.Schedule(program), threads=1)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape, dtype="float32") for b in program.inputs]
    theirs = counterpart(name, **config)
    contenders = {"ours": partial(untuned, *arrays)} | {
        layout: partial(theirs.call, *theirs.inputs_from(arrays, layout)) for layout in theirs.layouts
    }
    want = theirs.output_to(contenders["contiguous"]())
    np.testing.assert_allclose(untuned(*arrays), want, rtol=0, atol=1e-4 * np.abs(want).max())

    best, limit = dict.fromkeys(contenders, float("inf")), 0.0
    for _ in range(ROUNDS):
        limit = max(limit, peak())
        for who, call in contenders.items():
            best[who] = min(best[who], fastest(call, ROUND_TIME))
    layout = min(theirs.layouts, key=best.__getitem__)
    work = ms.workloads.flops(name, **config)  # not of the program: T2D's multiplies zeros
    return Row(
        name, config, build, best["ours"], fastest(partial(naive, *arrays), ROUND_TIME), best[layout], layout,
        work / best["ours"] / 1e9, limit / 1e9,
    )  # fmt: skip


def cases(names: list[str], config: int) -> list[tuple[str, dict[str, Any]]]:
    for name in names:
        ms.workloads.create(name, config)  # refuses a name or a number that is not there
    named = [(name, ms.workloads.configurations(name)[config]) for name in names]
    return named + [("GMM", LARGE_PRODUCT)] * ("GMM" in names)


def table(rows: list[Row], peak: float) -> Table:
    out = Table("workload", box=box.SIMPLE, padding=0)
    for name in ("build", "latency", "GFLOPS", "of peak", "naive", "x naive", "PyTorch", "x PyTorch"):
        out.add_column(name, justify="right")
    for r in rows:
        out.add_row(
            "GMM 1024^3" if r.config == LARGE_PRODUCT else r.name,
            duration(r.build), duration(r.latency), f"{r.gflops:.1f}",
            f"{r.gflops / peak:.0%}" + (f" ({r.to_pass:.0%})" if r.to_pass else ""),
            duration(r.naive), f"{r.over_naive:.1f}", duration(r.torch), f"{r.over_torch:.2f}",
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAMES", help="workloads; default: the paper's twelve")
    parser.add_argument("--config", type=int, default=0, help="which configuration of each")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--threads", type=int, default=ms.runtime.get_num_threads())
    options = parser.parse_args()
    names = options.names or list(TWELVE)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    peak = Bench(options.threads).peak()
    console = Console()
    console.print(f"{ms.target.resolve('native')}, {options.threads} thread(s)")
    with console.status("measuring"), torch.inference_mode():
        rows = [measure(*case, options.threads, peak) for case in cases(names, options.config)]
    limit = max(r.peak for r in rows)
    console.print(table(rows, limit))
    named = rows[: len(names)]
    means = {
        "over_naive": statistics.geometric_mean([r.over_naive for r in named]),
        "over_torch": statistics.geometric_mean([r.over_torch for r in named]),
    }
    console.print("geometric means without 1024^3:", {key: round(value, 2) for key, value in means.items()})
    console.print(f"peak: {limit:.0f} GFLOPS; in brackets the share of Halide's Adams2019, to pass")
    if options.json:
        report = {"threads": options.threads, "rows": [asdict(r) for r in rows], "geometric_means": means}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
