"""The default space contains the best kernels: stored traces, and the share of the FMA peak that they reach.

    python benchmarks/contained.py [--tune TRIALS] [--json FILE] [NAMES]

The traces are in tests/space/traces. Each is measured in turn with the peak, on all cores; --tune finds them
anew and stores what is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.build import declare_constants
from metaschedule.measure.peak import measure_peak
from metaschedule.target import Target, resolve

TRACES = Path(__file__).parent.parent / "tests" / "space" / "traces"
WANTED = 0.80
KERNELS: dict[str, Callable[[], ms.Program]] = {
    "GMM 128": lambda: ms.workloads.create("GMM", b=1, n=128, m=128, k=128),
    "GMM 1024": lambda: ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024),
    "C2D": lambda: ms.workloads.create("C2D", 0),
    "DIL": lambda: ms.workloads.create("DIL", 0),
    "FDENSE": lambda: declare_constants(ms.workloads.create("FDENSE", 0), ["W"]),
}


def path_of(name: str) -> Path:
    return TRACES / f"{name.replace(' ', '_')}.json"


def latency(sch: ms.Schedule, threads: int) -> float:
    """Seconds of the kernel; constants are prepared before."""
    rng = np.random.default_rng(0)
    constants = {
        b.name: rng.standard_normal(b.shape).astype(b.dtype) for b in sch.state.original.inputs if b.constant
    }
    return ms.build(sch, threads=threads, constants=constants).benchmark().min


def measure(program: ms.Program, trace: ms.Trace, target: Target, rounds: int = 10) -> dict[str, Any]:
    sch = trace.apply(program)
    peak, time = 0.0, float("inf")
    for _ in range(rounds):
        peak = max(peak, measure_peak(target))
        time = min(time, latency(sch, target.cores))
    rate = ms.workloads.flops(program) / time / 1e9
    return {"us": 1e6 * time, "GFLOPS": rate, "peak": peak, "share": rate / peak}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*KERNELS, []], help="kernels (default: all)")
    parser.add_argument("--tune", type=int, default=0, help="trials to find a better trace with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    target = resolve("native")
    table = Table("kernel", "us", "GFLOPS", "peak", "share", f"wanted {WANTED:.0%}")
    report: dict[str, Any] = {}
    for name in options.names or KERNELS:
        program, path = KERNELS[name](), path_of(name)
        trace = ms.Trace.from_json(path.read_text()) if path.exists() else None
        if options.tune:
            found = ms.tune(program, trials=options.tune, seed=options.seed)
            if trace is None or latency(found.schedule, target.cores) < latency(
                trace.apply(program), target.cores
            ):
                trace = found.trace
                path.write_text(trace.to_json())
        if trace is None:
            continue
        row = report[name] = measure(program, trace, target)
        ok = "[green]yes" if row["share"] >= WANTED else "[red]no"
        table.add_row(
            name, f"{row['us']:.1f}", f"{row['GFLOPS']:.1f}", f"{row['peak']:.1f}", f"{row['share']:.0%}", ok
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0 if all(row["share"] >= WANTED for row in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
