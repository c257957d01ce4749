"""`Database`: tuning records in an SQLite file that many processes share, on a PostgreSQL server that many
machines share, or in memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from ..ir import Program, structural_hash
from ..target import Target
from ..validation import Count, Positive, check_arguments
from . import lines
from .postgres import SCHEMES, Postgres, is_address
from .record import Choice, Record, StoredWorkload, TuningRun, key_of, workload_of
from .schema import (
    CHOICE_COLUMNS,
    COLUMNS,
    LATER_COLUMNS,
    RANK,
    RUN_COLUMNS,
    WORKING,
    Counts,
    DatabaseError,
    DatabaseStore,
    Rows,
)  # fmt: skip
from .sqlite import SQLite

PAGE = 5_000  # records that are read at once, where all are wanted one after the other
AT_ONCE = 500  # values in a query
PAGING = "LIMIT :limit OFFSET :offset"
NO_LIMIT = 2**62


class Summary(NamedTuple):
    """The trials of a program for a target; `outcomes` does not count leaders that were measured again."""

    workload: str
    name: str
    target: str
    outcomes: Counter[str]
    best: Record | None


@check_arguments
def open(
    path: str | os.PathLike[str] | Database | None, readonly: bool = False, patience: float | None = None
) -> Database:
    """The database in a file or at a `postgresql://` address, created if there is none unless `readonly`;
    None: in memory. `patience` is how many seconds to wait while others keep a file locked, or a server that
    was there does not answer: a minute, if it is not given.

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
    if is_address(path):
        return Database(Postgres(str(path), readonly, patience))
    if path is None or path == ":memory:":
        return Database(SQLite(None))
    if str(path).startswith(tuple(scheme[:-1] for scheme in SCHEMES)):  # pathlib makes one slash of two
        raise DatabaseError("an address of a server must be a string, not a path, which alters it")
    return Database(SQLite(Path(path), readonly, patience))


class Database:
    """Records are only ever added, and stored when `add` returns; `prune` alone deletes. Safe to share
    between threads."""

    def __init__(self, store: DatabaseStore) -> None:
        self.store = store
        columns = [name.removeprefix("records.") for name in store.missing]
        absent = [f"{LATER_COLUMNS[c]} AS {c}" for c in columns if c in LATER_COLUMNS]
        table = f"{store.schema}records"
        self._records = f"(SELECT *, {', '.join(absent)} FROM {table})" if absent else table
        self._sketches: dict[str, str] = {}  # by hash: one text for all records that share it

    @property
    def name(self) -> str:
        """The path or the address, without a password."""
        return self.store.name

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ---

    @check_arguments
    def add_program(self, program: Program) -> str:
        """Store a program, before its records; returns its structural hash."""
        workload = StoredWorkload(structural_hash(program), program.name, str(program))
        self._insert([workload], [])
        return workload.hash

    @check_arguments
    def add(self, record: Record) -> None:
        self.add_all([record])

    @check_arguments
    def add_all(self, records: Iterable[Record], run: TuningRun | None = None) -> Counts:
        """All or none. A record that is there already, by its `uid`, is left alone; the `run` they are of is
        stored with them, as far as it now is."""
        return self._insert([], list(records), [] if run is None else [run])

    @check_arguments
    def choose(self, choices: Iterable[Choice]) -> None:
        """Store by which kernels a model runs its programs; what was chosen before is forgotten."""
        self._insert([], [], choices=list(choices))

    @check_arguments
    def merge(self, other: str | os.PathLike[str] | Database) -> Counts:
        """Add what another database has and this one lacks. If that is interrupted, do it again: nothing is
        added twice."""
        source = open(other, readonly=True)
        try:
            added = present = 0
            runs = source.runs()
            for records in source._pages():
                here, there = self._insert(source.workloads(), records)  # which are then all there
                added, present = added + here, present + there
            self._insert(source.workloads(), [], runs, source.choices())
        finally:
            if source is not other:
                source.close()
        return Counts(added, present)

    @check_arguments
    def import_(self, path: str | os.PathLike[str]) -> Counts:
        """Add the records of a file that `export` wrote, or nothing if a line of it is malformed."""
        entries = lines.read(Path(path))
        return self._insert(dict(entries), [record for _, record in entries])

    @check_arguments
    def prune(self, keep: Positive = 16) -> int:
        """Delete all but the records of the fastest candidates, `keep` for each program and target, and of
        those that models have chosen; returns how many. Tuning then goes on from those: it no longer knows
        what else was tried."""
        schema = self.store.schema
        # rank of a record; of a candidate: its best record's; place of that among the candidates
        kept = f"""
            SELECT id FROM (
                SELECT id, dense_rank() OVER (PARTITION BY workload, target ORDER BY leader) AS place FROM (
                    SELECT id, workload, target,
                        min(rank) OVER (PARTITION BY workload, target, sketch, decisions) AS leader FROM (
                        SELECT id, workload, target, sketch, decisions,
                            row_number() OVER (PARTITION BY workload, target ORDER BY {RANK}) AS rank
                        FROM {schema}records r WHERE {WORKING.format(schema=schema)}
                    ) AS ranked
                ) AS candidates
            ) AS placed WHERE place <= :keep"""
        unchosen = f"uid NOT IN (SELECT record FROM {schema}choices)"
        unused = f"""DELETE FROM {schema}sketches WHERE NOT EXISTS (
            SELECT 1 FROM {schema}records WHERE sketch = {schema}sketches.hash)"""
        deleted, _ = self.store.delete(
            [
                (f"DELETE FROM {schema}records WHERE id NOT IN ({kept}) AND {unchosen}", {"keep": keep}),
                (unused, {}),
            ]
        )
        return deleted

    def _insert(
        self,
        workloads: Iterable[StoredWorkload],
        records: Sequence[Record],
        runs: Sequence[TuningRun] = (),
        choices: Sequence[Choice] = (),
    ) -> Counts:
        hashes: dict[str | None, str] = {
            text: digest(text) for text in {r.sketch for r in records} if text is not None
        }
        rows = [{**columns(r), "sketch": hashes.get(r.sketch), "times": json.dumps(r.times)} for r in records]
        sketches = sorted((hash, text) for text, hash in hashes.items() if text is not None)
        infos = [
            {**columns(run), "seconds": json.dumps(run.seconds), "details": json.dumps(run.details)}
            for run in runs
        ]
        chosen = [{**columns(choice), "seconds": json.dumps(dict(choice.seconds))} for choice in choices]
        return self.store.insert(Rows(list(workloads), sketches, rows, infos, chosen))

    # --- reading ---

    @check_arguments
    def records(
        self,
        program: Program | str | None = None,
        target: Target | str | None = None,
        outcome: str | None = None,
        space: str | None = None,
        run: str | None = None,
        limit: Count | None = None,
        offset: Count = 0,
    ) -> list[Record]:
        """In the order they were added; `program` may be a structural hash, `target` a key."""
        where, values = condition(program, target, outcome=outcome, space=space, run=run)
        return [record for _, record in self._select(where, values, "id", limit, offset)]

    @check_arguments
    def records_since(
        self,
        position: Count,
        program: Program | str | None = None,
        target: Target | str | None = None,
        space: str | None = None,
        limit: Count | None = None,
    ) -> tuple[list[Record], int]:
        """What was added since a position, and the position after it; 0 is the beginning."""
        where, values = condition(program, target, space=space)
        found = self._select(f"{where} AND id > :position", values | {"position": position}, "id", limit)
        return [record for _, record in found], found[-1][0] if found else position

    @check_arguments
    def count(
        self,
        program: Program | str | None = None,
        target: Target | str | None = None,
        outcome: str | None = None,
        space: str | None = None,
        run: str | None = None,
    ) -> int:
        """How many `records` there are."""
        where, values = condition(program, target, outcome=outcome, space=space, run=run)
        return self.store.rows(f"SELECT count(*) FROM {self._records} AS r WHERE {where}", values)[0][0]

    @check_arguments
    def ranked(
        self, program: Program | str, target: Target | str, limit: Count | None = None, offset: Count = 0
    ) -> list[Record]:
        """The fastest first: those that were confirmed before the others, and those that are upper bounds,
        because the machine was busy, after all. A candidate that failed once is not among them."""
        where, values = condition(program, target)
        working = WORKING.format(schema=self.store.schema)
        return [record for _, record in self._select(f"{where} AND {working}", values, RANK, limit, offset)]

    @check_arguments
    def best(self, program: Program | str, target: Target | str) -> Record | None:
        """The first of `ranked`."""
        return next(iter(self.ranked(program, target, limit=1)), None)

    @check_arguments
    def record(self, uid: str) -> Record | None:
        """The record with this `uid`."""
        return next((record for _, record in self._select("uid = :uid", {"uid": uid}, "id")), None)

    def workloads(self) -> list[StoredWorkload]:
        """The programs, in the order they were added."""
        query = f"SELECT hash, name, script FROM {self.store.schema}workloads ORDER BY rowid"
        return [StoredWorkload(*row) for row in self.store.rows(query, {})]

    @check_arguments
    def summaries(self, limit: Count | None = None, offset: Count = 0) -> list[Summary]:
        """One for each program and target that there are records of, in the order of the programs."""
        schema = self.store.schema
        query = f"""SELECT r.workload, w.name, r.target FROM {schema}records r
            JOIN {schema}workloads w ON w.hash = r.workload
            GROUP BY r.workload, w.name, w.rowid, r.target ORDER BY w.rowid, min(r.id) {PAGING}"""
        found = self.store.rows(query, paging(limit, offset))
        outcomes: dict[tuple[str, str], Counter[str]] = {
            (hash, target): Counter() for hash, _, target in found
        }
        for names, values in batches({hash for hash, _, _ in found}):
            query = f"""SELECT workload, target, outcome, count(*) FROM {schema}records
                WHERE NOT confirmed AND workload IN ({names}) GROUP BY workload, target, outcome"""
            for hash, target, outcome, count in self.store.rows(query, values):
                if (hash, target) in outcomes:
                    outcomes[hash, target][outcome] = count
        return [
            Summary(hash, name, target, outcomes[hash, target], self.best(hash, target))
            for hash, name, target in found
        ]

    def count_summaries(self) -> int:
        """How many `summaries` there are."""
        pairs = f"SELECT DISTINCT workload, target FROM {self.store.schema}records"
        return self.store.rows(f"SELECT count(*) FROM ({pairs}) AS pairs", {})[0][0]

    def runs(self) -> list[TuningRun]:
        """What `tune` has told of itself, in the order it was begun."""
        if "runs" in self.store.missing:
            return []
        query = f"SELECT {', '.join(RUN_COLUMNS)} FROM {self.store.schema}runs ORDER BY started, uid"
        found = [dict(zip(RUN_COLUMNS, row)) for row in self.store.rows(query, {})]
        try:
            texts = ("seconds", "details")
            return [TuningRun(**row | {name: json.loads(row[name]) for name in texts}) for row in found]
        except (ValueError, TypeError) as error:
            raise DatabaseError(f"{self.name}: a run is damaged: {error}") from error

    @check_arguments
    def choices(self, target: Target | str | None = None, model: str | None = None) -> list[Choice]:
        """By which kernels models run their programs, the oldest first."""
        where, values = condition(None, target, model=model)
        return self._choices(where, values, "created, workload, model")

    @check_arguments
    def choice(self, program: Program | str, target: Target | str, model: str = "") -> Choice | None:
        """What a model runs a program by; what was last found for another, if nothing is known of this."""
        where, values = condition(program, target)
        order = "(r.model = :model) DESC, created DESC, r.model"
        return next(iter(self._choices(where, values | {"model": model}, order, 1)), None)

    def _choices(
        self, where: str, values: dict[str, Any], order: str, limit: int | None = None
    ) -> list[Choice]:
        if "choices" in self.store.missing:
            return []
        query = f"""SELECT {", ".join(CHOICE_COLUMNS)} FROM {self.store.schema}choices AS r
            WHERE {where} ORDER BY {order} {PAGING}"""
        found = [dict(zip(CHOICE_COLUMNS, row)) for row in self.store.rows(query, values | paging(limit, 0))]
        try:
            return [Choice(**row | {"seconds": json.loads(row["seconds"])}) for row in found]
        except (ValueError, TypeError) as error:
            raise DatabaseError(f"{self.name}: a choice is damaged: {error}") from error

    def run_counts(self) -> dict[str, int]:
        """How many trials each run has recorded; leaders that were measured again do not count."""
        query = f"SELECT run, count(*) FROM {self.store.schema}records WHERE NOT confirmed GROUP BY run"
        return dict(self.store.rows(query, {}))

    def position(self) -> tuple[int, float]:
        """Changes whenever something is added: the last record's position, the last news of a run."""
        schema = self.store.schema
        ((last,),) = self.store.rows(f"SELECT max(id) FROM {schema}records", {})
        if "runs" in self.store.missing:
            return last or 0, 0.0
        ((updated,),) = self.store.rows(f"SELECT max(updated) FROM {schema}runs", {})
        return last or 0, updated or 0.0

    @check_arguments
    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all records as JSON lines; returns how many."""
        records = self.records()  # first: the programs of all of them are then there
        workloads = {w.hash: w for w in self.workloads()}
        lines.write(Path(path), [(workloads[r.workload], r) for r in records])
        return len(records)

    def _pages(self) -> Iterator[list[Record]]:
        page, position = self.records_since(0, limit=PAGE)
        while page:
            yield page
            page, position = self.records_since(position, limit=PAGE)

    def _select(
        self, where: str, values: Mapping[str, Any], order: str, limit: int | None = None, offset: int = 0
    ) -> list[tuple[int, Record]]:
        """Records, each with its position."""
        query = f"""SELECT id, {", ".join(COLUMNS)} FROM {self._records} AS r WHERE {where}
            ORDER BY {order} {PAGING}"""
        rows = self.store.rows(query, {**values, **paging(limit, offset)})
        found = [(position, dict(zip(COLUMNS, row))) for position, *row in rows]
        self._load_sketches({row["sketch"] for _, row in found} - {None})
        return [(position, self._record(row)) for position, row in found]

    def _record(self, row: dict[str, Any]) -> Record:
        if row["sketch"] is not None:  # a lost one: an error of this record, when its trace is read
            row["sketch"] = self._sketches.get(row["sketch"], "")
        try:
            row |= {"times": tuple(json.loads(row["times"])), "confirmed": bool(row["confirmed"])}
            return Record(**row)
        except (ValueError, TypeError) as error:
            raise DatabaseError(f"{self.name}: record {row['uid']} is damaged: {error}") from error

    def _load_sketches(self, hashes: set[str]) -> None:
        for names, values in batches(hashes - set(self._sketches)):
            query = f"SELECT hash, text FROM {self.store.schema}sketches WHERE hash IN ({names})"
            self._sketches.update(self.store.rows(query, values))  # pyright: ignore


def condition(
    program: Program | str | None, target: Target | str | None, **others: str | None
) -> tuple[str, dict[str, str]]:
    """What is asked of records: the text, and its values."""
    wanted = {"workload": program and workload_of(program), "target": target and key_of(target), **others}
    given = {column: value for column, value in wanted.items() if value is not None}
    return " AND ".join(["TRUE", *(f"r.{column} = :{column}" for column in given)]), given


def paging(limit: int | None, offset: int) -> dict[str, int]:
    """The values of PAGING."""
    return {"limit": NO_LIMIT if limit is None else limit, "offset": offset}


def batches(values: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Names for a list in a query, and their values, as many as one query takes."""
    every = sorted(values)
    for at in range(0, len(every), AT_ONCE):
        named = {f"v{n}": value for n, value in enumerate(every[at : at + AT_ONCE])}
        yield ", ".join(f":{name}" for name in named), named


def columns(row: Record | TuningRun | Choice) -> dict[str, Any]:
    return {f.name: getattr(row, f.name) for f in fields(row)}


def digest(sketch: str) -> str:
    return hashlib.blake2b(sketch.encode(), digest_size=16).hexdigest()
