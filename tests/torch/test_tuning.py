"""Tuning a model: tasks, records found again elsewhere, the command line."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import metaschedule as ms  # noqa: E402
from metaschedule.cli.app import app  # noqa: E402
from metaschedule.torch.explain import models  # noqa: E402
from metaschedule.torch.tasks import tasks  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.xdist_group("measuring")


def make_model() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16), nn.ReLU()] * 2 + [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers).eval(), (torch.randn(8, 16),)


def test_equal_programs_are_one_task_with_its_weight() -> None:
    found = tasks(models(*make_model()))
    assert [(task.program.name, task.weight) for task in found] == [("addmm_relu", 3), ("addmm", 1)]


@pytest.fixture
def unplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are taken for what they are alone, whatever the model takes with them."""
    monkeypatch.setattr("metaschedule.torch.tasks.place", lambda *_, **__: {})
    monkeypatch.setattr("metaschedule.torch.placement.place", lambda *_, **__: {})


@pytest.mark.usefixtures("unplaced")
def test_records_are_found_in_a_copy_of_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, args = make_model()
    database, copy = tmp_path / "tuning.db", tmp_path / "elsewhere" / "copy.db"
    results = ms.torch.tune(model, args, database=database, trials=4, show=False)
    assert [len(r.records) for r in results] == [4, 4]
    again = ms.torch.tune(model, args, database=database, trials=4, show=False)
    assert [len(r.records) for r in again] == [4, 4]  # nothing left to do
    copy.parent.mkdir()
    shutil.copy(database, copy)
    caplog.set_level(logging.INFO)
    run = torch.compile(model, backend=ms.torch.backend, options={"database": copy})
    with torch.no_grad():
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-5)
    assert "no record" not in caplog.text
    assert caplog.text.count("addmm_relu: record") == 1  # of three equal layers
    rows = ms.torch.explain(model, args, database=copy).rows
    assert [row.latency for row in rows] == [r.latency for r in results]


def test_a_first_call_tunes_only_if_asked(tmp_path: Path) -> None:
    model, args = make_model()
    run = torch.compile(model, backend=ms.torch.backend, options={"database": tmp_path / "t.db", "trials": 4})
    with torch.no_grad():
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-5)
    with ms.database.open(tmp_path / "t.db") as db:
        assert len(db.records()) >= 8


@pytest.mark.usefixtures("unplaced")
def test_the_command_line_takes_a_function_that_makes_a_model(tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    arguments = ["tune", f"{__file__}:make_model", "--trials", "4", "--db", str(database), "--json"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert [r["program"] for r in json.loads(done.stdout)] == ["addmm_relu", "addmm"]
        rows = ms.torch.explain(*make_model(), database=database).rows
        assert all(row.latency for row in rows)  # by as many threads as a call will use
        mixed = CliRunner().invoke(app, ["tune", f"{__file__}:make_model", "GMM"])
        assert mixed.exit_code == 2
        assert "tune them apart" in mixed.output
    finally:
        torch.set_num_threads(threads)
