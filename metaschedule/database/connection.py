"""Opening the file: what it is, before anything is written to it; and what SQLite's errors mean.

A file that is not ours is never opened for writing, so it stays as it was to the byte.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

APPLICATION = 0x4D455441  # SQLite's application_id: "META"
VERSION = 1  # of the tables, SQLite's user_version
PATIENCE = 60.0  # seconds to wait for other writers
LOOKS = 3  # at a file, before it is refused

TABLES = """
CREATE TABLE workloads (hash TEXT PRIMARY KEY, name TEXT NOT NULL, script TEXT NOT NULL);
CREATE TABLE sketches (hash TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    workload TEXT NOT NULL REFERENCES workloads,
    target TEXT NOT NULL,
    sketch TEXT REFERENCES sketches,
    decisions TEXT,
    outcome TEXT NOT NULL,
    latency REAL,
    times TEXT NOT NULL,
    detail TEXT NOT NULL,
    confirmed INTEGER NOT NULL,
    space TEXT NOT NULL,
    seed INTEGER,
    trial INTEGER,
    run TEXT NOT NULL,
    created REAL NOT NULL,
    version TEXT NOT NULL,
    uid TEXT NOT NULL UNIQUE
);
CREATE INDEX records_of_workload ON records (workload);
"""
# Columns of `records` that older files lack. They have defaults, so that versions that do not know them can
# still read and write a file that has them.
LATER_COLUMNS = {"disturbed": "REAL NOT NULL DEFAULT 0"}

MEANING = {
    sqlite3.SQLITE_BUSY: f"other processes kept it locked for {PATIENCE:.0f} s; try again when they are done",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the path and the permissions",
    sqlite3.SQLITE_CONSTRAINT: "it does not hold the program of this record; call add_program(program) first",
    sqlite3.SQLITE_CORRUPT: "damaged or cut short; restore a copy, or export what the sqlite3 tool recovers",
    sqlite3.SQLITE_FULL: "the disk is full; what was stored before is safe, so make room and go on",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the path and the disk",
    sqlite3.SQLITE_NOTADB: "not a tuning database, or damaged from its first bytes; choose another file",
    sqlite3.SQLITE_READONLY: "read-only; copy it to where you may write",
}


class DatabaseError(Exception):
    """A database that cannot be used, or not for this: which, why, and what to do."""


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Errors of SQLite and of the system as `DatabaseError`."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        meaning = MEANING.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "cannot be used")
        raise DatabaseError(f"{path or 'database in memory'}: {meaning} ({error})") from error


def connect(path: Path | None, readonly: bool = False) -> sqlite3.Connection:
    """A connection to a database of the present version, created unless `readonly`; None: in memory."""
    if path is None:
        connection = sqlite(":memory:")
        create(connection)
        return connection
    with explained(path):
        if path.is_dir():
            raise DatabaseError(f"{path}: a directory; give a file in it")
        has_tables = path.exists() and path.stat().st_size > 0 and inspect(path)
        if readonly and not has_tables:
            raise DatabaseError(f"{path}: no tuning database there; check the path, or tune into it first")
        if has_tables and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return sqlite(read_only_uri(path))
        connection = sqlite(f"{path.absolute().as_uri()}?mode=rwc")
        if readonly:  # not by mode=ro, which would leave SQLite's side files behind
            connection.execute("PRAGMA query_only = ON")
        else:
            write_ahead(connection)
            create(connection)
        return connection


def sqlite(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def read_only_uri(path: Path) -> str:
    """Without a write-ahead log the file is all there is; read as `immutable`, it gets none."""
    log = path.with_name(path.name + "-wal")
    whole = not log.exists() or log.stat().st_size == 0
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"


def inspect(path: Path) -> bool:
    """True: a sound tuning database; False: a database with nothing in it; an error: anything else.

    A process that folds its log into the file meanwhile can make it look damaged, so we look again.
    """
    for _ in range(LOOKS - 1):
        try:
            return look(path)
        except (sqlite3.Error, DatabaseError, UnicodeDecodeError):
            time.sleep(0.05)
    return look(path)


def look(path: Path) -> bool:
    with closing(sqlite(read_only_uri(path))) as connection:
        application, version, tables = signature(connection)
        if not (application or version or tables):
            return False
        if application != APPLICATION:
            raise DatabaseError(f"{path}: a database of another application; choose another file")
        if version > VERSION:
            raise DatabaseError(
                f"{path}: tables of version {version}, and this metaschedule knows up to {VERSION}; "
                "use the newer metaschedule that wrote it"
            )
        (fault,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if fault != "ok":
            raise DatabaseError(f"{path}: {MEANING[sqlite3.SQLITE_CORRUPT]} ({fault})")
    return True


def signature(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """application_id, user_version, number of tables."""
    queries = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    application, version, tables = (connection.execute(query).fetchone()[0] for query in queries)
    return application, version, tables


def write_ahead(connection: sqlite3.Connection) -> None:
    """Write-ahead logging: readers and a writer do not wait for each other, a kill loses nothing committed.

    On a new file the change of mode writes one page, and without a journal, so that a process killed here
    leaves either nothing or a sound file. SQLite does not wait for others at this step, so we do.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = OFF")
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def create(connection: sqlite3.Connection) -> None:
    """The tables and columns that are not there, unless another process was first."""
    if signature(connection)[0] == APPLICATION and not missing_columns(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if signature(connection)[0] != APPLICATION:
        for statement in TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    for column in missing_columns(connection):
        connection.execute(f"ALTER TABLE records ADD COLUMN {column} {LATER_COLUMNS[column]}")
    connection.execute("COMMIT")


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Of the later ones, those that the file does not have."""
    present = {row[1] for row in connection.execute("PRAGMA table_info(records)")}
    return [column for column in LATER_COLUMNS if column not in present]
