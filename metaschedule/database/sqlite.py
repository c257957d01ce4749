"""`SQLite`: a file that many processes share, or memory. What a file is, before anything is written to it;
what SQLite's errors mean.

A file that is not ours is never opened for writing, so it stays as it was to the byte.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from .schema import (
    CHOICE_COLUMNS,
    COLUMNS,
    OBJECTS,
    RUN_COLUMNS,
    VERSION,
    Counts,
    DatabaseError,
    Rows,
    check_version,
    missing_objects,
)

APPLICATION = 0x4D455441  # SQLite's application_id: "META"
PATIENCE = 60.0  # seconds to wait for other writers
LOOKS = 3  # at a file, before it is refused
MOST_CHECKED = (
    32 << 20
)  # bytes that are read when a file is opened; damage in larger ones shows when it is met
DIALECT = {"schema": "", "id": "id INTEGER PRIMARY KEY AUTOINCREMENT", "order": "", "by_hash": ""}


def insertion(table: str, columns: list[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{c}' for c in columns)})"


ADD_RECORD = f"{insertion('records', COLUMNS)} ON CONFLICT (uid) DO NOTHING"
ADD_RUN = f"""{insertion("runs", RUN_COLUMNS)} ON CONFLICT (uid) DO UPDATE SET
{", ".join(f"{c} = excluded.{c}" for c in RUN_COLUMNS)} WHERE excluded.updated >= runs.updated"""
ADD_CHOICE = f"""{insertion("choices", CHOICE_COLUMNS)} ON CONFLICT (workload, target, model) DO UPDATE SET
{", ".join(f"{c} = excluded.{c}" for c in CHOICE_COLUMNS)} WHERE excluded.created >= choices.created"""

MEANING = {
    sqlite3.SQLITE_BUSY: "other processes keep it locked; try again when they are done",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the path and the permissions",
    sqlite3.SQLITE_CONSTRAINT: "it does not hold the program of this record; call add_program(program) first",
    sqlite3.SQLITE_CORRUPT: "damaged or cut short; restore a copy, or export what the sqlite3 tool recovers",
    sqlite3.SQLITE_FULL: "the disk is full; what was stored before is safe, so make room and go on",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the path and the disk",
    sqlite3.SQLITE_NOTADB: "not a tuning database, or damaged from its first bytes; choose another file",
    sqlite3.SQLITE_READONLY: "read-only; copy it to where you may write",
}


@contextmanager
def explain_errors(path: Path | None) -> Iterator[None]:
    """Errors of SQLite and of the system as `DatabaseError`."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        meaning = MEANING.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "cannot be used")
        raise DatabaseError(f"{path or 'database in memory'}: {meaning} ({error})") from error


def connect(path: Path | None, readonly: bool = False, patience: float = PATIENCE) -> sqlite3.Connection:
    """A connection to a database of the present version, created unless `readonly`; None: in memory."""
    if path is None:
        connection = sqlite(":memory:")
        create(connection)
        return connection
    with explain_errors(path):
        if path.is_dir():
            raise DatabaseError(f"{path}: a directory; give a file in it")
        has_tables = path.exists() and path.stat().st_size > 0 and inspect(path, patience)
        if readonly and not has_tables:
            raise DatabaseError(f"{path}: no tuning database there; check the path, or tune into it first")
        if has_tables and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return sqlite(read_only_uri(path), patience)
        connection = sqlite(f"{path.absolute().as_uri()}?mode=rwc", patience)
        if readonly:  # not by mode=ro, which would leave SQLite's side files behind
            connection.execute("PRAGMA query_only = ON")
        else:
            write_ahead(connection)
            create(connection)
        return connection


def sqlite(uri: str, patience: float = PATIENCE) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=patience, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def read_only_uri(path: Path) -> str:
    """Without a write-ahead log the file is all there is; read as `immutable`, it gets none."""
    log = path.with_name(path.name + "-wal")
    whole = not log.exists() or log.stat().st_size == 0
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"


def inspect(path: Path, patience: float) -> bool:
    """True: a sound tuning database; False: a database with nothing in it; an error: anything else.

    A process that folds its log into the file meanwhile can make it look damaged, so we look again.
    """
    for _ in range(LOOKS - 1):
        try:
            return look(path, patience)
        except (sqlite3.Error, DatabaseError, UnicodeDecodeError) as error:
            if is_busy(error):
                raise
            time.sleep(0.05)
    return look(path, patience)


def is_busy(error: Exception) -> bool:
    """Whether others kept it locked, for as long as somebody waits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def look(path: Path, patience: float) -> bool:
    with closing(sqlite(read_only_uri(path), patience)) as connection:
        application, version, tables = signature(connection)
        if not (application or version or tables):
            return False
        if application != APPLICATION:
            raise DatabaseError(f"{path}: a database of another application; choose another file")
        check_version(str(path), version)
        if path.stat().st_size > MOST_CHECKED:
            return True
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
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def create(connection: sqlite3.Connection) -> None:
    """The tables and what came later, unless another process was first."""
    if not absent_objects(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if signature(connection)[0] != APPLICATION:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    for name in absent_objects(connection):
        connection.execute(OBJECTS[name].format_map(DIALECT))
    connection.execute("COMMIT")


def absent_objects(connection: sqlite3.Connection) -> list[str]:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    columns = {f"records.{row[1]}" for row in connection.execute("PRAGMA table_info(records)")}
    return missing_objects(names | columns)


class SQLite:
    """Safe to share between threads. `path` None: in memory."""

    schema = ""

    def __init__(self, path: Path | None, readonly: bool = False, patience: float | None = None) -> None:
        self.path, self.name = path, str(path or "database in memory")
        self.connection = connect(path, readonly, PATIENCE if patience is None else patience)
        with explain_errors(path):
            self.missing = absent_objects(self.connection)  # a file that may only be read stays as it is
            self._file = None if path is None else identity(path)
        self._lock = threading.Lock()

    def rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._lock, explain_errors(self.path):
            return self.connection.execute(query, values).fetchall()

    def insert(self, rows: Rows) -> Counts:
        with self._transaction() as execute:
            for workload in rows.workloads:
                execute("INSERT OR IGNORE INTO workloads VALUES (?, ?, ?)", workload)
            for sketch in rows.sketches:
                execute("INSERT OR IGNORE INTO sketches VALUES (?, ?)", sketch)
            added = sum(execute(ADD_RECORD, record).rowcount for record in rows.records)
            for run in rows.runs:
                execute(ADD_RUN, run)
            for choice in rows.choices:
                execute(ADD_CHOICE, choice)
        return Counts(added, len(rows.records) - added)

    def delete(self, statements: Iterable[tuple[str, dict[str, Any]]]) -> list[int]:
        with self._transaction() as execute:
            counts = [execute(query, values).rowcount for query, values in statements]
        with self._lock, suppress(sqlite3.Error):  # in use, or no room: then the file stays as large as it is
            self.connection.execute("VACUUM")
        return counts

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._lock, explain_errors(self.path):
            try:
                self.connection.execute("BEGIN IMMEDIATE")  # waits for its turn; a later upgrade could not
                yield self.connection.execute
                self.connection.execute("COMMIT")
                self._check_place()
            except BaseException:
                if self.connection.in_transaction:  # a full disk has ended it already
                    self.connection.execute("ROLLBACK")
                raise

    def _check_place(self) -> None:
        """SQLite goes on writing to a file that was deleted, which nobody will find again."""
        if self.path is not None and identity(self.path) != self._file:
            raise DatabaseError(
                f"{self.path}: deleted or replaced while it was open, so what was just stored is lost; "
                "open it again"
            )


def identity(path: Path) -> tuple[int, int] | None:
    """Which file is there; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
