"""Records go in and come out as they were: in memory, in a file, between files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule.database import Choice, Counts, Database, DatabaseError, Record, TuningRun
from metaschedule.database import database as databases
from metaschedule.database import postgres as postgres_store
from metaschedule.database.postgres import Postgres
from metaschedule.database.schema import Rows
from metaschedule.database.sqlite import SQLite
from metaschedule.schedule import TraceError
from tests.database.examples import PROGRAM, TARGET, WORKLOAD, candidate, failed, ok
from tests.postgres import Server

KINDS = ["memory", "file", "postgres"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path | None:
    """Where a new database can be."""
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        return server.create_database()
    return None if request.param == "memory" else tmp_path / "tuning.db"


@pytest.fixture
def db(place: str | Path | None) -> Iterator[Database]:
    with ms.database.open(place) as db:
        db.add_program(PROGRAM)
        yield db


def execute(db: Database, statement: str) -> Any:
    """Behind the database's back."""
    if isinstance(db.store, SQLite):
        return db.store.connection.execute(statement).fetchall()
    assert isinstance(db.store, Postgres)
    cursor = db.store._connection.execute(statement)  # pyright: ignore
    return cursor.fetchall() if cursor.description else []


integers = st.none() | st.integers(-(2**63), 2**63 - 1)
seconds = st.floats(0, 1e300)
common = {
    "times": st.lists(seconds, max_size=4).map(tuple),
    "detail": st.text(),
    "confirmed": st.booleans(),
    "space": st.text(),
    "seed": integers,
    "trial": integers,
    "run": st.text(),
    "created": seconds,
    "elapsed": st.none() | seconds,
    "predicted": st.none() | st.floats(-1e300, 1e300),
    "version": st.text(),
}
records = st.builds(
    Record.of,
    st.just(WORKLOAD),
    st.text(),
    st.none() | st.integers(0, 5).map(candidate),
    st.just("ok"),
    latency=seconds,
    **common,
) | st.builds(
    Record.of, st.just(WORKLOAD), st.text(), st.none(), st.text().filter(lambda s: s != "ok"), **common
)


@given(rows=st.lists(records, max_size=5, unique_by=lambda r: r.uid))
def test_records_return_as_they_were_and_in_order(db: Database, rows: list[Record]) -> None:
    before = db.count()
    assert db.add_all(rows) == Counts(len(rows), 0)
    found = db.records(offset=before)
    assert found == rows
    assert [r.trace for r in found] == [r.trace for r in rows]
    for row in rows:
        assert row in db.records(target=row.target, outcome=row.outcome, space=row.space, run=row.run)


def test_a_file_keeps_records_for_the_next_process(tmp_path: Path) -> None:
    records = [ok(times=(1e-3, 2e-3), seed=7), failed(detail="signal 11")]
    with ms.database.open(tmp_path / "tuning.db") as db:
        db.add_program(PROGRAM)
        db.add_all(records)
    assert [p.name for p in tmp_path.iterdir()] == ["tuning.db"]
    with ms.database.open(str(tmp_path / "tuning.db")) as db:
        assert db.records() == records


def test_the_stored_trace_rebuilds_the_candidate(db: Database) -> None:
    db.add(Record.of(PROGRAM, TARGET, candidate(seed=3), "ok", latency=1.0))
    trace = db.records()[0].trace
    assert trace is not None
    assert trace == candidate(seed=3)
    assert ms.structural_equal(trace.apply(PROGRAM).program, candidate(seed=3).apply(PROGRAM).program)


def test_a_sketch_is_stored_once(db: Database) -> None:
    traces = [candidate(seed) for seed in range(20)]
    assert len(set(traces)) > 10
    db.add_all([Record.of(PROGRAM, TARGET, trace, "ok", latency=1.0) for trace in traces])
    assert execute(db, f"SELECT count(*) FROM {db.store.schema}sketches") == [(1,)]
    assert [r.trace for r in db.records()] == traces


def test_ten_thousand_records_are_a_small_file_and_list_without_their_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuning.db"
    record = ok(times=(0.12345678901234567,) * 5)
    with ms.database.open(path) as db:
        db.add_program(PROGRAM)
        db.add_all([replace(record, uid=f"{n:032}", trial=n) for n in range(10_000)])
    assert path.stat().st_size < 6_000_000
    monkeypatch.delattr(ms.Trace, "from_json")
    with ms.database.open(path) as db:
        assert [r.trial for r in db.records()] == list(range(10_000))


def test_filters(db: Database) -> None:
    other = ms.workloads.create("GMM", b=1, n=8, m=8, k=8)
    first = ok(space="cpu")
    second = failed("timeout", space="cpu")
    third = replace(ok(), target=TARGET.with_cores(1).key)
    fourth = Record.of(other, TARGET, None, "ok", latency=1.0)
    assert db.add_program(other) == fourth.workload
    db.add_all([first, second, third, fourth])
    assert db.records(PROGRAM) == db.records(WORKLOAD) == [first, second, third]
    assert db.records(target=TARGET) == db.records(target=TARGET.key) == [first, second, fourth]
    assert db.records(PROGRAM, TARGET, outcome="ok") == [first]
    assert db.records(space="cpu") == [first, second]
    assert db.records(space="") == [third, fourth]


def test_the_same_structure_under_other_names_is_the_same_workload(db: Database) -> None:
    db.add(ok())
    assert db.best(replace(PROGRAM, name="renamed"), TARGET) is not None
    db.add_program(replace(PROGRAM, name="renamed"))
    (workload,) = db.workloads()
    assert workload.name == PROGRAM.name


def test_a_workload_can_be_read_back(db: Database) -> None:
    (workload,) = db.workloads()
    assert workload.hash == ms.structural_hash(ms.parse(workload.script)) == WORKLOAD


def test_best_prefers_what_was_confirmed(db: Database) -> None:
    assert db.best(PROGRAM, TARGET) is None
    db.add_all([failed(), ok(3.0), ok(2.0), ok(4.0)])
    best = db.best(PROGRAM, TARGET)
    assert best is not None
    assert best.latency == 2.0
    db.add_all([ok(2.6, confirmed=True), ok(2.5, confirmed=True)])
    best = db.best(PROGRAM, TARGET)
    assert best is not None
    assert best.latency == 2.5
    assert db.best(PROGRAM, TARGET.with_cores(1)) is None


def test_best_prefers_what_was_not_disturbed(db: Database) -> None:
    db.add_program(PROGRAM)
    db.add_all([ok(1e-3, confirmed=True, disturbed=1.0), ok(3e-3, disturbed=0.9), ok(4e-3, disturbed=1.0)])
    best = db.best(PROGRAM, TARGET)
    assert best is not None
    assert (best.latency, best.disturbed, best.reliable) == (3e-3, 0.9, True)
    db.add(ok(5e-3, confirmed=True, disturbed=0.5))
    assert db.best(PROGRAM, TARGET) == db.records()[-1]


def test_a_record_needs_its_program(place: str | Path | None) -> None:
    db = ms.database.open(place)
    with pytest.raises(DatabaseError, match="call add_program"):
        db.add(ok())
    db.add_program(PROGRAM)
    db.add(ok())
    db.close()


def test_all_or_none(db: Database) -> None:
    with pytest.raises(DatabaseError, match="call add_program"):
        db.add_all([ok(), replace(ok(), workload="unknown")])
    assert db.records() == []


def test_a_damaged_trace_is_an_error_of_its_record_only(db: Database) -> None:
    damaged = [
        replace(ok(), sketch=""),
        replace(ok(), sketch="{"),
        replace(ok(), sketch='["no trace"]'),
        replace(ok(), decisions="[]"),
        replace(ok(), decisions="17"),
        replace(ok(), sketch=(ok().sketch or "").replace("sample_tile", "unheard_of")),
    ]
    db.add_all([*damaged, ok()])
    *bad, good = db.records()
    assert bad == damaged
    for record in bad:
        with pytest.raises(TraceError):
            _ = record.trace
    assert good.trace == candidate()


def test_a_damaged_row_is_named(db: Database) -> None:
    record = ok()
    db.add(record)
    execute(db, f"UPDATE {db.store.schema}records SET times = 'soon'")
    with pytest.raises(DatabaseError, match=f"record {record.uid} is damaged"):
        db.records()


def test_a_lost_sketch_is_an_error_of_its_records_only(db: Database) -> None:
    db.add_all([ok(), failed()])
    lasting = isinstance(db.store, Postgres)
    execute(db, "SET session_replication_role = replica" if lasting else "PRAGMA foreign_keys = OFF")
    execute(db, f"DELETE FROM {db.store.schema}sketches")
    first, second = db.records()
    with pytest.raises(TraceError, match=f"record {first.uid}: the stored trace is damaged"):
        _ = first.trace
    assert second.trace is None


def test_merge_adds_what_is_missing_and_only_once(db: Database, tmp_path: Path) -> None:
    mine, shared, theirs = ok(1.0), ok(2.0), ok(3.0)
    db.add_all([mine, shared])
    with ms.database.open(tmp_path / "other.db") as other:
        other.add_program(PROGRAM)
        other.add_all([shared, theirs])
    assert db.merge(tmp_path / "other.db") == Counts(added=1, present=1)
    assert db.merge(tmp_path / "other.db") == Counts(added=0, present=2)
    assert db.records() == [mine, shared, theirs]
    with pytest.raises(DatabaseError, match="no tuning database there"):
        db.merge(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


def test_merge_brings_runs_and_more_than_a_page(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "PAGE", 3)
    monkeypatch.setattr(postgres_store, "CHUNK", 2)
    records = [ok(float(n), run="r", trial=n) for n in range(8)]
    with ms.database.open(tmp_path / "other.db") as other:
        other.add_program(PROGRAM)
        other.add_all(records, TuningRun("r", WORKLOAD, TARGET.key, "", 0, "c", updated=1.0))
        assert db.merge(other) == Counts(added=8, present=0)
        assert db.merge(other) == Counts(added=0, present=8)
        assert db.records() == records
        assert db.runs() == other.runs() != []
        assert db.workloads() == other.workloads()


def test_a_run_is_stored_with_its_records_and_the_latest_counts(db: Database) -> None:
    run = TuningRun("r", WORKLOAD, TARGET.key, "s", 3, "c", "Model", 2.0, 64, None, 10.0, 20.0, {"run": 1.5})
    db.add_all([ok(run="r")], run)
    assert db.runs() == [run]
    later = replace(run, updated=30.0, seconds={"run": 3.0}, stopped="interrupted", untuned=2e-3)
    db.add_all([], later)
    db.add_all([], replace(run, updated=25.0))
    assert db.runs() == [later]
    assert len(db.records(run="r")) == 1
    with pytest.raises(DatabaseError, match="call add_program"):
        db.add_all([ok()], replace(run, uid="q", workload="unknown"))
    assert db.count() == 1


def test_pages(db: Database) -> None:
    records = [ok(float(n), trial=n) for n in range(7)]
    db.add_all(records)
    assert db.count() == db.count(PROGRAM, TARGET) == 7
    assert db.records(limit=3) == records[:3]
    assert db.records(limit=3, offset=3) == records[3:6]
    assert db.records(limit=3, offset=6) == records[6:]
    assert db.records(limit=0) == db.records(offset=7) == []
    first, position = db.records_since(0, limit=4)
    assert first == records[:4]
    rest, position = db.records_since(position, PROGRAM, TARGET)
    assert rest == records[4:]
    assert db.records_since(position) == ([], position)
    db.add(records[0])
    news = ok(9.0)
    db.add_all([records[1], news])
    assert db.records_since(position)[0] == [news]
    assert [r.latency for r in db.ranked(PROGRAM, TARGET, limit=2, offset=1)] == [1.0, 2.0]


def test_summaries(db: Database) -> None:
    other = ms.workloads.create("GMM", b=1, n=8, m=8, k=8)
    db.add_program(other)
    slower = TARGET.with_cores(1)
    db.add(Record.of(other, TARGET, None, "ok", latency=1.0))
    db.add_all([ok(3.0), ok(2.0), failed(), ok(2.5, confirmed=True)])
    db.add(replace(failed("timeout"), target=slower.key))
    first, second, third = db.summaries()
    assert (first.name, first.target, first.outcomes) == (PROGRAM.name, TARGET.key, {"ok": 2, "crash": 1})
    assert first.best is not None
    assert first.best.latency == 2.5
    assert (second.target, second.outcomes, second.best) == (slower.key, {"timeout": 1}, None)
    assert third.workload == ms.structural_hash(other)
    assert db.summaries(limit=1, offset=1) == [second]


def candidates(count: int) -> list[ms.Trace]:
    """Different ones."""
    return list(dict.fromkeys(candidate(seed) for seed in range(10 * count)))[:count]


def test_a_candidate_that_failed_once_is_not_ranked(db: Database) -> None:
    fast, slow = candidates(2)
    db.add_all(
        [Record.of(WORKLOAD, TARGET, trace, "ok", latency=t) for trace, t in ((fast, 1.0), (slow, 2.0))]
    )
    db.add(Record.of(WORKLOAD, TARGET.with_cores(1), fast, "crash"))  # elsewhere
    assert [r.trace for r in db.ranked(PROGRAM, TARGET)] == [fast, slow]
    db.add(Record.of(WORKLOAD, TARGET, fast, "wrong"))
    assert [r.trace for r in db.ranked(PROGRAM, TARGET)] == [slow]


def test_prune_keeps_the_records_of_the_fastest_candidates(db: Database) -> None:
    *traces, unlucky = candidates(6)
    other = ms.workloads.create("GMM", b=1, n=8, m=8, k=8)
    db.add_program(other)
    lone = Record.of(other, TARGET, None, "ok", latency=1.0)
    trials = [Record.of(WORKLOAD, TARGET, t, "ok", latency=1.0 + n) for n, t in enumerate(traces)]
    again = Record.of(WORKLOAD, TARGET, traces[3], "ok", latency=3.9, confirmed=True)
    elsewhere = replace(trials[4], uid="e", target="elsewhere")
    doubtful = [Record.of(WORKLOAD, TARGET, unlucky, "ok", latency=0.1)]
    doubtful.append(Record.of(WORKLOAD, TARGET, unlucky, "wrong"))
    db.add_all([*trials, again, elsewhere, lone, *doubtful, failed()])
    best = db.best(PROGRAM, TARGET)
    assert best == again
    assert db.prune(keep=2) == 3 + 2 + 1
    assert db.records() == [trials[0], trials[3], again, elsewhere, lone]
    assert db.best(PROGRAM, TARGET) == best
    assert best is not None
    assert best.trace == traces[3]
    assert db.prune(keep=1) == 1
    assert db.records(PROGRAM, TARGET) == [trials[3], again]
    assert db.prune(keep=1) == 0
    db.add(trials[0])
    assert db.records()[-1].trace == traces[0]


HOSTILE = [
    "'; DROP TABLE records; --",
    "%s %(x)s :x",
    "<script>alert(1)</script>",
    "a\0b\x1a0",
    "\u202e\U0001f680",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_only_names(db: Database, text: str) -> None:
    record = Record.of(WORKLOAD, text, None, "ok", latency=1.0, detail=text, space=text, run=text)
    db.add(record)
    db.store.insert(Rows([(text, text, text)]))
    assert db.records(target=text, space=text, run=text) == [record]
    assert db.best(PROGRAM, text) == record
    assert db.workloads()[-1] == (text, text, text)
    assert db.summaries()[0].target == text


def test_a_closed_database_is_closed(place: str | Path | None) -> None:
    db = ms.database.open(place)
    db.close()
    db.close()
    with pytest.raises(DatabaseError, match="closed"):
        db.records()


def test_open_passes_databases_through(db: Database) -> None:
    assert ms.database.open(db) is db


def test_threads_share_a_database(db: Database) -> None:
    def write() -> None:
        for _ in range(20):
            db.add(failed())
            assert db.records()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(db.records()) == 80


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outcome": "ok"}, "a latency goes with 'ok'"),
        ({"outcome": "crash", "latency": 1.0}, "a latency goes with 'ok'"),
        ({"outcome": "ok", "latency": float("nan")}, "finite"),
        ({"outcome": "ok", "latency": 1.0, "times": (float("inf"),)}, "finite"),
        ({"outcome": "crash", "seed": 2**63}, "64 bits"),
        ({"outcome": "crash", "sketch": "{}"}, "both or neither"),
    ],
)
def test_records_that_make_no_sense(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Record(**{"workload": WORKLOAD, "target": "t", "sketch": None, "decisions": None, **fields})  # pyright: ignore


def test_a_full_disk_is_reported_and_costs_nothing_stored(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    stored: list[Record] = []
    with ms.database.open(path) as db:
        db.add_program(PROGRAM)
        assert isinstance(db.store, SQLite)
        (pages,) = db.store.connection.execute("PRAGMA page_count").fetchone()
        db.store.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(DatabaseError, match="the disk is full; what was stored before is safe"):  # noqa: PT012
            while True:
                record = failed(detail="x" * 500)
                db.add(record)
                stored.append(record)
        assert stored
        assert db.records() == stored
        db.store.connection.execute("PRAGMA max_page_count = 100000")
        stored.append(ok())
        db.add(stored[-1])
    with ms.database.open(path) as db:
        assert db.records() == stored
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_models_have_chosen(tmp_path: Path) -> None:
    fast, slow = ok(1e-3), ok(2e-3)
    with ms.database.open(tmp_path / "a.db") as db:
        db.add_program(PROGRAM)
        db.add_all([fast, slow])
        assert db.choice(PROGRAM, TARGET) is None
        db.choose([Choice(WORKLOAD, TARGET.key, "m", "record", slow.uid, {"untuned": 3e-3}, created=1.0)])
        db.choose([Choice(WORKLOAD, TARGET.key, "n", "eager", created=2.0)])
        db.choose([Choice(WORKLOAD, TARGET.key, "n", "untuned", created=0.5)])  # older than what is there
        assert [(c.model, c.how) for c in db.choices()] == [("m", "record"), ("n", "eager")]
        chosen = db.choice(PROGRAM, TARGET, "m")
        assert chosen is not None
        assert (chosen.record, chosen.seconds) == (slow.uid, {"untuned": 3e-3})
        last = db.choice(PROGRAM, TARGET, "another")
        assert last is not None
        assert last.how == "eager"
    with ms.database.open(tmp_path / "b.db") as other:
        other.merge(tmp_path / "a.db")
        assert len(other.choices()) == 2
        other.add_all([Record.of(WORKLOAD, TARGET, candidate(5), "ok", latency=1e-9)])
        other.prune(keep=1)
        assert slow.uid in {r.uid for r in other.records()}
    with pytest.raises(ValueError, match="a choice is"):
        Choice(WORKLOAD, TARGET.key, "m", "record")
