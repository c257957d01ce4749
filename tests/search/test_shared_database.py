"""Several tuning runs, one PostgreSQL server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.search import best_schedule
from tests.postgres import Server

SIZES = {"a": (12, 8), "b": (10, 6)}  # of the programs of each driver
DRIVER = """
import sys, time
from functools import partial
import metaschedule as ms
from metaschedule.search import Evolutionary
from tests.search.runners import Synthetic
from tests.search.test_shared_database import program

class Slow(Synthetic):
    def measure(self, candidates, best=None):
        time.sleep(0.2)
        return super().measure(candidates, best)

url, how, trials, *sizes = sys.argv[1:]
results = ms.tune(
    [program(int(size)) for size in sizes], trials=int(trials), database=url, label="model",
    **({} if how == "real" else {"measurer": Slow}),
    strategy=partial(Evolutionary, chains=16, generations=2),
    progress=lambda p: print(p.event, p.trials, flush=True),
)
print("result", *(result.stopped or "complete" for result in results))
"""


def program(size: int) -> Any:
    return ms.workloads.create("GMM", b=1, n=size, m=16, k=5)


def driver(url: str, how: str, trials: int, sizes: tuple[int, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, url, how, str(trials), *map(str, sizes)],
        env={**os.environ, "PYTHONPATH": str(Path(ms.__file__).parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def count_trials(db: ms.database.Database, size: int) -> int:
    return sum(not record.confirmed for record in db.records(program(size)))


@pytest.mark.parametrize("how", ["synthetic", pytest.param("real", marks=pytest.mark.slow)])
def test_two_drivers_share_a_server(postgres: Server, tmp_path: Path, how: str) -> None:
    url = postgres.create_database()
    drivers = [driver(url, how, 6, sizes) for sizes in SIZES.values()]
    for process in drivers:  # once both are at work, the server dies and comes back
        assert process.stdout is not None
        assert any(line.startswith("measured") for line in process.stdout)
    postgres.kill()
    postgres.start()
    for process in drivers:
        assert "result complete complete" in process.communicate()[0]
    sizes = [size for pair in SIZES.values() for size in pair]
    with ms.database.open(url) as db:
        counts = {size: count_trials(db, size) for size in sizes}
        assert [counts[a] + counts[b] for a, b in SIZES.values()] == [12, 12]
        records = db.records()
        assert len({record.uid for record in records}) == len(records)
        runs = {run.uid: run for run in db.runs()}
        assert len(runs) == 4
        assert len({run.call for run in runs.values()}) == 2
        assert {(run.label, run.trials, run.stopped) for run in runs.values()} == {("model", 12, "")}
        assert all(record.run in runs for record in records)
        for record in records:
            assert record.elapsed is not None
            assert record.confirmed or record.predicted is not None
        # each goes on where the other one was: as many trials again, and not one of them twice
        swapped = [driver(url, how, 9, pair) for pair in reversed(SIZES.values())]
        for process in swapped:
            assert "result complete complete" in process.communicate()[0]
        for a, b in SIZES.values():
            assert count_trials(db, a) + count_trials(db, b) == 18
        for size in sizes:
            tried = [(r.sketch, r.decisions) for r in db.records(program(size)) if not r.confirmed]
            assert len(set(tried)) == len(tried)

    path = tmp_path / "copy.db"
    copy = [sys.executable, "-m", "metaschedule", "db", "copy", url, str(path)]
    subprocess.run(copy, check=True, capture_output=True)
    with ms.database.open(url) as shared, ms.database.open(path) as db:
        assert db.records() == shared.records()
        assert db.runs() == shared.runs()
        for size in sizes:
            here, there = (best_schedule(one, program(size), ms.target.native()) for one in (db, shared))
            assert here is not None
            assert there is not None
            assert here.trace == there.trace
    x, y = np.ones((1, 12, 5), "float32"), np.ones((1, 5, 16), "float32")
    np.testing.assert_array_equal(
        ms.build(program(12), database=url)(x, y), np.full((1, 12, 16), 5, "float32")
    )
