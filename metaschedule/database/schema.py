"""The tables, for SQLite and PostgreSQL alike, and how a database that lacks some of them gets them.

A database has a version, which says who can use it at all, and objects: tables, later columns, indices. What
is missing is created in this order, in a new database and in an old one. Later columns may be null or have
defaults, so that versions that do not know them can still read and write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

from .record import Choice, Record, TuningRun

VERSION = 1
COLUMNS = [f.name for f in fields(Record)]
RUN_COLUMNS = [f.name for f in fields(TuningRun)]
CHOICE_COLUMNS = [f.name for f in fields(Choice)]

# {schema} is a prefix of tables, {id} a column that counts up and is never used twice, {order} one more of
# it where rows do not have a number anyway.
OBJECTS = {
    "workloads": """CREATE TABLE {schema}workloads (
        {order}hash TEXT PRIMARY KEY, name TEXT NOT NULL, script TEXT NOT NULL)""",
    "sketches": "CREATE TABLE {schema}sketches (hash TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "records": """CREATE TABLE {schema}records (
        {id},
        workload TEXT NOT NULL REFERENCES {schema}workloads,
        target TEXT NOT NULL,
        sketch TEXT REFERENCES {schema}sketches,
        decisions TEXT,
        outcome TEXT NOT NULL,
        latency DOUBLE PRECISION,
        times TEXT NOT NULL,
        detail TEXT NOT NULL,
        confirmed BOOLEAN NOT NULL,
        space TEXT NOT NULL,
        seed BIGINT,
        trial BIGINT,
        run TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        version TEXT NOT NULL,
        uid TEXT NOT NULL UNIQUE)""",
    "records.disturbed": """ALTER TABLE {schema}records
        ADD COLUMN disturbed DOUBLE PRECISION NOT NULL DEFAULT 0""",
    "records.elapsed": "ALTER TABLE {schema}records ADD COLUMN elapsed DOUBLE PRECISION",
    "records.predicted": "ALTER TABLE {schema}records ADD COLUMN predicted DOUBLE PRECISION",
    "runs": """CREATE TABLE {schema}runs (
        uid TEXT PRIMARY KEY,
        workload TEXT NOT NULL REFERENCES {schema}workloads,
        target TEXT NOT NULL,
        space TEXT NOT NULL,
        seed BIGINT,
        call TEXT NOT NULL,
        label TEXT NOT NULL,
        weight DOUBLE PRECISION,
        trials BIGINT,
        minutes DOUBLE PRECISION,
        started DOUBLE PRECISION NOT NULL,
        updated DOUBLE PRECISION NOT NULL,
        seconds TEXT NOT NULL,
        untuned DOUBLE PRECISION,
        stopped TEXT,
        machine TEXT NOT NULL,
        details TEXT NOT NULL)""",
    "choices": """CREATE TABLE {schema}choices (
        workload TEXT NOT NULL REFERENCES {schema}workloads,
        target TEXT NOT NULL,
        model TEXT NOT NULL,
        how TEXT NOT NULL,
        record TEXT NOT NULL,
        seconds TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (workload, target, model))""",
    "records_of_workload": "CREATE INDEX records_of_workload ON {schema}records (workload)",
    "records_of_run": "CREATE INDEX records_of_run ON {schema}records (run)",
    # the order of RANK; the best of 100,000 records is the first entry
    "records_by_rank": """CREATE INDEX records_by_rank ON {schema}records
        (workload, target, (disturbed >= 1), confirmed DESC, latency, id) WHERE outcome = 'ok'""",
    # decisions may be longer than an ordered index of PostgreSQL takes
    "failed_candidates": """CREATE INDEX failed_candidates ON {schema}records
        {by_hash}(decisions) WHERE outcome <> 'ok'""",
}
# What readers see in the place of columns that a database lacks and that they may not add.
LATER_COLUMNS = {"disturbed": "CAST(0 AS DOUBLE PRECISION)", "elapsed": "NULL", "predicted": "NULL"}

RANK = "(disturbed >= 1), confirmed DESC, latency, id"
# A candidate that failed once is none, however fast it was another time.
WORKING = """r.outcome = 'ok' AND NOT EXISTS (
    SELECT 1 FROM {schema}records f WHERE f.outcome <> 'ok' AND f.decisions = r.decisions
    AND f.sketch = r.sketch AND f.workload = r.workload AND f.target = r.target)"""


class DatabaseError(Exception):
    """A database that cannot be used, or not for this: which, why, and what to do."""


class Counts(NamedTuple):
    """Of records brought in from elsewhere."""

    added: int
    present: int


class Rows(NamedTuple):
    """What is stored together: all of it or nothing. Sketches are (hash, text); records, runs and choices are
    by column, and refer to sketches by hash."""

    workloads: list[tuple[str, str, str]] = []
    sketches: list[tuple[str, str]] = []
    records: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []


class DatabaseStore(Protocol):
    """What `Database` needs of SQLite or of PostgreSQL. Values in queries are `:name`."""

    name: str  # in messages: the path, or the address without a password
    schema: str  # prefix of the tables
    missing: list[str]  # OBJECTS that are not there and cannot be made

    def rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def insert(self, rows: Rows) -> Counts: ...
    def delete(self, statements: Iterable[tuple[str, dict[str, Any]]]) -> list[int]: ...
    def close(self) -> None: ...


def missing_objects(present: Collection[str]) -> list[str]:
    """Names of tables, `table.column`s and indices that are still to be made."""
    return [name for name in OBJECTS if name not in present]


def check_version(name: str, version: int) -> None:
    if version > VERSION:
        raise DatabaseError(
            f"{name}: tables of version {version}, and this metaschedule knows up to {VERSION}; "
            "use the newer metaschedule that wrote it"
        )
