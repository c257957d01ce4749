"""Databases to look at: one that a real, short run has made, and ones that are made up."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import metaschedule as ms
from metaschedule.database import Record, TuningRun, open
from metaschedule.schedule import Schedule

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@functools.cache
def real_run() -> Path:
    """Two programs tuned together, 8 trials each: made once in a process."""
    path = Path(tempfile.mkdtemp(prefix="dashboard-")) / "real.db"
    programs = [
        ms.workloads.create("GMM", b=1, n=24, m=24, k=16),
        ms.workloads.create("SFM", shape=(8, 40)),
    ]
    ms.tune(programs, trials=8, database=path, weights=[3, 1], label="a small model")
    return path


def copy_of_real_run(directory: Path) -> Path:
    return Path(shutil.copy(real_run(), directory / "tuning.db"))


def many_records(path: Path, count: int, name: str = "scale") -> Path:
    """`count` trials of two candidates, the others each a little faster; every tenth is of one that fails."""
    x = ms.te.placeholder((8,), name="x")
    y = ms.te.compute((8,), lambda i: x[i] * 2.0, name="y")
    program = ms.te.program([x], [y], name=name)
    sch = Schedule(program)
    (loop,) = sch.get_loops(sch.get_block("y"))
    sch.split(loop, sch.sample_tile(loop, n=2, decision=[4, 2]))
    target = ms.target.resolve("native")
    with open(path) as db:
        workload = db.add_program(program)
        first = Record.of(workload, target, sch.trace, "ok", latency=1e-3)
        run = TuningRun(
            "run", workload, target.key, "cpu", 0, "call", name, trials=count, started=1e9,
            updated=1e9 + count, seconds={"search": 1.0, "run": 2.0}, stopped="",
            details={"refused": {HOSTILE: 3}},
        )  # fmt: skip
        db.add_all(
            [
                Record(
                    workload, target.key, first.sketch, "[[2,4]]" if n % 10 == 9 else first.decisions,
                    "crash" if n % 10 == 9 else "ok",
                    latency=None if n % 10 == 9 else 1e-3 / (1 + n), detail=HOSTILE if n % 10 == 9 else "",
                    trial=n, run="run", created=1e9 + n, elapsed=float(n), predicted=1e-3 / (1 + n),
                )
                for n in range(count)
            ],
            run,
        )  # fmt: skip
    return path
