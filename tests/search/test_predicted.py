"""Tuning for a GPU that is not here: candidates are ranked by prediction, and records say so."""

from __future__ import annotations

from pathlib import Path

import pytest

import metaschedule as ms
from metaschedule import database
from metaschedule.database import Record, predicted_key
from metaschedule.measure import Predictor, missing_device
from metaschedule.search.result import best_record, best_schedule
from metaschedule.target import Target, resolve
from tests.codegen.gpu.schedules import bound_product


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A GPU that this machine has not, whatever it has."""
    monkeypatch.setattr(Predictor, "__init__", without_compiler)
    return resolve("opencl:mi250x")


def without_compiler(self: Predictor, program: ms.Program, target: Target) -> None:
    self.program, self.target, self.compiles = program, target, False
    self.model = ms.cost.Analytical(target)


def test_records_of_predictions_are_apart_from_measured_ones(tmp_path: Path, target: Target) -> None:
    program = ms.workloads.create("GMM", b=1, n=16, m=24, k=8)
    path = str(tmp_path / "records.db")
    result = ms.tune(program, target=target, trials=1, database=path)
    assert result.kind == "predicted"
    assert "predicted" in str(result)
    assert "nothing was measured" in result.notes[0]
    assert {record.kind for record in result.records} == {"predicted"}
    with database.open(path) as db:
        assert db.best(program, target) is None
        assert best_record(db, program, target) is None
        assert db.best(program, predicted_key(target)) is not None
        assert best_schedule(db, program, target) is not None  # better than none, until one is measured
        slow = bound_product(program, 16)
        db.add(Record.of(program, target, slow.trace, "ok", latency=1.0))
        found = best_schedule(db, program, target)
        assert found is not None
        assert str(found.trace) == str(slow.trace)  # seconds count before predictions, however long


def test_what_cannot_be_built_is_refused_without_a_device(target: Target) -> None:
    program = ms.workloads.create("GMM", b=1, n=64, m=64, k=8)
    fits, unbound = Predictor(program, target).measure([bound_product(program, 64).program, program])
    assert fits.ok
    assert unbound.kind == "illegal"
    assert "bound" in unbound.detail


def test_a_device_that_is_not_here_says_so() -> None:
    assert missing_device(resolve("x86-64-v3")) is None
    assert missing_device(resolve("opencl:mi250x"))
