"""A model in company: eight threads that call it at a time, and a busy process beside it.

    python benchmarks/crowd.py [MODEL...] [--seconds S] [--callers N]

Everybody (eager, torch.compile, ours) by turns in three situations: one caller and nothing else; one caller
beside as many busy processes as there are cores; several Python threads that call the one model. Of one
caller the mean and the slowest of a hundred calls, of several their calls a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import metaschedule as ms
from metaschedule.report import models

MODELS = ("gru_steps", "mobilenet_v3", "bert_small")
ROUNDS = 3
BUSY = "while True: pass"
Call = Callable[[], Any]


def contestants(name: str) -> dict[str, Call]:
    model, args = models.create(name)
    runs: dict[str, Any] = {
        "eager": model,
        "torch.compile": torch.compile(model),
        "ours": ms.torch.optimize(model, args),
    }
    for run in runs.values():
        run(*args)
    return {who: (lambda run=run: run(*args)) for who, run in runs.items()}


@contextmanager
def busy_processes() -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.2)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def times_of(call: Call, seconds: float) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        with torch.no_grad():
            call()
        found.append(time.perf_counter() - start)
    return found


def calls_a_second(call: Call, seconds: float, callers: int) -> float:
    """Of all callers together."""
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(times_of(call, seconds)))) for _ in range(callers)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found) / (time.perf_counter() - start)


def describe(times: list[float]) -> str:
    slow = statistics.quantiles(times, n=100)[-1] if len(times) > 1 else times[0]
    return f"{1e3 * statistics.mean(times):8.2f} ms mean {1e3 * slow:8.2f} ms slowest of 100"


def compare(name: str, seconds: float, callers: int) -> None:
    calls = contestants(name)
    single: dict[str, list[float]] = {who: [] for who in calls}
    beside: dict[str, list[float]] = {who: [] for who in calls}
    crowd: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(ROUNDS):
        for who, call in calls.items():
            single[who] += times_of(call, seconds)
            crowd[who].append(calls_a_second(call, seconds, callers))
        with busy_processes():
            for who, call in calls.items():
                beside[who] += times_of(call, seconds)
    for who in calls:
        print(f"{name:14} {who:14} alone              {describe(single[who])}")
        print(f"{name:14} {who:14} beside busy ones   {describe(beside[who])}")
        print(f"{name:14} {who:14} {callers} callers          {max(crowd[who]):8.1f} calls a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contestant in each round")
    parser.add_argument("--callers", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for name in options.models:
            compare(name, options.seconds, options.callers)


if __name__ == "__main__":
    main()
