"""Many processes write one file; some are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import metaschedule as ms

WRITER = """
import itertools, sys
import metaschedule as ms
from tests.database.examples import PROGRAM, ok
path, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = ms.database.open(path)
db.add_program(PROGRAM)
for trial in range(count) if count else itertools.count():
    db.add(ok(run=run, trial=trial))
    print(trial, flush=True)
"""


def writer(path: Path | str, run: str, count: int = 0) -> subprocess.Popen[str]:
    root = Path(ms.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), run, str(count)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )


def trials(path: Path | str, run: str) -> list[int | None]:
    with ms.database.open(path) as db:
        return [r.trial for r in db.records() if r.run == run]


def test_four_processes_write_one_new_file(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    writers = {run: writer(path, run, count=200) for run in "abcd"}
    for process in writers.values():
        process.communicate()
        assert process.returncode == 0
    for run in writers:
        assert trials(path, run) == list(range(200))
    assert [p.name for p in tmp_path.iterdir()] == ["tuning.db"]


@pytest.mark.parametrize("after", [1, 40, 150])
def test_a_killed_writer_loses_nothing_it_had_stored(tmp_path: Path, after: int) -> None:
    path = tmp_path / "tuning.db"
    process = writer(path, "killed")
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    process.kill()
    announced = after + len(process.stdout.read().split())
    process.wait()
    process.stdout.close()
    stored = trials(path, "killed")
    assert stored in (
        list(range(announced)),
        list(range(announced + 1)),
    )  # one may be stored and not announced
    resumed = writer(path, "resumed", count=3)
    resumed.communicate()
    assert trials(path, "killed") == stored
    assert trials(path, "resumed") == [0, 1, 2]
