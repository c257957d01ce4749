"""Files that are not what they should be: a clear error, and not a byte changed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import metaschedule as ms
from metaschedule.database import DatabaseError
from tests.database.examples import PROGRAM, TARGET, ok


@pytest.fixture
def tuning(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.db"
    with ms.database.open(path) as db:
        db.add_program(PROGRAM)
        db.add_all([ok(detail="x" * 300) for _ in range(100)])
    return path


def not_sqlite(path: Path) -> None:
    path.write_bytes(b"latency,trace\n" * 1000)


def short_text(path: Path) -> None:
    path.write_bytes(b"hello")


def cut_within_the_first_page(path: Path) -> None:
    os.truncate(path, 700)


def cut_within_the_header(path: Path) -> None:
    os.truncate(path, 60)


def cut_in_the_middle(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def overwritten_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8 * 4096 : 9 * 4096] = b"\xa5" * 4096
    path.write_bytes(content)


def statement(text: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute(text)
        connection.commit()
        connection.close()

    return run


def foreign(mode: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.unlink()
        for text in (f"PRAGMA journal_mode = {mode}", "CREATE TABLE records (x)"):
            statement(text)(path)

    return write


CASES = {
    "not SQLite": (not_sqlite, "not a tuning database"),
    "short text": (short_text, "not a tuning database"),
    "cut within the header": (cut_within_the_header, "damaged or cut short"),
    "cut within the first page": (cut_within_the_first_page, "damaged or cut short"),
    "cut in the middle": (cut_in_the_middle, "damaged or cut short"),
    "cut by a page": (cut_by_a_page, "damaged or cut short"),
    "a page overwritten": (overwritten_page, "damaged or cut short"),
    "another application": (foreign("DELETE"), "a database of another application"),
    "another application, write-ahead log": (foreign("WAL"), "a database of another application"),
    "another application's number": (
        statement("PRAGMA application_id = 7"),
        "a database of another application",
    ),
    "newer": (statement("PRAGMA user_version = 2"), "tables of version 2, .* knows up to 1; use the newer"),
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_refused_and_left_untouched(tuning: Path, name: str, readonly: bool) -> None:
    spoil, message = CASES[name]
    spoil(tuning)
    before = {p.name: p.read_bytes() for p in tuning.parent.iterdir()}
    with pytest.raises(DatabaseError, match=f"tuning.db: {message}"):
        ms.database.open(tuning, readonly=readonly)
    with ms.database.open(None) as db, pytest.raises(DatabaseError, match=message):
        db.merge(tuning)
    assert {p.name: p.read_bytes() for p in tuning.parent.iterdir()} == before


def test_damage_in_a_large_file_shows_when_it_is_met(tuning: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read as a whole to be opened: 100,000 records would take half a second."""
    monkeypatch.setattr("metaschedule.database.sqlite.MOST_CHECKED", 0)
    with ms.database.open(tuning) as db:
        assert db.records()
    content = bytearray(tuning.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)  # all but the page that says what it is
    tuning.write_bytes(content)
    with pytest.raises(DatabaseError, match="damaged or cut short"), ms.database.open(tuning) as db:
        db.records()


def test_another_application_at_work_is_left_alone(tmp_path: Path) -> None:
    """Its rows are still in its write-ahead log, which we must neither fold in nor drop."""
    path = tmp_path / "theirs.db"
    theirs = sqlite3.connect(path)
    theirs.execute("PRAGMA journal_mode = WAL")
    theirs.execute("CREATE TABLE t (x)")
    files = [path, tmp_path / "theirs.db-wal"]
    before = [f.read_bytes() for f in files]
    with pytest.raises(DatabaseError, match="a database of another application"):
        ms.database.open(path)
    assert [f.read_bytes() for f in files] == before
    theirs.execute("INSERT INTO t VALUES (1)")
    theirs.close()


@pytest.mark.parametrize("content", ["nothing", "an empty database"])
def test_an_empty_file_becomes_a_database(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tuning.db"
    path.touch()
    if content == "an empty database":  # what a process killed while creating one leaves
        statement("PRAGMA journal_mode = WAL")(path)
        assert path.stat().st_size > 0
    with pytest.raises(DatabaseError, match="no tuning database there"):
        ms.database.open(path, readonly=True)
    with ms.database.open(path) as db:
        db.add_program(PROGRAM)
        db.add(ok())
    with ms.database.open(path, readonly=True) as db:
        assert len(db.records()) == 1


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "tuning.db"):
        with pytest.raises(DatabaseError, match="check the path|give a file in it"):
            ms.database.open(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("readonly", [False, True])
def test_files_without_the_later_columns(tuning: Path, tmp_path: Path, readonly: bool) -> None:
    lines = tmp_path / "lines.jsonl"
    with ms.database.open(tuning) as db:
        before = db.records()
        db.export(lines)
    for text in (
        "DROP INDEX records_by_rank",
        "ALTER TABLE records DROP COLUMN disturbed",
        "DROP TABLE runs",
    ):
        statement(text)(tuning)
    with ms.database.open(tuning, readonly=readonly) as db:
        assert db.records() == before
        assert db.best(PROGRAM, TARGET) == before[0]
        if not readonly:
            db.add(ok(1e-9, disturbed=1.0))
    older = [
        {k: v for k, v in json.loads(row).items() if k != "disturbed"}
        for row in lines.read_text().splitlines()
    ]
    lines.write_text("".join(json.dumps(row) + "\n" for row in older))
    with ms.database.open(None) as db:
        assert db.import_(lines).added == len(before)
        assert db.records() == before


@pytest.mark.parametrize("how", ["the file", "its directory", "replaced"])
def test_a_file_that_vanishes_is_noticed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "place" / "tuning.db"
    path.parent.mkdir()
    with ms.database.open(path) as db:
        db.add_program(PROGRAM)
        db.add(ok())
        if how == "its directory":
            shutil.rmtree(path.parent)
        else:
            path.unlink()
        if how == "replaced":
            path.write_bytes(b"")
        with pytest.raises(DatabaseError, match="deleted or replaced while it was open"):
            db.add(ok())
    if how == "replaced":
        assert path.read_bytes() == b""


def test_read_only_by_choice(tuning: Path) -> None:
    before = tuning.read_bytes()
    with ms.database.open(tuning, readonly=True) as db:
        assert len(db.records()) == 100
        with pytest.raises(DatabaseError, match="read-only; copy it"):
            db.add(ok())
    assert tuning.read_bytes() == before
    assert [p.name for p in tuning.parent.iterdir()] == ["tuning.db"]


READ = """
import os, sys
import metaschedule as ms
from metaschedule.database import DatabaseError
if os.geteuid() == 0:  # may write anywhere; nobody may not
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
db = ms.database.open(sys.argv[1])
print(len(db.records()))
try:
    db.add(db.records()[0])
except DatabaseError as error:
    print(error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that any user can enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "with a log left behind"])
@pytest.mark.parametrize("locked", ["file", "directory"])
def test_reading_needs_no_right_to_write(tuning: Path, public: Path, locked: str, killed: bool) -> None:
    with ms.database.open(tuning) as db:
        if killed:
            db.add(ok())  # is in the log, as long as we do not close
        else:
            db.close()
        for file in tuning.parent.iterdir():
            shutil.copy(file, public)
    for file in public.glob("*"):
        file.chmod(0o444)
    public.chmod(0o555 if locked == "directory" else 0o777)
    env = {**os.environ, "PYTHONPATH": str(Path(ms.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(public / tuning.name)], env=env, text=True, capture_output=True
    )
    assert done.stdout.startswith("101\n" if killed else "100\n"), done.stderr
    assert "read-only; copy it" in done.stdout
