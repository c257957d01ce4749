"""The first call of a model in a new process: the first such process, and the second, which has a cache.

    .venv/bin/python benchmarks/startup.py [--models resnet50,bert] [--contestants eager,ours,inductor]

Each start is a process; the caches of a contestant (METASCHEDULE_CACHE, TORCHINDUCTOR_CACHE_DIR) are empty at
the first. Every phase of ours is a row, in seconds of wall-clock time on the calling thread, without the
phases within it; "Dynamo" is what is left: tracing, guards, and torch's own imports. The last row is the time
beyond that of eager's first call.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

PHASES = {  # where each is, and what to call it
    "AOTAutograd": ("backend.functional",),
    "looking into the cache": ("backend.find_kept_plan",),
    "capture": ("backend.capture",),
    "passes": ("pipeline.rewrite", "pipeline.return_view_bases"),
    "fusion": ("pipeline.fuse",),
    "tensor expressions": ("pipeline.program_of",),
    "scheduling, LLVM (workers)": ("kernels.build_all",),
    "loading kernels": ("kernels.load_kernels", "plan_cache.find_kernel"),
    "packing": ("kernels.Compiled.prepare_constants",),
    "reading constants": ("plan_cache.find_constants",),
    "content of weights": ("weights.Weights.contents",),
    "writing to the cache": ("backend.keep_plan", "backend.share_constants"),
    "plan": ("backend.plan_calls",),
    "running": ("runner.Runner.__call__",),
}


class Clock:
    """Times of phases, each without those within it."""

    def __init__(self) -> None:
        self.times: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._within = [0.0]

    def watch(self, holder: Any, name: str, phase: str) -> None:
        inner = getattr(holder, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._within.append(0.0)
            begin = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                took = time.perf_counter() - begin
                self.times[phase] += took - self._within.pop()
                self._within[-1] += took

        setattr(holder, name, timed)

    @property
    def outermost(self) -> float:
        """The time of all phases together."""
        return self._within[0]


def watch_phases() -> Clock:
    clock = Clock()
    for phase, places in PHASES.items():
        for place in places:
            module, *path = place.split(".")
            holder: Any = importlib.import_module(f"metaschedule.torch.{module}")
            for name in path[:-1]:
                holder = getattr(holder, name)
            clock.watch(holder, path[-1], phase)
    return clock


def start(contestant: str, name: str) -> dict[str, float]:
    """In this process: imports, the model, and its first call."""
    begin = time.perf_counter()
    import torch

    import metaschedule.torch  # noqa: F401
    from metaschedule.report import models

    imported = time.perf_counter()
    model, args = models.create(name)
    clock = watch_phases()
    run: Any = model
    if contestant != "eager":
        chosen = {"ours": "metaschedule", "inductor": "inductor"}[contestant]
        run = torch.compile(model, backend=chosen)
    with torch.no_grad():
        at = time.perf_counter()
        run(*args)
        first = time.perf_counter() - at
        phases = {"Dynamo": first - clock.outermost, **{phase: clock.times[phase] for phase in PHASES}}
        at = time.perf_counter()
        run(*args)
        second = time.perf_counter() - at
    phases = phases if contestant == "ours" else {}
    return {"imports": imported - begin, **phases, "first call": first, "next call": second}


def run_process(contestant: str, name: str, directory: str) -> dict[str, float]:
    caches = {"METASCHEDULE_CACHE": directory, "TORCHINDUCTOR_CACHE_DIR": directory}
    command = [sys.executable, "-W", "ignore", __file__, "--start", contestant, "--models", name]
    environment = {**os.environ, **caches}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, contestants: list[str]) -> None:
    columns: dict[str, dict[str, float]] = {}
    for contestant in contestants:
        with tempfile.TemporaryDirectory() as directory:
            for which in ("",) if contestant == "eager" else ("first", "second"):
                columns[f"{contestant} {which}".strip()] = run_process(contestant, name, directory)
    rows = list(dict.fromkeys(row for found in columns.values() for row in found))
    rows = [row for row in rows if row not in ("first call", "next call")] + ["first call", "next call"]
    print(f"\n{name}\n{'':28}" + "".join(f"{column:>18}" for column in columns))
    for row in rows:
        cells = [f"{found[row]:18.3f}" if row in found else f"{'':18}" for found in columns.values()]
        print(f"{row:28}" + "".join(cells))
    if "eager" in columns:
        eager = columns["eager"]["first call"]
        cells = [f"{found['first call'] - eager:18.3f}" for found in columns.values()]
        print(f"{'beyond eager':28}" + "".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="resnet50,bert")
    parser.add_argument("--contestants", default="eager,ours,inductor")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        print(json.dumps(start(options.start, options.models)))
        return
    for name in options.models.split(","):
        compare(name, options.contestants.split(","))


if __name__ == "__main__":
    main()
