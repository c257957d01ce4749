"""JSON lines: export and import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.database import Counts, Database, DatabaseError
from tests.database.examples import PROGRAM, failed, ok


@pytest.fixture
def db() -> Database:
    db = ms.database.open(None)
    db.add_program(PROGRAM)
    db.add_all([ok(times=(0.5, 0.25)), failed(detail="lines\nof\u2028text\x00"), ok(2.0, seed=-5)])
    return db


def test_export_and_import(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert db.export(path) == 3
    assert len(path.read_text().split("\n")) == 4
    other = ms.database.open(None)
    assert other.import_(path) == Counts(added=3, present=0)
    assert other.import_(path) == Counts(added=0, present=3)
    assert other.records() == db.records()
    assert other.workloads() == db.workloads()


def test_each_line_stands_alone(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    db.export(path)
    path.write_text(path.read_text().split("\n")[2])  # and without its newline
    other = ms.database.open(None)
    assert other.import_(path) == Counts(added=1, present=0)
    assert other.records() == db.records()[2:]
    assert other.workloads() == db.workloads()


def changed(**changes: Any) -> Any:
    return lambda line: json.dumps(json.loads(line) | changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: "", "line 2: Expecting value"),
        (lambda line: line[:50], "line 2: Unterminated string"),
        (lambda line: "[1]", "line 2: not a tuning record"),
        (lambda line: "[" * 100_000, "line 2: maximum recursion"),
        (changed(schema=2), "line 2: schema 2, and this metaschedule reads 1"),
        (changed(extra=1), "line 2: keys that are missing, or unknown: extra"),
        (changed(latency="fast"), "line 2: Record: latency must be a number or None, got 'fast'"),
        (changed(times=[1, None]), "line 2: Record: times"),
        (changed(confirmed=1), "line 2: Record: confirmed must be True or False, got 1"),
        (changed(script=None), "line 2: a tuning record: script must be a string, got None"),
        (changed(latency=None, outcome="ok"), "line 2: outcome 'ok' with latency None"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_imported(
    db: Database, tmp_path: Path, damage: Any, message: str
) -> None:
    path = tmp_path / "records.jsonl"
    db.export(path)
    first, second, third, _ = path.read_text().split("\n")
    path.write_text("\n".join([first, damage(second), third, ""]))
    other = ms.database.open(None)
    with pytest.raises(DatabaseError, match="nothing was imported") as caught:
        other.import_(path)
    assert message in str(caught.value)
    assert other.records() == other.workloads() == []


def test_a_file_cut_short_is_recognised(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    db.export(path)
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DatabaseError, match="line 3: the file ends within this line"):
        ms.database.open(None).import_(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary"):
        with pytest.raises(DatabaseError, match=f"{name}: cannot be read as JSON lines"):
            ms.database.open(None).import_(tmp_path / name)
