"""Whole models: ours as `torch.compile(model, backend="metaschedule")`, untuned and tuned, beside others.

    python benchmarks/models.py [NAMES] [--against eager,channels-last,torch-compile,openvino]
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch  # before anything is built: our threads are then torch's
from rich import box
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor, nn

import metaschedule as ms
import metaschedule.torch  # makes the backend known where the package is not installed
from metaschedule.report import models
from metaschedule.report.timing import fastest, keep_freed_memory

ROUNDS = 5
ROUND_TIME = 0.5  # seconds of each contestant's calls
PYTORCH = ("eager", "channels-last", "torch-compile")
OURS = ("untuned", "tuned")
Call = Callable[[], Any]


@dataclass
class Row:
    name: str
    latencies: dict[str, float] = field(default_factory=dict)  # seconds, by contestant
    first_calls: dict[str, float] = field(default_factory=dict)  # seconds, with what is compiled in it
    absent: dict[str, str] = field(default_factory=dict)  # contestants that could not take part, and why
    tuning: float | None = None  # seconds

    def ratio(self, ours: str, *others: str) -> float | None:
        """The latency of the best of the others over that of ours: above 1 ours is faster."""
        found = [self.latencies[who] for who in others if who in self.latencies]
        return min(found) / self.latencies[ours] if found and ours in self.latencies else None


def eager(model: nn.Module, args: tuple[Tensor, ...]) -> Call:
    return partial(model, *args)


def channels_last(model: nn.Module, args: tuple[Tensor, ...]) -> Call:
    if not all(x.ndim == 4 for x in args):
        raise ValueError("not a model of images")
    layout: Any = {"memory_format": torch.channels_last}
    return partial(model.to(**layout), *(x.to(**layout) for x in args))


def torch_compile(model: nn.Module, args: tuple[Tensor, ...]) -> Call:
    return partial(torch.compile(model), *args)


def openvino(model: nn.Module, args: tuple[Tensor, ...]) -> Call:
    ov: Any = import_module("openvino")  # a name that the type checker need not find
    hints = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    converted = ov.convert_model(model, example_input=args, input=[tuple(x.shape) for x in args])
    compiled = ov.compile_model(converted, "CPU", hints)
    arrays = [x.numpy() for x in args]
    return lambda: [torch.from_numpy(y) for y in compiled(arrays).values()]


def ours(model: nn.Module, args: tuple[Tensor, ...], database: str | None = None) -> Call:
    options: Any = {} if database is None else {"database": str(database)}
    return partial(torch.compile(model, backend="metaschedule", options=options), *args)


OTHERS = {
    "eager": eager,
    "channels-last": channels_last,
    "torch-compile": torch_compile,
    "openvino": openvino,
}


def measure(name: str, against: Sequence[str], database: str | None, trials: int) -> Row:
    row = Row(name)
    if database is not None and trials:
        start = time.perf_counter()
        ms.torch.tune(*models.create(name), trials=trials, database=database)
        row.tuning = time.perf_counter() - start
    makers = {who: OTHERS[who] for who in against} | {"untuned": ours}
    if database is not None:
        makers["tuned"] = partial(ours, database=database)
    want = tensors(eager(*models.create(name))())
    calls: dict[str, Call] = {}
    for who, make in makers.items():
        start = time.perf_counter()
        try:
            call = make(*models.create(name))  # a model of its own: a change of layout is in place
            got = tensors(call())
        except Exception as error:  # whatever a converter or compiler raises, the others go on
            row.absent[who] = f"{type(error).__name__}: {error}".partition("\n")[0]
            continue
        row.first_calls[who] = time.perf_counter() - start
        check(name, who, got, want)
        calls[who] = call
    row.latencies = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for who, call in calls.items():
            row.latencies[who] = min(row.latencies[who], fastest(call, ROUND_TIME))
    return row


def tensors(outputs: Any) -> list[Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def check(name: str, who: str, got: list[Tensor], want: list[Tensor]) -> None:
    for y, expected in zip(got, want, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(
            y, expected, rtol=1e-3, atol=1e-4 * scale, msg=lambda text: f"{name}, {who}: {text}"
        )


def means(rows: list[Row]) -> dict[str, float]:
    """Geometric means of the ratios, over the models that have both sides."""
    sides = {(ours, who): (who,) for ours in OURS for who in OTHERS}
    sides |= {(ours, "best of PyTorch"): PYTORCH for ours in OURS}
    ratios = {pair: [r for row in rows if (r := row.ratio(pair[0], *who))] for pair, who in sides.items()}
    return {f"{ours} over {who}": statistics.geometric_mean(r) for (ours, who), r in ratios.items() if r}


def table(rows: list[Row], contestants: Sequence[str]) -> Table:
    """Milliseconds first; a ratio above 1 says that ours is faster."""
    out = Table("", *(Column(row.name, justify="right") for row in rows), box=box.SIMPLE, padding=(0, 1))

    def line(title: str, figures: Iterable[float | None], pattern: str) -> None:
        out.add_row(title, *("-" if x is None else pattern.format(x) for x in figures))

    for who in contestants:
        line(who, (scaled(row.latencies.get(who), 1e3) for row in rows), "{:.1f} ms")
    for ours in OURS:
        line(f"{ours} over PyTorch's best", (row.ratio(ours, *PYTORCH) for row in rows), "{:.2f}")
        line(f"{ours} over OpenVINO", (row.ratio(ours, "openvino") for row in rows), "{:.2f}")
    line("first call, untuned", (row.first_calls.get("untuned") for row in rows), "{:.1f} s")
    line("tuning", (scaled(row.tuning, 1 / 60) for row in rows), "{:.1f} min")
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
    keep_freed_memory()
    console = Console()
    console.print(f"{ms.target.resolve('native')}, {options.threads} thread(s)")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory, torch.inference_mode():
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
        report = {"threads": options.threads, "rows": [asdict(r) for r in rows], "means": means(rows)}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
