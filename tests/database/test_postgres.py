"""What only a server can do: vanish, come back, refuse a user, be shared by processes that start together."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.database import Counts, Database, DatabaseError
from metaschedule.database import postgres as store
from metaschedule.database.schema import OBJECTS
from tests.database.examples import PROGRAM, TARGET, WORKLOAD, failed, ok
from tests.database.test_processes import trials, writer
from tests.postgres import Server


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.create_database()


def filled(url: str) -> Database:
    db = ms.database.open(url)
    db.add_program(PROGRAM)
    return db


def test_a_batch_is_one_round_trip(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    sent: list[Any] = []
    execute = psycopg.Connection.execute
    with filled(url) as db:
        monkeypatch.setattr(
            psycopg.Connection, "execute", lambda *a, **k: sent.append(a[1]) or execute(*a, **k)
        )
        assert db.add_all([ok(trial=n) for n in range(64)]) == Counts(64, 0)
    assert len(sent) == 1  # and outside of a transaction, so nothing else is sent


def test_four_processes_create_the_tables_and_write(url: str) -> None:
    writers = {run: writer(url, run, count=50) for run in "abcd"}
    for process in writers.values():
        process.communicate()
        assert process.returncode == 0
    for run in writers:
        assert trials(url, run) == list(range(50))


def test_readers_never_pass_over_a_record(url: str) -> None:
    """Ids become visible in order, whoever writes."""
    writers = [writer(url, run, count=100) for run in "ab"]
    seen: list[str] = []
    position = 0
    with ms.database.open(url) as db:
        while any(process.poll() is None for process in writers):
            news, position = db.records_since(position)
            seen += [record.uid for record in news]
        seen += [record.uid for record in db.records_since(position)[0]]
        assert seen == [record.uid for record in db.records()]
    assert len(seen) == 200
    for process in writers:
        process.communicate()


def test_terminated_backends_cost_nothing(postgres: Server, url: str) -> None:
    with filled(url) as db:
        for trial in range(5):
            postgres.terminate_backends()
            db.add(ok(trial=trial))
            postgres.terminate_backends()
            assert db.count() == trial + 1
        assert [r.trial for r in db.records()] == list(range(5))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_comes_back(
    postgres: Server, url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer does not notice, but for the time and a line in the log."""
    with filled(url) as db:
        db.add(ok(trial=0))
        getattr(postgres, how)()
        restart = threading.Timer(0.5, postgres.start)
        restart.start()
        try:
            db.add_all([ok(trial=n) for n in (1, 2)])
        finally:
            restart.join()
        assert [r.trial for r in db.records()] == [0, 1, 2]
    assert caplog.text.count("trying again") == 1


def test_killed_while_many_are_written(postgres: Server, url: str) -> None:
    """Whenever it dies, a batch is stored once: what was sent and not answered is sent again."""
    with filled(url) as db:
        done = threading.Event()

        def trouble() -> None:
            while not done.wait(0.15):
                postgres.kill()
                postgres.start()

        thread = threading.Thread(target=trouble)
        thread.start()
        try:
            for batch in range(40):
                db.add_all([ok(trial=4 * batch + n) for n in range(4)])
        finally:
            done.set()
            thread.join()
        assert [r.trial for r in db.records()] == list(range(160))


def test_an_answer_that_is_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is stored, and the connection breaks before anybody is told."""
    with filled(url) as db:
        import psycopg

        execute, lost = psycopg.Connection.execute, []

        def lose_answer(connection: Any, *arguments: Any) -> Any:
            result = execute(connection, *arguments)
            if not lost:
                lost.append(True)
                connection.close()
                raise psycopg.OperationalError("connection reset")
            return result

        monkeypatch.setattr(psycopg.Connection, "execute", lose_answer)
        records = [ok(trial=n) for n in range(3)]
        assert db.add_all(records).present == 3
        assert lost
        assert db.records() == records


def test_a_server_that_stays_away(postgres: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.3)
    with filled(url) as db:
        db.add(ok())
        postgres.stop()
        with pytest.raises(DatabaseError, match="no answer for 0.3 s; what was stored before is safe"):
            db.add(ok())
        with pytest.raises(DatabaseError, match="does not answer; check the address"):
            ms.database.open(url)
        postgres.start()
        assert db.count() == 1


def test_a_forked_process_has_a_connection_of_its_own(url: str) -> None:
    with filled(url) as db:
        db.add(ok(trial=0))
        child = os.fork()
        if child == 0:
            try:
                db.add(ok(trial=1))
                db.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        db.add(ok(trial=2))
        assert [r.trial for r in db.records()] == [0, 1, 2]


# --- rights ---


@pytest.fixture
def reader(postgres: Server, url: str) -> Iterator[str]:
    """The address for a user who may only read."""
    filled(url).close()
    postgres.execute("CREATE ROLE reader LOGIN")
    for right in ("USAGE ON SCHEMA metaschedule", "SELECT ON ALL TABLES IN SCHEMA metaschedule"):
        postgres.execute(f"GRANT {right} TO reader", url)
    yield url.replace("owner@", "reader@")
    postgres.execute("DROP OWNED BY reader", url)
    postgres.execute("DROP ROLE reader")


def test_a_user_who_may_only_read(url: str, reader: str) -> None:
    with filled(url) as db:
        db.add(ok(2.0))
    with ms.database.open(reader) as db:
        best = db.best(PROGRAM, TARGET)
        assert best is not None
        assert best.latency == 2.0
        for write in (lambda: db.add(ok()), lambda: db.add_program(PROGRAM), lambda: db.prune()):
            with pytest.raises(DatabaseError, match="this user may not do that; ask its owner for GRANT"):
                write()
        assert db.count() == 1
    with ms.database.open(url, readonly=True) as db, pytest.raises(DatabaseError, match="read-only, because"):
        db.add(ok())


def test_the_users_of_the_guide(postgres: Server) -> None:
    guide = (Path(ms.__file__).parent.parent / "docs" / "cluster.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
    first, second = re.split(r"--.*\n", block)
    for statement in first.split(";")[:-1]:
        postgres.execute(statement)
    tuner, reader = postgres.url("tuning", "tuner"), postgres.url("tuning", "reader")
    try:
        with filled(tuner) as db:
            db.add(ok())
        postgres.execute(second, postgres.url("tuning"))
        with ms.database.open(reader) as db:
            assert db.best(PROGRAM, TARGET) is not None
            with pytest.raises(DatabaseError, match="GRANT"):
                db.add(ok())
        for text in ("INDEX records_by_rank", "TABLE runs"):
            postgres.execute("DROP " + text.replace(" ", " metaschedule."), tuner)
        filled(tuner).close()  # makes them again, and the reader may read them
        with ms.database.open(reader) as db:
            assert db.runs() == []
    finally:
        postgres.execute("DROP DATABASE tuning WITH (FORCE)")
        postgres.execute("DROP ROLE tuner, reader")


def test_tables_that_a_reader_may_not_bring_up_to_date(postgres: Server, url: str, reader: str) -> None:
    with filled(url) as db:
        db.add(ok(2.0, disturbed=0.5))
    for text in ("INDEX metaschedule.records_by_rank", "TABLE metaschedule.runs"):
        postgres.execute(f"DROP {text}", url)
    postgres.execute("ALTER TABLE metaschedule.records DROP COLUMN disturbed, DROP COLUMN predicted", url)
    postgres.execute("GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA metaschedule TO reader", url)
    for readonly in (False, True):
        with ms.database.open(reader, readonly=readonly) as db:
            (record,) = db.records()
            assert (record.disturbed, record.predicted) == (0.0, None)
            assert db.best(PROGRAM, TARGET) == record
            assert db.runs() == []
            with pytest.raises(DatabaseError, match="tables older than this|read-only"):
                db.add(ok())
    with ms.database.open(url) as db:  # their owner
        db.add(ok(1.0, disturbed=0.25))
        assert [r.disturbed for r in db.records()] == [0.0, 0.25]
    postgres.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA metaschedule TO reader", url)
    with ms.database.open(reader) as db:
        db.add(ok(1.0))


def test_a_user_who_may_not_create(postgres: Server, reader: str) -> None:
    empty = postgres.create_database()
    mine = empty.replace("owner@", "reader@")
    with pytest.raises(DatabaseError, match="no tuning records there, and this user may not create them"):
        ms.database.open(mine)
    with pytest.raises(DatabaseError, match="no tuning records there; check the address"):
        ms.database.open(mine, readonly=True)
    postgres.execute("CREATE SCHEMA metaschedule AUTHORIZATION reader", empty)
    with filled(mine) as db:
        db.add(ok())
    postgres.execute("DROP OWNED BY reader", empty)


def test_tables_of_others_and_of_the_future(postgres: Server, url: str) -> None:
    filled(url).close()
    postgres.execute("COMMENT ON SCHEMA metaschedule IS 'tuning records, version 7'", url)
    with pytest.raises(DatabaseError, match="tables of version 7, .* knows up to 1; use the newer"):
        ms.database.open(url)
    other = postgres.create_database()
    postgres.execute("CREATE TABLE public.records (x int)", other)  # concerns nobody
    filled(other).close()
    third = postgres.create_database()
    postgres.execute("CREATE SCHEMA metaschedule", third)
    postgres.execute("CREATE TABLE metaschedule.records (x int)", third)
    with pytest.raises(DatabaseError, match="of another application; choose another database"):
        ms.database.open(third)


def test_later_objects_are_added_once_by_whoever_comes_first(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(url).close()
    monkeypatch.setitem(OBJECTS, "records.later", "ALTER TABLE {schema}records ADD COLUMN later TEXT")
    monkeypatch.setitem(OBJECTS, "of_later", "CREATE INDEX of_later ON {schema}records (later)")
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with filled(url) as db:
                db.add(ok())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with ms.database.open(url) as db:
        assert db.count() == 6


def test_an_encoding_that_cannot_hold_a_name(postgres: Server) -> None:
    latin = postgres.create_database("ENCODING 'LATIN1' LOCALE 'C'")
    with filled(latin) as db:
        db.add(failed(detail="café"))
        with pytest.raises(DatabaseError, match="create the database with ENCODING 'UTF8'"):
            db.add(failed(detail="→"))
        assert [r.detail for r in db.records()] == ["café"]


# --- passwords ---

PASSWORD = "s3cret%2Fword"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ann:{PASSWORD}@127.0.0.1:1/db",
        f"postgres://ann:{PASSWORD}@nowhere.invalid/db?connect_timeout=1",
        f"postgresql://127.0.0.1:1/db?user=ann&password={PASSWORD}",
        "postgresql://ann:s3cret/word@127.0.0.1/db",
        "postgresql://ann:s3cret@word@127.0.0.1/db",
        "postgresql://ann:s3cret%zzword@127.0.0.1/db",
        "postgresql://ann:s3cret%zzword@127.0.0.1/db?port=none",
        "postgresql://ann:s3cret\0word@127.0.0.1/db",
    ],
)
def test_passwords_are_not_in_errors(address: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg")
    caplog.set_level(logging.DEBUG)
    with pytest.raises((DatabaseError, ValueError)) as caught:
        ms.database.open(address)
    error: BaseException | None = caught.value
    while error is not None:
        for part in ("s3cret", "word@", "%2Fword", "zzword"):
            assert part not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "s3cret" not in caplog.text


def test_passwords_that_are_given_elsewhere(
    postgres: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By PGPASSWORD, a password file, a service file; a wrong one is not shown."""
    name = url.partition("@/")[2].partition("?")[0]
    postgres.execute("DROP ROLE IF EXISTS ann")
    postgres.execute("CREATE ROLE ann LOGIN SUPERUSER PASSWORD 's3cret'")
    rules = postgres.directory / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all ann scram-sha-256\n" + before)
    postgres.execute("SELECT pg_reload_conf()")
    mine = postgres.url(name, "ann")
    try:
        with pytest.raises(DatabaseError, match="no password supplied"):  # noqa: PT012
            for _ in range(1000):  # until the rule is in force
                ms.database.open(mine).close()
                time.sleep(0.01)
        monkeypatch.setenv("PGPASSWORD", "wr0ng")
        with pytest.raises(DatabaseError, match="password authentication failed") as caught:
            ms.database.open(mine)
        assert "wr0ng" not in str(caught.value)
        monkeypatch.setenv("PGPASSWORD", "s3cret")
        ms.database.open(mine).close()
        monkeypatch.delenv("PGPASSWORD")
        passwords = tmp_path / "pgpass"
        passwords.write_text(f"*:*:{name}:ann:s3cret\n")
        passwords.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passwords))
        ms.database.open(mine).close()
        monkeypatch.delenv("PGPASSFILE")
        services = tmp_path / "services"
        services.write_text(
            f"[tuning]\nhost={postgres.directory}\ndbname={name}\nuser=ann\npassword=s3cret\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        with ms.database.open("postgresql://?service=tuning") as db:
            assert db.name == "postgresql://?service=tuning"
            db.add_program(PROGRAM)
        with ms.database.open(mine.replace("ann@", "ann:s3cret@")) as db:
            assert "ann:***@" in db.name
            assert WORKLOAD in {w.hash for w in db.workloads()}
    finally:
        rules.write_text(before)
        postgres.execute("SELECT pg_reload_conf()")


def test_a_path_is_no_address() -> None:
    with pytest.raises(DatabaseError, match="must be a string, not a path"):
        ms.database.open(Path("postgresql://host/db"))


def test_without_psycopg_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
import metaschedule as ms
try:
    ms.database.open("postgresql://ann:s3cret@host/db")
except ms.database.DatabaseError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert done.stdout == (
        'postgresql://ann:***@host/db: PostgreSQL needs psycopg 3; pip install "metaschedule[postgres]"\n'
    )
