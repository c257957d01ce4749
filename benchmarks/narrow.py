"""Products of narrow numbers by hardware instructions, beside PyTorch (oneDNN) and four or two times the
FMA peak.

    python benchmarks/narrow.py [--trials 24] [--sizes 128 512 1024]

Square matrices, the second one constant: int8 (both signed) beside `torch._int_mm`, bfloat16 beside
`torch.mm`. Ours untuned, ours tuned and PyTorch are called from Python in alternating rounds; the fastest
call counts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import numpy_dtype
from metaschedule.measure.peak import measured_peak
from metaschedule.target import resolve

ROUNDS, CALLS = 5, 60
PER_FMA = {"int8": 4, "bfloat16": 2}  # multiply-adds in the time of one of float32


def product(size: int, dtype: str, total: str) -> ms.Program:
    a = te.placeholder((size, size), dtype, name="A")
    b = te.placeholder((size, size), dtype, name="B", constant=True)
    k = te.reduce_axis(size, name="k")
    c = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k].astype(total) * b[k, j].astype(total), axis=k), name="C"
    )
    return te.program([a, b], [c])


def fastest(call: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512, 1024])
    options = parser.parse_args()
    target = resolve("native")
    torch.set_num_threads(target.cores)
    table = Table(
        "product", "PyTorch, us", "untuned, us", "tuned, us", "times PyTorch", "share of peak", "by"
    )
    rng = np.random.default_rng(0)
    for dtype, total in (("int8", "int32"), ("bfloat16", "float32")):
        for size in options.sizes:
            program = product(size, dtype, total)
            a, b = (rng.integers(-9, 9, (size, size)).astype(numpy_dtype(dtype)) for _ in range(2))
            left, right = (torch.from_numpy(x.astype("float32")).to(getattr(torch, dtype)) for x in (a, b))
            theirs = torch.ops.aten._int_mm if dtype == "int8" else torch.mm
            untuned = ms.build(program, constants={"B": b})
            result = ms.tune(program, trials=options.trials)
            tuned = ms.build(result.schedule, constants={"B": b}) if result.schedule else None
            calls: dict[str, Callable[[], Any]] = {
                "PyTorch": lambda f=theirs, x=left, y=right: f(x, y),
                "untuned": lambda f=untuned, x=a: f(x),
                "tuned": lambda f=tuned, x=a: f(x) if f else None,
            }
            best = dict.fromkeys(calls, float("inf"))
            for _ in range(ROUNDS):
                best = {name: min(best[name], fastest(call)) for name, call in calls.items()}
            used = [line.split('"')[1] for line in str(result.trace).splitlines() if "tensorize" in line]
            rate = 2 * size**3 / best["tuned"]
            table.add_row(
                f"{dtype} {size}^3",
                *[f"{1e6 * seconds:.1f}" for seconds in best.values()],
                f"{best['PyTorch'] / best['tuned']:.2f}",
                f"{rate / (PER_FMA[dtype] * 1e9 * measured_peak(target)):.0%}",
                *(used or ["no instruction"]),
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
