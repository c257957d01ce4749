"""How near generated code comes to the machine: fractions of limits measured in the same run.

    python benchmarks/codegen.py [--json FILE] [--threads N]

The limits (FMA peak, memory bandwidth, exp throughput) are measured by kernels of our own and by memcpy,
right before what is compared with them: these machines are noisy, and differ. A row keeps the best of
several rounds of both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import kernels
import numpy as np
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.measure.calibration import chains_script

ROUNDS = 5


@dataclass
class Row:
    """One comparison: `value` and the `limit` it is a share of, in the same unit (larger is better)."""

    name: str
    value: float
    limit: float
    unit: str
    wanted: float  # the share to reach

    @property
    def share(self) -> float:
        return self.value / self.limit


class Bench:
    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.build_ms: dict[str, float] = {}
        self.rng = np.random.default_rng(0)

    def build(self, text: str, threads: int | None = None) -> ms.runtime.Executable:
        program = ms.parse(text)
        as_written = ms.Schedule(program)
        exe, best = None, float("inf")
        for _ in range(3):
            start = time.perf_counter()
            exe = ms.build(as_written, threads=threads or self.threads)
            best = min(best, time.perf_counter() - start)
        assert exe is not None
        self.build_ms[program.name] = best * 1e3
        return exe

    def data(self, exe: ms.runtime.Executable, scale: float = 1.0) -> list[np.ndarray]:
        arrays = [self.rng.standard_normal(a.shape, dtype="float32") * scale for a in exe.kernel.inputs]
        return [a.astype("float32") for a in arrays]

    def rate(self, text: str, work: float, threads: int | None = None) -> Callable[[], float]:
        """Work per second of a kernel, measured anew at every call."""
        exe = self.build(text, threads)
        arrays = self.data(exe, 0.1)
        return lambda: work / exe.benchmark(*arrays).min

    # --- limits ---

    def peak(self) -> Callable[[], float]:
        # ten chains of one vector: enough to cover the latency of an FMA, few enough for 16 registers
        lanes = ms.target.resolve("native").lanes("float32")
        text = chains_script(self.threads, 10, lanes, 20000)
        return self.rate(text, 2.0 * self.threads * 10 * lanes * 20000)

    def bandwidth(self) -> Callable[[], float]:
        """Bytes moved per second by memcpy on every core, reads and writes both counted."""
        size = 1 << 24
        pairs = [(np.ones(size, "float32"), np.ones(size, "float32")) for _ in range(self.threads)]

        def measure() -> float:
            best = float("inf")
            for _ in range(5):
                workers = [
                    threading.Thread(target=np.copyto, args=(target, source)) for source, target in pairs
                ]
                start = time.perf_counter()
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                best = min(best, time.perf_counter() - start)
            return 2 * 4 * size * self.threads / best

        return measure

    # --- rows ---

    def compare(
        self, name: str, value: Callable[[], float], limit: Callable[[], float], unit: str,
        scale: float, wanted: float,
    ) -> Row:  # fmt: skip
        """Both measured alternately; the best of each."""
        pairs = [(limit(), value()) for _ in range(ROUNDS)]
        return Row(name, max(v for _, v in pairs) / scale, max(x for x, _ in pairs) / scale, unit, wanted)

    def arithmetic(self) -> list[Row]:
        def macs(size: int, dilation: int) -> float:
            out = (size + 6 - dilation * 6 - 1) // 2 + 1
            return 2.0 * out * out * 64 * 147

        peak = self.peak()
        cases = [
            ("matmul 128^3", kernels.matmul(128, 128, 128), 2.0 * 128**3, 0.75),
            ("matmul 1024^3, packed", kernels.matmul_packed(1024, 1024, 1024), 2.0 * 1024**3, 0.80),
            ("convolution 7x7 stride 2", kernels.convolution(), macs(224, 1), 0.75),
            ("the same, dilation 2", kernels.convolution(dilation=2), macs(224, 2), 0.70),
        ]
        return [
            self.compare(name, self.rate(text, work), peak, "GFLOPS", 1e9, wanted)
            for name, text, work, wanted in cases
        ]

    def memory(self) -> list[Row]:
        size, side = 1 << 24, 1024
        exp = self.rate(kernels.exponential(self.threads, 1024, 200), 1024.0 * 200 * self.threads)
        bandwidth = self.bandwidth()

        copy = self.rate(kernels.copy(side, side), 8.0 * side * side)

        def softmax_limit() -> float:
            """Elements per second if the exponentials and one copy of the matrix came one after the other."""
            return 1 / (1 / exp() + 8 / copy())

        return [
            self.compare(
                "softmax 1024x1024", self.rate(kernels.softmax(side, side), 1.0 * side * side),
                softmax_limit, "Gelem/s", 1e9, 0.70,
            ),
            self.compare("add", self.rate(kernels.add(size), 12.0 * size), bandwidth, "GB/s", 1e9, 0.70),
            self.compare(
                "transpose 1024x1024 against copy",
                self.rate(kernels.transpose(side, side, 16), 8.0 * side * side), copy, "GB/s", 1e9, 0.2,
            ),
        ]  # fmt: skip

    def overheads(self) -> dict[str, float]:
        """Microseconds."""
        exe = self.build(kernels.add(32, 32), threads=1)
        x, y = self.data(exe)
        out = np.empty(32, "float32")

        def timed(call: Callable[[], object]) -> float:
            best = float("inf")
            for _ in range(20):
                start = time.perf_counter()
                for _ in range(2000):
                    call()
                best = min(best, (time.perf_counter() - start) / 2000)
            return best * 1e6

        team = self.build(kernels.add(32 * self.threads, 32))
        parallel, serial = (
            e.benchmark(*self.data(e)).min * 1e6
            for e in (team, self.build(kernels.add(32 * self.threads), 1))
        )
        return {
            "call from Python, outputs given": timed(lambda: exe(x, y, out)),
            "call from Python, outputs allocated": timed(lambda: exe(x, y)),
            "fork-join": parallel - serial,
        }

    def beside_torch(self) -> dict[str, float]:
        """Slow-down of our kernel and of torch's when they alternate, against each alone."""
        try:
            import torch
        except ImportError:
            return {}
        torch.set_num_threads(self.threads)
        exe = self.build(kernels.matmul(256, 256, 256))
        a, b = self.data(exe)
        c = np.empty((256, 256), "float32")
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        tc = torch.empty(256, 256)

        def ours() -> object:
            return exe(a, b, c)

        def theirs() -> object:
            return torch.mm(ta, tb, out=tc)

        def times(first: Callable[[], object], second: Callable[[], object] | None) -> float:
            samples: list[float] = []
            for _ in range(300):
                start = time.perf_counter()
                first()
                samples.append(time.perf_counter() - start)
                if second is not None:
                    second()
            return statistics.median(samples)

        for call in (ours, theirs):
            times(call, None)
        rounds = [
            (times(ours, None), times(ours, theirs), times(theirs, None), times(theirs, ours))
            for _ in range(ROUNDS)
        ]
        alone, mixed, torch_alone, torch_mixed = (min(column) for column in zip(*rounds, strict=True))
        return {"ours beside torch": mixed / alone, "torch beside ours": torch_mixed / torch_alone}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--threads", type=int, default=ms.runtime.get_num_threads())
    options = parser.parse_args()
    bench = Bench(options.threads)
    console = Console()
    console.print(f"{ms.target.resolve('native')}, {options.threads} thread(s)")

    rows = bench.arithmetic() + bench.memory()
    table = Table("kernel", "measured", "limit", "unit", "share", "wanted")
    for r in rows:
        colour = "green" if r.share >= r.wanted else "red"
        cells = (f"{r.value:.4g}", f"{r.limit:.4g}", r.unit, f"[{colour}]{r.share:.0%}", f"{r.wanted:.0%}")
        table.add_row(r.name, *cells)
    console.print(table)
    overheads, ratios = bench.overheads(), bench.beside_torch()
    for name, value in overheads.items():
        console.print(f"{name}: {value:.2f} us")
    for name, value in ratios.items():
        console.print(f"{name}: {value:.2f}x its time alone")
    build = statistics.median(bench.build_ms.values())
    console.print(f"build, median of {len(bench.build_ms)} kernels: {build:.0f} ms")
    console.print({name: round(value) for name, value in bench.build_ms.items()})
    if options.json:
        report = {
            "rows": [asdict(r) | {"share": r.share} for r in rows],
            "overheads_us": overheads,
            "beside_torch": ratios,
            "build_ms": bench.build_ms,
        }
        options.json.write_text(json.dumps(report, indent=1))
    return 0 if all(r.share >= r.wanted for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
