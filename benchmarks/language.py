"""How cheap the language is: microseconds to replay a trace, and where they go.

python benchmarks/language.py [--json FILE] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule.schedule import Schedule, Trace


def tiled(sch: Schedule, name: str, spatial: int, inlined: list[str]) -> None:
    """What a default CPU space emits for a block whose first `spatial` loops are spatial: an SSRSRS tiling
    with a cached write and packed reads, then kinds of loops."""
    for other in inlined:
        sch.compute_inline(sch.get_block(other))
    block = sch.get_block(name)
    copy = sch.cache_write(block, 0, "local")
    loops = sch.get_loops(block)
    tiles = [sch.split(loop, sch.sample_perfect_tile(loop, 4, 64)) for loop in loops[:spatial]]
    inner = [sch.split(loop, sch.sample_perfect_tile(loop, 2, 64)) for loop in loops[spatial:]]
    order = [t[0] for t in tiles] + [t[1] for t in tiles] + [t[0] for t in inner]
    order += [t[2] for t in tiles] + [t[1] for t in inner] + [t[3] for t in tiles]
    sch.annotate(block, "tiling", "SSRSRS")
    sch.reorder(*order)
    sch.get_consumers(block)
    sch.reverse_compute_at(copy, tiles[-1][1])
    for operand in (0, 1):
        packed = sch.cache_read(block, operand, "local")
        sch.compute_at(packed, inner[0][0])
        sch.annotate(packed, "packs", operand)
        sch.vectorize(sch.fuse(*sch.get_loops(packed)[-2:]))
    sch.parallel(sch.fuse(*[t[0] for t in tiles]))
    sch.annotate(block, "unroll", sch.sample_categorical([0, 16, 64, 512], [0.25] * 4))
    init = sch.decompose_reduction(block, inner[0][0])
    for part in (init, copy):
        row, column = sch.get_loops(part)[-2:]
        sch.unroll(row)
        sch.vectorize(column)
    sch.unroll(tiles[-2][3])
    sch.vectorize(tiles[-1][3])


def gmm() -> Schedule:
    sch = Schedule(ms.workloads.create("GMM"))
    tiled(sch, "matmul", 3, [])
    return sch


def cbr() -> Schedule:
    sch = Schedule(ms.workloads.create("CBR"))
    names = [k for k in sch.state.nodes if isinstance(k, str) and k]
    heavy = next(n for n in names if sch.state.nodes[n].init)
    tiled(sch, heavy, 4, names[names.index(heavy) + 1 : -1])
    return sch


def best(call: Callable[[], object], seconds: float = 1.0) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 20:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def printed_program(trace: Trace, program: ms.Program) -> ms.Program:
    return trace.apply(program).program


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--profile", action="store_true", help="show where the time of a replay goes")
    options = parser.parse_args()
    report: dict[str, dict[str, float]] = {}
    table = Table("trace", "instructions", "replay, us", "wanted, us", "program, us")
    for name, make, wanted in (("GMM", gmm, 1500), ("CBR", cbr, 3000)):
        sch = make()
        trace = sch.trace
        replay = best(partial(trace.apply, sch.state.original)) * 1e6
        printed = best(partial(printed_program, trace, sch.state.original)) * 1e6 - replay
        colour = "green" if replay <= wanted else "red"
        table.add_row(name, str(len(trace)), f"[{colour}]{replay:.0f}", str(wanted), f"{printed:.0f}")
        report[name] = {
            "instructions": len(trace),
            "replay_us": replay,
            "program_us": printed,
            "wanted_us": wanted,
        }
        if options.profile:
            profile = cProfile.Profile()
            for _ in range(50):
                profile.runcall(trace.apply, sch.state.original)
            pstats.Stats(profile).sort_stats("tottime").print_stats(15)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0 if all(r["replay_us"] <= r["wanted_us"] for r in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
