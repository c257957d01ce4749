"""`Database`: tuning records in an SQLite file that many processes share, or in memory."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from ..ir import Program, structural_hash
from ..target import Target
from ..validation import checked
from . import lines
from .connection import DatabaseError, connect, explained, missing_columns
from .record import Record, Workload, key_of, workload_of

COLUMNS = [f.name for f in fields(Record)]
ADD = f"""INSERT INTO records ({", ".join(COLUMNS)}) VALUES ({", ".join(f":{c}" for c in COLUMNS)})
ON CONFLICT (uid) DO NOTHING"""


class Counts(NamedTuple):
    """Of records brought in from elsewhere."""

    added: int
    present: int


@checked
def open(path: str | os.PathLike[str] | Database | None, readonly: bool = False) -> Database:
    """The database in a file, created if there is none unless `readonly`; None: in memory.

    >>> from metaschedule import workloads
    >>> program = workloads.create("GMM", b=1, n=4, m=4, k=8)
    >>> db = open(None)
    >>> workload = db.add_program(program)
    >>> db.add(Record.of(workload, "x86_64:c4", None, "ok", latency=2e-6))
    >>> db.best(program, "x86_64:c4").latency
    2e-06
    """
    if isinstance(path, Database):
        return path
    return Database(None if path in (None, ":memory:") else Path(path), readonly)


class Database:
    """Records are only ever added, and stored when `add` returns. Safe to share between threads."""

    def __init__(self, path: Path | None, readonly: bool = False) -> None:
        self.path = path
        self.connection = connect(path, readonly)
        with explained(path):
            self._absent = set(
                missing_columns(self.connection)
            )  # a file that may only be read stays as it is
            self._file = None if path is None else identity(path)
        self._lock = threading.Lock()
        self._sketches: dict[str, str] = {}  # by hash: one text for all records that share it

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ---

    @checked
    def add_program(self, program: Program) -> str:
        """Store a program, before its records; returns its structural hash."""
        workload = Workload(structural_hash(program), program.name, str(program))
        self._insert([workload], [])
        return workload.hash

    @checked
    def add(self, record: Record) -> None:
        self.add_all([record])

    @checked
    def add_all(self, records: Iterable[Record]) -> Counts:
        """All or none. A record that is there already, by its `uid`, is left alone."""
        return self._insert([], list(records))

    @checked
    def merge(self, path: str | os.PathLike[str]) -> Counts:
        """Add what another database has and this one lacks."""
        with open(path, readonly=True) as other:
            records = other.records()  # first: the programs of all of them are then there
            return self._insert(other.workloads(), records)

    @checked
    def import_(self, path: str | os.PathLike[str]) -> Counts:
        """Add the records of a file that `export` wrote, or nothing if a line of it is malformed."""
        entries = lines.read(Path(path))
        return self._insert(dict(entries), [record for _, record in entries])

    def _insert(self, workloads: Iterable[Workload], records: Iterable[Record]) -> Counts:
        added = present = 0
        with self._transaction():
            insert = self.connection.execute
            for workload in workloads:
                insert("INSERT OR IGNORE INTO workloads VALUES (?, ?, ?)", workload)
            for record in records:
                sketch = None if record.sketch is None else digest(record.sketch)
                if sketch is not None:
                    insert("INSERT OR IGNORE INTO sketches VALUES (?, ?)", (sketch, record.sketch))
                row = {**vars(record), "sketch": sketch, "times": json.dumps(record.times)}
                new = insert(ADD, row).rowcount
                added, present = added + new, present + 1 - new
        return Counts(added, present)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, explained(self.path):
            try:
                self.connection.execute("BEGIN IMMEDIATE")  # waits for its turn; a later upgrade could not
                yield
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

    # --- reading ---

    @checked
    def records(
        self,
        program: Program | str | None = None,
        target: Target | str | None = None,
        outcome: str | None = None,
        space: str | None = None,
    ) -> list[Record]:
        """In the order they were added; `program` may be a structural hash, `target` a key."""
        workload, key = program and workload_of(program), target and key_of(target)
        wanted = {"workload": workload, "target": key, "outcome": outcome, "space": space}
        return self._select(wanted, "ORDER BY id")

    @checked
    def best(self, program: Program | str, target: Target | str) -> Record | None:
        """The fastest of the confirmed records, or of all if none is confirmed. What was measured beside
        other work comes after all that was not."""
        wanted = {"workload": workload_of(program), "target": key_of(target), "outcome": "ok"}
        order = "ORDER BY disturbed >= 1, confirmed DESC, latency, id LIMIT 1"
        return next(iter(self._select(wanted, order)), None)

    def workloads(self) -> list[Workload]:
        """The programs, in the order they were added."""
        return [Workload(*row) for row in self._rows("SELECT * FROM workloads ORDER BY rowid")]

    @checked
    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all records as JSON lines; returns how many."""
        records = self.records()  # first: the programs of all of them are then there
        workloads = {w.hash: w for w in self.workloads()}
        lines.write(Path(path), [(workloads[r.workload], r) for r in records])
        return len(records)

    def _select(self, wanted: Mapping[str, str | None], order: str) -> list[Record]:
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["TRUE", *(f"{column} = :{column}" for column in given)])
        columns = ", ".join(f"0.0 AS {c}" if c in self._absent else c for c in COLUMNS)
        rows = self._rows(f"SELECT {columns} FROM records WHERE {where} {order}", given)
        return [self._record(dict(zip(COLUMNS, row))) for row in rows]

    def _record(self, row: dict[str, Any]) -> Record:
        if row["sketch"] is not None:
            row["sketch"] = self._sketch(row["sketch"])
        try:
            row |= {"times": tuple(json.loads(row["times"])), "confirmed": bool(row["confirmed"])}
            return Record(**row)
        except (ValueError, TypeError) as error:
            raise DatabaseError(f"{self.path}: record {row['uid']} is damaged: {error}") from error

    def _sketch(self, hash: str) -> str:
        if hash not in self._sketches:
            rows = self._rows("SELECT text FROM sketches WHERE hash = ?", (hash,))
            (text,) = rows[0] if rows else ("",)  # lost: an error of this record, when its trace is read
            self._sketches[hash] = text
        return self._sketches[hash]

    def _rows(self, query: str, values: Any = ()) -> list[Any]:
        with self._lock, explained(self.path):
            return self.connection.execute(query, values).fetchall()


def identity(path: Path) -> tuple[int, int] | None:
    """Which file is there; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def digest(sketch: str) -> str:
    return hashlib.blake2b(sketch.encode(), digest_size=16).hexdigest()
