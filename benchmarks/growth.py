"""How cost grows with the program: stages, extents, kernels of a model; seconds of CPU time and slopes.

python benchmarks/growth.py [--most 512] [--kernels 256] [--json FILE]

A slope is that of time over size, both as logarithms, over the larger half of the sizes: 1 is in proportion.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import executable
from metaschedule.space import default
from metaschedule.space.untuned import schedule_untuned

Times = dict[str, float]


def elementwise(stages: int, extent: int = 64) -> ms.Program:
    """A chain of stages that each read the one before."""
    x = te.placeholder((extent, extent), name="x")
    y = x
    for n in range(stages):
        y = te.compute((extent, extent), lambda i, j, y=y, n=n: y[i, j] * 0.5 + float(n), name="step")
    return te.program([x], [y])


def mixed(stages: int, extent: int = 64) -> ms.Program:
    """Row reductions and element-wise stages in turn: each pair subtracts a multiple of the row's mean."""
    x = te.placeholder((extent, extent), name="x")
    y = x
    for n in range(stages // 2):
        k = te.reduce_axis(extent)
        mean = te.compute((extent,), lambda i, y=y, k=k: te.sum(y[i, k], axis=k), name="mean")
        part = (1 + n % 7) / (8 * extent)
        y = te.compute((extent, extent), lambda i, j, y=y, m=mean, p=part: y[i, j] - m[i] * p, name="centred")
    return te.program([x], [y])


def distinct(stages: int, extent: int = 64) -> ms.Program:
    """The same, and no two stages are alike, so that nothing that is found for one serves another."""
    x = te.placeholder((extent, extent), name="x")
    y = x
    for n in range(stages // 2):
        k = te.reduce_axis(extent)
        mean = te.compute(
            (extent,), lambda i, y=y, k=k, n=n: te.sum(y[i, k] * float(n + 1), axis=k), name="mean"
        )
        part = (1 + n) / (8 * extent)
        y = te.compute((extent, extent), lambda i, j, y=y, m=mean, p=part: y[i, j] - m[i] * p, name="centred")
    return te.program([x], [y])


def diamonds(stages: int, extent: int = 64) -> ms.Program:
    """Two stages read what was before, a third reads both."""
    x = te.placeholder((extent, extent), name="x")
    y = x
    for _ in range(max(1, stages // 3)):
        a = te.compute((extent, extent), lambda i, j, y=y: y[i, j] + 1.0, name="left")
        b = te.compute((extent, extent), lambda i, j, y=y: y[i, j] * 0.5, name="right")
        y = te.compute((extent, extent), lambda i, j, a=a, b=b: (a[i, j] + b[i, j]) * 0.5, name="joined")
    return te.program([x], [y])


def phases(make: Callable[[], ms.Program]) -> Times:
    """What each phase of building a program without tuning takes, with a space that knows nothing yet."""
    space = default()
    times: Times = {}

    def timed(phase: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        times[phase] = time.process_time() - start
        return result

    program = timed("program", make)
    timed("hash", lambda: ms.structural_hash(program))
    timed("sketches", lambda: space.pieces(program))
    sch = timed("schedule", lambda: schedule_untuned(program, space.target, space))
    final = timed("print", lambda: (str(sch.program), sch.program)[1])
    timed("compile", lambda: executable(final, space.target, None, None))
    times["all"] = sum(times.values())
    return times


def model(kernels: int) -> Times:
    """What compiling a model of so many different layers takes, through `torch.compile`."""
    import torch

    layers: list[Any] = []
    width = 16
    for n in range(kernels):
        layers += [torch.nn.Linear(width, 16 + n % 32), torch.nn.ReLU()]
        width = 16 + n % 32
    net = torch.nn.Sequential(*layers).eval()
    start = time.process_time()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(net, backend="metaschedule")(torch.zeros(4, 16))
    return {"all": time.process_time() - start}


def slope(sizes: list[int], times: list[float]) -> float:
    """Of the logarithms, by least squares, over the larger half of the sizes."""
    half = len(sizes) // 2
    xs = [math.log(n) for n in sizes[half:]]
    ys = [math.log(max(t, 1e-6)) for t in times[half:]]
    if len(xs) < 2:
        return math.nan
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys)) / sum((x - x0) ** 2 for x in xs)


def report(title: str, sizes: list[int], run: Callable[[int], Times], console: Console) -> dict[str, Any]:
    found = [run(n) for n in sizes]
    table = Table("phase", *map(str, sizes), "slope", title=f"{title}, s")
    slopes: Times = {}
    for phase in found[0]:
        times = [each[phase] for each in found]
        slopes[phase] = slope(sizes, times)
        table.add_row(phase, *[f"{t:.2f}" for t in times], f"{slopes[phase]:.2f}")
    console.print(table)
    return {"sizes": sizes, "times": found, "slopes": slopes}


def powers(first: int, last: int, by: int = 2) -> list[int]:
    sizes = [first]
    while sizes[-1] * by <= last:
        sizes.append(sizes[-1] * by)
    return sizes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--most", type=int, default=512, help="stages of the largest program")
    parser.add_argument("--kernels", type=int, default=256, help="layers of the largest model")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    console = Console()
    phases(lambda: elementwise(2))  # what is loaded once
    results: dict[str, Any] = {}
    for make in (elementwise, mixed, distinct, diamonds):
        title = f"stages, {make.__name__}"
        results[title] = report(
            title, powers(8, options.most), lambda n, make=make: phases(lambda: make(n)), console
        )
    results["extents"] = report(
        "extents, 4 mixed stages", powers(16, 2**14, 4), lambda n: phases(lambda: mixed(4, n)), console
    )
    if importlib.util.find_spec("torch") is None:
        console.print("models: skipped, PyTorch is not installed")
    else:
        results["kernels"] = report("kernels of a model", powers(1, options.kernels, 4), model, console)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
