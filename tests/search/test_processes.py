"""Tuning runs that are killed, interrupted, that share a file or have no room left in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import metaschedule as ms
from metaschedule.database.sqlite import SQLite
from metaschedule.ir import Program
from metaschedule.measure import Outcome
from metaschedule.search import Evolutionary, Progress, best_schedule
from tests.search.examples import small, tiled
from tests.search.runners import Synthetic

# Tells its progress; "synthetic" measures nothing, but takes a while over it.
TUNER = """
import sys, time
from functools import partial
import metaschedule as ms
from metaschedule.search import Evolutionary
from tests.search.examples import small
from tests.search.runners import Synthetic

class Slow(Synthetic):
    def measure(self, candidates, best=None):
        time.sleep(0.2)
        return super().measure(candidates, best)

path, trials, seed, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
measurer = {} if how == "real" else {"measurer": Slow}
result = ms.tune(
    small(), trials=trials, seed=seed, database=path, **measurer,
    strategy=partial(Evolutionary, chains=16, generations=2),
    progress=lambda p: print(p.event, p.trials, flush=True),
)
print("result", result.latency is not None, result.stopped or "complete", flush=True)
"""


def tuner(path: Path, trials: int, seed: int = 0, how: str = "synthetic") -> subprocess.Popen[str]:
    root = Path(ms.__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", TUNER, str(path), str(trials), str(seed), how],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.startswith(line):
            return
    raise AssertionError(f"it ended without {line!r}")


def trials_in(path: Path) -> list[ms.database.Record]:
    with ms.database.open(path) as db:
        return [r for r in db.records() if not r.confirmed]


@pytest.mark.parametrize(("how", "after"), [("real", "measured 8"), ("synthetic", "proposed 16")])
def test_a_killed_run_goes_on(tmp_path: Path, how: str, after: str) -> None:
    path = tmp_path / "tuning.db"
    process = tuner(path, trials=32, how=how)
    read_until(process, after)
    process.kill()
    process.communicate()
    before = trials_in(path)
    assert len(before) >= int(after.split()[1])
    resumed = tuner(path, trials=len(before) + 8, how=how)
    output, _ = resumed.communicate()
    assert "result True complete" in output
    after_all = trials_in(path)
    assert after_all[: len(before)] == before
    assert len(after_all) == len(before) + 8
    assert len({(r.sketch, r.decisions) for r in after_all}) == len(after_all)
    assert [r.trial for r in after_all] == list(range(len(after_all)))


@pytest.mark.parametrize("event", ["proposed 0", "measured 16"])
def test_an_interrupted_run_has_its_best_so_far(tmp_path: Path, event: str) -> None:
    path = tmp_path / "tuning.db"
    process = tuner(path, trials=1000, how="real")
    read_until(process, event)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert f"result {event != 'proposed 0'} interrupted" in output


def test_four_processes_tune_into_one_database(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    runs = [tuner(path, trials=12, seed=seed) for seed in range(4)]
    for process in runs:
        output, _ = process.communicate()
        assert "result True complete" in output
    records = trials_in(path)
    for seed in range(4):
        mine = [r for r in records if r.seed == seed]
        assert [r.trial for r in mine] == list(range(12))
        assert len({(r.sketch, r.decisions) for r in mine}) == 12


def test_a_full_disk_keeps_the_best_so_far(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tuning.db"
    with ms.database.open(path) as db:
        db.add_program(small())
        assert isinstance(db.store, SQLite)
        (pages,) = db.store.connection.execute("PRAGMA page_count").fetchone()
        db.store.connection.execute(f"PRAGMA max_page_count = {pages + 12}")
        few = partial(Evolutionary, chains=16, generations=2)
        result = ms.tune(small(), trials=400, database=db, measurer=Synthetic, strategy=few)
        assert "the disk is full" in result.stopped
        assert "the disk is full" in caplog.text
        stored = [r for r in db.records() if not r.confirmed]
        assert 0 < len(stored) < len(result.records)
        assert best_schedule(db, small(), result.target) is not None
    assert result.latency == min(r.latency for r in result.records if r.latency)
    assert result.build() is not None


LIMITED = """
import resource, sys
import metaschedule as ms
from tests.search.examples import small, tiled
from tests.search.runners import Synthetic

ms.tune(small(), trials=4, database=sys.argv[1], space=tiled, measurer=Synthetic)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, resource.RLIM_INFINITY))
result = ms.tune(small(), trials=16, database=sys.argv[1], space=tiled, measurer=Synthetic)
print(result.latency is not None, result.stopped)
"""


def test_a_file_that_may_not_grow_keeps_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    root = Path(ms.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert len(trials_in(path)) >= 4
    if done.returncode:  # it could not even begin
        assert "DatabaseError" in done.stderr
    else:
        assert done.stdout.startswith("True ")
        assert str(path) in done.stdout


def test_a_directory_that_vanishes_ends_the_run_with_the_best_so_far(tmp_path: Path) -> None:
    path = tmp_path / "place" / "tuning.db"
    path.parent.mkdir()

    def remove(p: Progress) -> None:
        if p.event == "measured" and path.exists():
            shutil.rmtree(path.parent)

    result = ms.tune(small(), trials=16, database=path, space=tiled, measurer=Synthetic, progress=remove)
    assert "deleted or replaced while it was open" in result.stopped
    assert result.latency is not None
    assert not path.parent.exists()


class Busy(Synthetic):
    """As on a machine on which nothing could be measured undisturbed."""

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        return [replace(outcome, disturbed=1.0) for outcome in super().measure(candidates, best)]


class QuietWhenConfirmed(Busy):
    def confirm(self, candidates: Sequence[Program]) -> list[Outcome]:
        return Synthetic.measure(self, candidates)


def test_a_run_that_could_not_measure_says_so() -> None:
    result = ms.tune(small(), trials=8, space=tiled, measurer=Busy)
    assert result.best is not None
    assert not result.best.reliable
    assert any("too busy to measure" in note for note in result.notes)
    assert "too busy to measure" in str(result)
    confirmed = ms.tune(small(), trials=8, space=tiled, measurer=QuietWhenConfirmed)
    assert confirmed.best is not None
    assert (confirmed.best.reliable, confirmed.best.confirmed) == (True, True)
    assert confirmed.notes == ("the machine was busy: 8 of 8 trials could not be measured undisturbed",)


class Elsewhere(Synthetic):
    """Knows its machine once it has measured there."""

    constraint = ""

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        self.constraint = "4 threads were asked for and 2 cores given"
        return super().measure(candidates, best)


def test_what_a_machine_lacks_is_noted_when_it_is_known() -> None:
    result = ms.tune(small(), trials=4, space=tiled, measurer=Elsewhere)
    assert result.notes == ("4 threads were asked for and 2 cores given, so it was measured on these",)


class BusyWithTheFirst(Synthetic):
    """Something always comes between when what was proposed first, the untuned default, is run."""

    first = ""

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        self.first = self.first or str(candidates[0])
        outcomes = zip(candidates, super().measure(candidates, best))
        return [replace(o, disturbed=1.0, latency=1.0) if str(c) == self.first else o for c, o in outcomes]


def test_what_was_won_over_a_default_that_could_not_be_measured_is_not_known() -> None:
    result = ms.tune(small(), trials=8, space=tiled, measurer=BusyWithTheFirst)
    assert result.best is not None
    assert result.best.reliable
    assert result.untuned is None
    assert any("untuned default could not be measured" in note for note in result.notes)
    assert "times as fast" not in str(result)


def test_the_former_best_is_confirmed_beside_new_leaders(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    before = ms.tune(small(), trials=4, database=path, space=tiled, measurer=Synthetic)
    after = ms.tune(small(), trials=16, database=path, space=tiled, measurer=Synthetic)
    with ms.database.open(path) as db:
        confirmed = [r for r in db.records() if r.confirmed]
    key = (before.best and before.best.sketch, before.best and before.best.decisions)
    runs = [r.run for r in confirmed if (r.sketch, r.decisions) == key]
    assert len(set(runs)) == 2
    assert (after.latency or 1) <= (before.latency or 0)
