"""`metaschedule db` and `doctor` as users run them, on files and on a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.database import Record
from tests.cli.test_cli import run
from tests.database.examples import PROGRAM, TARGET, WORKLOAD, failed, ok
from tests.postgres import Server


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no cell of a table is broken."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "tuning.db")
    server: Server = request.getfixturevalue("postgres")
    return server.create_database()


@pytest.fixture
def filled(place: str) -> str:
    with ms.database.open(place) as db:
        db.add_program(PROGRAM)
        db.add_all([ok(1e-3 * (n + 1), trial=n, run="r") for n in range(5)])
        db.add(failed(detail="[red]signal 11[/red]\n<script>"))
        db.add(Record.of(WORKLOAD, "[bold]elsewhere", None, "ok", latency=2e-3))
    return place


def test_ls_pages(filled: str) -> None:
    code, text = run("db", "ls", filled, "--json")
    assert code == 0
    first, second = json.loads(text)
    assert (first["program"], first["trials"], first["outcomes"]) == (PROGRAM.name, 6, {"ok": 5, "crash": 1})
    assert second["latency"] == 2e-3
    assert json.loads(run("db", "ls", filled, "--json", "--limit", 1, "--offset", 1)[1]) == [second]
    code, text = run("db", "ls", filled, "--limit", 1)
    assert "there may be more: --offset 1" in text
    assert "[bold]elsewhere" in run("db", "ls", filled)[1]


def test_records_page(filled: str) -> None:
    found = json.loads(run("db", "records", filled, "--json")[1])
    assert len(found) == 7
    assert found[0]["trial"] == 0
    assert (
        json.loads(run("db", "records", filled, WORKLOAD, "--json", "--limit", 2, "--offset", 1)[1])
        == found[1:3]
    )
    assert len(json.loads(run("db", "records", filled, "--outcome", "crash", "--json")[1])) == 1
    assert len(json.loads(run("db", "records", filled, "--target", TARGET.key, "--json")[1])) == 6
    text = run("db", "records", filled)[1]
    assert "[red]signal 11[/red] <script>" in text
    assert "7 in all" in text


def test_copy_and_prune(filled: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    assert json.loads(run("db", "copy", filled, other, "--json")[1]) == {"added": 7, "present": 0}
    assert run("db", "copy", filled, other)[1] == "0 records added, 7 there already\n"
    assert json.loads(run("db", "merge", filled, other, "--json")[1]) == {"added": 0, "present": 7}
    assert json.loads(run("db", "prune", other, "--keep", 1, "--json")[1]) == {"deleted": 1, "left": 6}
    assert run("db", "prune", filled)[1] == "1 records deleted, 6 left\n"  # the crash
    assert run("db", "prune", filled, "--keep", 0)[0] == 2


def test_a_password_on_the_command_line_is_refused() -> None:
    for command in (
        ["db", "ls"],
        ["db", "prune"],
        ["tune", "GMM", "--db"],
        ["show", "GMM", "asm", "--db"],
        ["doctor", "--db"],
    ):
        code, text = run(*command, "postgresql://ann:s3cret@host/db")
        assert code == 2
        assert "s3cret" not in text
        assert "PGPASSWORD" in text


def test_doctor_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "PGHOST", "PGSERVICE", "PGDATABASE", "PGHOSTADDR"):
        monkeypatch.delenv(name, raising=False)
    code, text = run("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(text)}
    assert code == 0
    assert found["machine"]["data"]["key"] == ms.target.native().key
    assert found["compiler"]["ok"] is found["kernel"]["ok"] is True
    assert found["postgresql"]["ok"] is found["ray"]["ok"] is None
    assert found["versions"]["data"]["metaschedule"] == ms.__version__
    code, text = run("doctor")
    assert "machine" in text


def test_doctor_asks_what_it_is_told_to(postgres: Server) -> None:
    url = postgres.create_database()
    code, text = doctor("--db", url)
    assert (code, text["ok"]) == (0, True)
    assert "no tuning records there" in text["text"]
    with ms.database.open(url) as db:
        db.add_program(PROGRAM)
    code, text = doctor("--db", url)
    assert "answers: 0 records" in text["text"]
    code, text = doctor("--db", url.replace("/tuning", "/nothing"))
    assert (code, text["ok"]) == (1, False)
    assert "does not exist" in text["text"]


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "metaschedule", "doctor", "--json", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "RAY_ADDRESS": ""})
    return done.returncode, next(f for f in json.loads(done.stdout) if f["name"] == "postgresql")
