"""`tune` on a small program: what it returns, records, repeats and resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.cost import Random
from metaschedule.search import Evolutionary, Progress, best_schedule
from metaschedule.search.task import LEADERS
from metaschedule.space.untuned import schedule_untuned
from metaschedule.target import resolve
from tests.search.examples import small, tiled
from tests.search.runners import Recorded, Synthetic

FEW_CHAINS = partial(Evolutionary, chains=16, generations=3)
tune_synthetic = partial(ms.tune, strategy=FEW_CHAINS, measurer=Synthetic)


def keys(result: ms.search.Result) -> list[tuple[str | None, str | None]]:
    return [(r.sketch, r.decisions) for r in result.records]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[ms.search.Result, Path, list[Progress]]:
    path = tmp_path_factory.mktemp("tune") / "tuning.db"
    steps: list[Progress] = []
    result = ms.tune(small(), trials=12, database=path, strategy=FEW_CHAINS, progress=steps.append)
    return result, path, steps


Measured = tuple[ms.search.Result, Path, list[Progress]]


def test_the_result_is_the_fastest_and_right(measured: Measured) -> None:
    result, _, _ = measured
    assert result.outcomes == {"ok": 12}
    assert result.best is not None
    assert result.best.confirmed
    assert result.latency == result.best.latency
    assert ms.structural_equal(result.schedule.program, result.trace.apply(result.program).program)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(b.shape).astype("float32") for b in result.program.inputs)
    np.testing.assert_allclose(result.build()(x, y), x @ y, rtol=1e-4, atol=1e-4)


def test_the_untuned_default_is_tried_first(measured: Measured) -> None:
    result, _, _ = measured
    default = schedule_untuned(result.program, result.target)
    assert result.records[0].trace == default.trace


def test_every_trial_is_in_the_database(measured: Measured) -> None:
    result, path, _ = measured
    with ms.database.open(path) as db:
        records = db.records(result.program, result.target)
        assert [r.uid for r in records if not r.confirmed] == [r.uid for r in result.records]
        assert [r.trial for r in result.records] == list(range(12))
        assert 1 <= sum(r.confirmed for r in records) <= LEADERS + 1
        assert db.best(result.program, result.target) == result.best
        found = best_schedule(db, result.program, result.target)
    assert found is not None
    assert found.trace == result.trace


def test_progress_is_told(measured: Measured) -> None:
    result, _, steps = measured
    told = [s.event for s in steps]
    done = [event for event in told if event in ("proposed", "measured", "confirmed", "stopped")]
    assert done == ["proposed", "measured"] * (len(done) // 2) + ["confirmed"]
    begun = [event for event, before in zip(told, ["", *told]) if event != before and event != "wait"]
    step = ["search", "proposed", "build", "run", "model", "measured"]
    assert [e for e in begun if e != "confirm"][: len(step)] == step
    assert begun[-2:] == ["confirm", "confirmed"]
    assert all(0 <= s.done <= s.of for s in steps)
    assert all(s.left is None or s.left >= 0 for s in steps)
    assert steps[-1].left == 0
    trials = [s.trials for s in steps if s.event == "measured"]
    assert trials == sorted(trials)
    assert (steps[-1].trials, steps[-1].budget, steps[-1].program) == (12, 12, "GMM")
    assert steps[-1].outcomes == {"ok": 12}
    assert all(seconds > 0 for seconds in steps[-1].seconds.values())


def test_the_same_call_again_measures_nothing(measured: Measured) -> None:
    result, path, _ = measured
    again = ms.tune(small(), trials=12, database=path, measurer=unexpected)
    assert (again.latency, again.trace) == (result.latency, result.trace)


def unexpected(*_: object) -> Synthetic:
    raise AssertionError("nothing should be measured")


def test_recorded_measurements_lead_to_the_same_candidates(measured: Measured) -> None:
    result, _, _ = measured

    def recorded(program: ms.Program, target: object) -> Recorded:
        return Recorded(program, result.records)

    again = ms.tune(small(), trials=12, strategy=FEW_CHAINS, measurer=recorded)
    assert keys(again) == keys(result)


def test_more_trials_go_on_without_repeating(tmp_path: Path) -> None:
    whole = tune_synthetic(small(), trials=24)
    path = tmp_path / "tuning.db"
    for trials in (6, 12, 24):
        resumed = tune_synthetic(small(), trials=trials, database=path)
        assert len(set(keys(resumed))) == len(resumed.records) == trials
    other_seed = tune_synthetic(small(), trials=6, seed=1, database=path)
    assert len(set(keys(other_seed))) == 30
    assert len(whole.records) == 24


DIGEST = """
import hashlib, sys
from tests.search.test_tune import keys, small, tune_synthetic
print(hashlib.sha256(repr(keys(tune_synthetic(small(), trials=16, seed=3))).encode()).hexdigest())
"""


def test_same_candidates_in_every_process() -> None:
    root = Path(ms.__file__).parent.parent
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_budgets() -> None:
    assert len(tune_synthetic(small(), minutes=1e-6).records) <= 16  # one step at most
    assert len(tune_synthetic(small(), minutes=60, space=tiled).records) == 16
    assert len(tune_synthetic(small(), minutes=60, trials=4, space=tiled).records) == 4
    for name, wrong in (("trials", 0), ("minutes", -1.0)):
        with pytest.raises(ValueError, match=f"tune: {name} must be"):
            ms.tune(small(), **{name: wrong})


def test_own_model_and_strategy_names() -> None:
    for strategy in ("random", "exhaustive"):
        result = ms.tune(
            small(), trials=6, strategy=strategy, model=lambda target: Random(), measurer=Synthetic
        )
        assert len(result.records) == 6
    with pytest.raises(
        ValueError, match="there is no strategy 'best'; there are evolutionary, random, exhaustive"
    ):
        ms.tune(small(), strategy="best")


def test_a_record_that_no_longer_replays_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    program, target = small(), resolve()
    sch = ms.Schedule(program)
    sch.parallel(sch.get_loops(sch.get_block("matmul"))[1])
    gone = ms.Schedule(ms.workloads.create("SFM", shape=(4, 4)))
    gone.compute_inline(gone.get_block("exp"))
    with ms.database.open(None) as db:
        assert best_schedule(db, program, target) is None
        db.add_program(program)
        for trace, latency in ((gone.trace, 1e-6), (sch.trace, 2e-6)):
            db.add(ms.database.Record.of(program, target, trace, "ok", latency=latency))
        found = best_schedule(db, program, target)
    assert found is not None
    assert found.trace == sch.trace
    assert "no longer replays" in caplog.text
