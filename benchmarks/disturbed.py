"""Tuning beside a busy process: are the winners those of a quiet machine?

    .venv/bin/python benchmarks/disturbed.py [--times 10] [--trials 64] [--directory disturbed] [GMM C2D SFM]

Tunes each workload some times on the machine as it is, which should be otherwise idle, and as often beside a
busy loop on every core. Then all winners are measured again, quietly and by turns, and what each takes is
printed beside the median of the quiet ones. A busy run that says that it could not measure is counted apart.

Every step leaves a file in the directory, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import metaschedule as ms
from metaschedule.ir import Program
from metaschedule.measure import Measurer

BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with the benchmark
ALLOWED = 1.10  # times the quiet winner: more must have been said


@contextmanager
def burner() -> Iterator[None]:
    """As many busy processes as there are cores."""
    processes = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def tuned(program: Program, seed: int, trials: int, busy: bool) -> dict[str, Any]:
    """What one run came to, as plain data."""
    begin = time.monotonic()
    if busy:
        with burner():
            result = ms.tune(program, trials=trials, seed=seed)
    else:
        result = ms.tune(program, trials=trials, seed=seed)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return {
        "latency": result.latency,
        "untuned": result.untuned,
        "measured": not any("too busy" in note for note in result.notes),
        "notes": result.notes,
        "seconds": time.monotonic() - begin,
        "doubtful": sum(not record.reliable for record in result.records),
        "trace": result.trace.to_json(),
    }


def measured_again(program: Program, traces: list[str]) -> list[float]:
    """Seconds of each, measured by turns; the untuned default is none of them."""
    programs = [ms.Trace.from_json(trace).apply(program).program for trace in traces]
    with Measurer(program) as measurer:
        measurer.measure(programs)
        outcomes = measurer.confirm(programs)
    if failed := [outcome for outcome in outcomes if outcome.latency is None]:
        raise SystemExit(f"a winner of {program.name} no longer works: {failed[0]}")
    if any(not outcome.reliable for outcome in outcomes):
        print(f"{program.name}: the machine is not quiet, so these ratios mean little", flush=True)
    return [outcome.latency or 0.0 for outcome in outcomes]


def report(name: str, quiet: list[float], busy: list[float], runs: list[dict[str, Any]]) -> str:
    """`runs` are the busy ones."""
    usual = statistics.median(quiet)
    ratios = [seconds / usual for seconds in busy]
    silent = [r for r, run in zip(ratios, runs, strict=True) if r > ALLOWED and run["measured"]]
    low, high = 1e6 * min(quiet), 1e6 * max(quiet)
    reported = ", ".join([f"{1e6 * run['latency']:.1f}" for run in runs if run["latency"]])
    lines = [
        f"{name}: quiet winners take {low:.1f} to {high:.1f} us, median {1e6 * usual:.1f}",
        f"  beside the burner, by that median: {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}",
        f"  median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}; "
        f"{sum(not run['measured'] for run in runs)} of {len(runs)} said that they could not measure, "
        f"{len(silent)} were over {ALLOWED:.2f} without saying so",
        f"  reported {reported} us; {statistics.median(run['seconds'] for run in runs):.0f} s a run",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["GMM", "C2D", "SFM"])
    parser.add_argument("--times", type=int, default=10, help="runs of each workload, quiet and busy")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--directory", type=Path, default=Path("disturbed"), help="of what was done already")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    steps = [(n, busy, seed) for seed in range(args.times) for n in args.workloads for busy in (False, True)]
    found: dict[tuple[str, bool, int], dict[str, Any]] = {}
    begin, done = time.monotonic(), 0
    for step in steps:
        name, busy, seed = step
        path = args.directory / f"{name}-{'busy' if busy else 'quiet'}-{args.trials}-{seed}.json"
        if not path.exists():
            run = tuned(ms.workloads.create(name, 0), seed, args.trials, busy)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(run))
            partial.rename(path)
            done += 1
        found[step] = json.loads(path.read_text())
        each = (time.monotonic() - begin) / max(1, done)
        print(
            f"{len(found)} of {len(steps)} runs, "
            f"about {each * (len(steps) - len(found)) / 60:.0f} minutes left: "
            f"{path.stem} {1e6 * (found[step]['latency'] or 0):.1f} us, "
            f"{'; '.join(found[step]['notes']) or 'undisturbed'}",
            flush=True,
        )
    for name in args.workloads:
        quiet, busy = ([found[name, how, seed] for seed in range(args.times)] for how in (False, True))
        seconds = measured_again(ms.workloads.create(name, 0), [run["trace"] for run in quiet + busy])
        print(report(name, seconds[: args.times], seconds[args.times :], busy), flush=True)


if __name__ == "__main__":
    main()
