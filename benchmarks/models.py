"""Whole models: ours as `torch.compile(model, backend="metaschedule")`, untuned and tuned, beside others.

    python benchmarks/models.py [NAMES] [--against eager,channels-last,torch-compile,zentorch,openvino]
        [--db FILE] [--trials N] [--threads N] [--profile] [--json FILE]

With --trials the models are tuned first, N trials per kernel on average; with --db the records are kept and
those that are there are used. All are then called in alternating rounds, and each counts with its fastest
call, so that what else the machine does weighs little. Every output is compared with eager's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch  # before anything is built: our threads are then torch's
from rich import box
from rich.console import Console
from rich.table import Column, Table

import metaschedule as ms
import metaschedule.torch  # makes the backend known where the package is not installed
from metaschedule.report import models
from metaschedule.report.contestants.models import OTHERS, Subject, ours
from metaschedule.report.rounds import ModelRow, compare_models

PYTORCH = ("eager", "channels-last", "torch-compile")
OURS = ("untuned", "tuned")


def measure(name: str, against: Sequence[str], database: str | None, trials: int) -> ModelRow:
    model, args = models.create(name)
    seconds = 0.0
    if database is not None and trials:
        start = time.perf_counter()
        ms.torch.tune(model, args, trials=trials, database=database)
        seconds = time.perf_counter() - start
    contestants = {who: OTHERS[who] for who in against} | {"untuned": ours}
    if database is not None:
        contestants["tuned"] = partial(ours, database=database)
    row = compare_models(Subject(name, model, args), contestants, lambda text: None)
    return replace(row, tuning={"tuned": seconds} if seconds else {})


def means(rows: list[ModelRow]) -> dict[str, float]:
    """Geometric means of the ratios, over the models that have both sides."""
    sides = {(ours, who): (who,) for ours in OURS for who in OTHERS}
    sides |= {(ours, "best of PyTorch"): PYTORCH for ours in OURS}
    ratios = {pair: [r for row in rows if (r := row.ratio(pair[0], *who))] for pair, who in sides.items()}
    return {f"{ours} over {who}": statistics.geometric_mean(r) for (ours, who), r in ratios.items() if r}


def table(rows: list[ModelRow], contestants: Sequence[str]) -> Table:
    """Milliseconds first; a ratio above 1 says that ours is faster."""
    out = Table("", *(Column(row.name, justify="right") for row in rows), box=box.SIMPLE, padding=(0, 1))

    def line(title: str, figures: Iterable[float | None], pattern: str) -> None:
        out.add_row(title, *("-" if x is None else pattern.format(x) for x in figures))

    for who in contestants:
        line(who, (scaled(row.latencies.get(who), 1e3) for row in rows), "{:.1f} ms")
    for who in OURS:
        line(f"{who} over PyTorch's best", [row.ratio(who, *PYTORCH) for row in rows], "{:.2f}")
        line(f"{who} over OpenVINO", [row.ratio(who, "openvino") for row in rows], "{:.2f}")
    line("first call, untuned", (row.first_calls.get("untuned") for row in rows), "{:.1f} s")
    line("tuning", (scaled(row.tuning.get("tuned"), 1 / 60) for row in rows), "{:.1f} min")
    return out


def scaled(x: float | None, factor: float) -> float | None:
    return None if x is None else x * factor


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAMES", help=f"of {', '.join(models.names())}")
    parser.add_argument("--against", default=",".join(OTHERS), help="which others, with commas between")
    parser.add_argument("--db", help="database of tuning records: file, or postgresql://user@host/name")
    parser.add_argument("--trials", type=int, default=0, help="tune first, so many trials per kernel")
    parser.add_argument("--threads", type=int, default=ms.runtime.get_num_threads())
    parser.add_argument("--profile", action="store_true", help="show what each of our kernels takes")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    against = [who for who in options.against.split(",") if who]
    if unknown := set(against) - set(OTHERS):
        parser.error(f"--against is of {', '.join(OTHERS)}, got {', '.join(sorted(unknown))}")
    if unknown := set(options.names) - set(models.names()):
        parser.error(f"models are {', '.join(models.names())}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(options.threads)
    console = Console()
    console.print(f"{ms.target.resolve('native')}, {options.threads} thread(s)")
    rows: list[ModelRow] = []
    with tempfile.TemporaryDirectory() as directory:
        temporary = str(Path(directory) / "records.db") if options.trials else None
        for name in options.names or models.PAPER:
            with console.status(name):
                rows.append(measure(name, against, options.db or temporary, options.trials))
            if options.profile:
                profile = ms.torch.profile(*models.create(name), database=options.db or temporary)
                console.print(name, profile.table())
    console.print(table(rows, [*against, *OURS]))
    for row in rows:
        for who, why in row.absent.items():
            console.print(f"{row.name}, {who}: {why}", markup=False)
    console.print("geometric means:", {key: round(value, 2) for key, value in means(rows).items()})
    if options.json:
        report = {"threads": options.threads, "rows": [r.as_data() for r in rows], "means": means(rows)}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
