"""`Postgres`: records on a PostgreSQL server, which many machines share.

Read `_recover` first: whatever is sent may be sent again, because a record that is there already is left
alone. So a connection that is lost is made again and the work repeated, without losing or doubling anything.

A batch is one statement, hence one round trip and one transaction. Statements that add take turns by an
advisory lock, so that ids are in the order in which they become visible: who has read up to an id has seen
all that came before it.

psycopg is imported when a server is first used.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from ..validation import redact
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
)  # fmt: skip
from .schema import missing_objects as missing_from

if TYPE_CHECKING:
    from psycopg import Connection as PsycopgConnection

    Connection = PsycopgConnection[Any]

log = logging.getLogger("metaschedule")
Result = TypeVar("Result")

SCHEMES = ("postgresql://", "postgres://")
LOCK = 0x4D455441  # "META": of whoever changes tables or adds to them
PATIENCE = 60.0  # seconds to wait for a server that was there
CHUNK = 5_000  # records in a statement
DIALECT = {
    "schema": "metaschedule.",
    "id": "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "order": "rowid BIGINT GENERATED ALWAYS AS IDENTITY, ",
    "by_hash": "USING hash ",
}
# A silent server is noticed within half a minute; what the URL says comes first.
DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "metaschedule",
    "client_encoding": "utf8",
}
TYPES: dict[str, str] = dict.fromkeys(("latency", "created", "disturbed", "elapsed", "predicted"), "float8")
TYPES |= dict.fromkeys(("weight", "minutes", "started", "updated", "untuned"), "float8")
TYPES |= {"seed": "int8", "trial": "int8", "trials": "int8", "confirmed": "bool"}

AGAIN = {"40001", "40P01", "57P01", "57P02", "57P03"}  # serialisation, deadlock, shutdown, crash, starting
MEANING = {
    "23503": "it does not hold the program of this record; call add_program(program) first",
    "25006": "read-only, as a standby is; give the address of the server that takes writes",
    "42501": "this user may not do that; ask its owner for GRANT USAGE ON SCHEMA metaschedule and, on all "
    "tables in it, SELECT to look up, INSERT and UPDATE to tune, DELETE to prune",
    "53100": "the server's disk is full; what was stored before is safe, so make room and go on",
    "53300": "the server has no connection left; try again later, or raise its max_connections",
    "22P05": "its encoding cannot hold this text; create the database with ENCODING 'UTF8'",
}


def is_address(place: object) -> bool:
    """Whether this is the URL of a server, not a file's name."""
    return isinstance(place, str) and place.startswith(SCHEMES)


class Postgres:
    """Safe to share between threads; a forked process gets a connection of its own."""

    schema = DIALECT["schema"]

    def __init__(self, url: str, readonly: bool = False, patience: float | None = None) -> None:
        self.name, self._url, self._readonly = redact(url), url, readonly
        self._patience = PATIENCE if patience is None else patience
        check_password(url)
        try:
            import psycopg
        except ImportError:
            raise DatabaseError(
                f'{self.name}: PostgreSQL needs psycopg 3; pip install "metaschedule[postgres]"'
            ) from None
        self._driver = psycopg
        self._lock = threading.RLock()
        self._process, self._closed = os.getpid(), False
        self._connection: Connection | None = None
        try:
            self._connection = self._connect()
        except psycopg.Error as error:
            raise self._explained(
                error, "does not answer; check the address and that the server runs"
            ) from None
        try:
            self.missing = self._recover(self._prepare)
        except BaseException:
            self.close()
            raise

    # --- reading and writing ---

    def rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        encoded = {name: encode(value) for name, value in values.items()}

        def read(connection: Connection) -> list[tuple[Any, ...]]:
            found = connection.execute(as_percent(query), encoded).fetchall()  # pyright: ignore
            return [tuple(map(decode, row)) for row in found]

        return self._recover(read)

    def insert(self, rows: Rows) -> Counts:
        """A repeated statement counts what the first had stored as present."""
        self._check_writable()
        chunks = [rows.records[at : at + CHUNK] for at in range(0, len(rows.records), CHUNK)] or [[]]
        batches = [rows._replace(records=chunks[0]), *(Rows(records=chunk) for chunk in chunks[1:])]

        def add(connection: Connection) -> int:
            return sum(fetch_row(connection, INSERT, arrays(batch))[0] for batch in batches)

        added = self._recover(add if len(batches) == 1 else in_transaction(add))
        return Counts(added, len(rows.records) - added)

    def delete(self, statements: Iterable[tuple[str, dict[str, Any]]]) -> list[int]:
        """Writers wait meanwhile, so that none refers to what is being deleted."""
        self._check_writable()
        statements = list(statements)

        def work(connection: Connection) -> list[int]:
            connection.execute("LOCK TABLE metaschedule.records IN SHARE ROW EXCLUSIVE MODE")
            return [connection.execute(as_percent(query), values).rowcount for query, values in statements]  # pyright: ignore

        return self._recover(in_transaction(work))

    def close(self) -> None:
        connection, self._connection, self._closed = self._connection, None, True
        if connection is not None and self._process == os.getpid():
            connection.close()

    def _check_writable(self) -> None:
        if self._readonly:
            raise DatabaseError(f"{self.name}: read-only, because it was opened so")
        if self.missing:
            raise DatabaseError(
                f"{self.name}: tables older than this metaschedule, and this user may not change them; "
                "let their owner tune into it once"
            )

    # --- the connection ---

    def _connect(self) -> Connection:
        given = self._driver.conninfo.conninfo_to_dict(self._url)  # pyright: ignore
        unset = {key: value for key, value in DEFAULTS.items() if f"PG{key.upper()}" not in os.environ}
        return self._driver.connect(**{**unset, **given}, autocommit=True, prepare_threshold=None)  # pyright: ignore

    def _recover(self, work: Callable[[Connection], Result]) -> Result:
        """Do something that may be done twice; on another connection, if this one is lost."""
        deadline, pause = 0.0, 0.0
        with self._lock:
            if self._closed:
                raise DatabaseError(f"{self.name}: closed; open it again")
            if self._process != os.getpid():  # the connection is the parent's
                self._connection, self._process = None, os.getpid()
            while True:
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                    return work(self._connection)
                except self._driver.Error as error:
                    if self._connection is not None and self._connection.closed:
                        self._connection = None
                    if self._connection is not None and error.sqlstate not in AGAIN:
                        raise self._explained(error) from None
                    if not deadline:
                        deadline = time.monotonic() + self._patience
                        log.warning("%s: %s; trying again", self.name, self._said(error))
                    if time.monotonic() > deadline:
                        waited = f"no answer for {self._patience:g} s"
                        lost = f"{waited}; what was stored before is safe, go on later"
                        raise self._explained(error, lost) from None
                time.sleep(pause)
                pause = min(1.0, 2 * pause + 0.02)

    def _explained(self, error: Exception, otherwise: str = "cannot be used") -> DatabaseError:
        meaning = MEANING.get(getattr(error, "sqlstate", None) or "", otherwise)
        return DatabaseError(f"{self.name}: {meaning} ({self._said(error)})")

    def _said(self, error: Exception) -> str:
        """The server's words on one line, without a password that they might quote."""
        text = " ".join(redact(str(error)).split())
        for secret in secrets(self._url):
            text = text.replace(secret, "***")
        return text

    # --- the tables ---

    def _prepare(self, connection: Connection) -> list[str]:
        """What is missing, after creating what may be."""
        missing = self._missing(connection)
        if not missing or self._readonly:
            if len(missing) == len(OBJECTS):
                raise DatabaseError(
                    f"{self.name}: no tuning records there; check the address, or tune into it first"
                )
            return missing
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                missing = self._missing(connection)  # another process may have been first
                if len(missing) == len(OBJECTS):
                    create_schema(connection)
                for name in missing:
                    connection.execute(OBJECTS[name].format_map(DIALECT))  # pyright: ignore
            return []
        except (
            self._driver.errors.InsufficientPrivilege,
            self._driver.errors.ReadOnlySqlTransaction,
        ) as error:
            if len(missing) < len(OBJECTS):
                return missing  # what is there can be read
            raise DatabaseError(
                f"{self.name}: no tuning records there, and this user may not create them; let an owner "
                f"tune into it once, or ask for a schema `metaschedule` of your own ({self._said(error)})"
            ) from None

    def _missing(self, connection: Connection) -> list[str]:
        comment, names = fetch_row(connection, PRESENT)
        version = re.fullmatch(r"tuning records, version (\d+)", comment or "")
        check_version(self.name, int(version[1]) if version else 0)
        if names and not version:
            raise DatabaseError(
                f"{self.name}: it has a schema `metaschedule` of another application; choose another database"
            )
        return missing_from(names or [])


PRESENT = """
SELECT (SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'metaschedule'),
       (SELECT array_agg(c.relname::text)
            || coalesce(array_agg('records.' || a.attname) FILTER (WHERE c.relname = 'records'), '{}')
        FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = to_regnamespace('metaschedule'))
"""


def create_schema(connection: Connection) -> None:
    """The schema, or an empty one that a server's administrator has made for this user, is marked as ours."""
    if fetch_row(connection, "SELECT to_regnamespace('metaschedule') IS NULL")[0]:
        connection.execute("CREATE SCHEMA metaschedule")
    connection.execute(f"COMMENT ON SCHEMA metaschedule IS 'tuning records, version {VERSION}'")  # pyright: ignore


def fetch_row(connection: Connection, statement: Any, values: Any = None) -> tuple[Any, ...]:
    """The one row that there is."""
    (row,) = connection.execute(statement, values).fetchall()
    return row


def in_transaction(
    work: Callable[[Connection], Result],
) -> Callable[[Connection], Result]:
    def run(connection: Connection) -> Result:
        with connection.transaction():
            return work(connection)

    return run


# --- statements ---


def insertion(table: str, columns: Sequence[str], conflict: str) -> str:
    """Rows come as an array for each column, whatever their number: the statement stays the same."""
    names = ", ".join(columns)
    values = ", ".join(f"%({table}_{c})s::{TYPES.get(c, 'text')}[]" for c in columns)
    return f"""INSERT INTO metaschedule.{table} ({names})
        SELECT {names} FROM turn, unnest({values}) WITH ORDINALITY AS new ({names}, n) ORDER BY n
        ON CONFLICT {conflict}"""


UPDATES = ", ".join(f"{c} = excluded.{c}" for c in RUN_COLUMNS)
IF_LATER = f"(uid) DO UPDATE SET {UPDATES} WHERE excluded.updated >= runs.updated"
IF_NEWER = f"""(workload, target, model) DO UPDATE SET
    {", ".join(f"{c} = excluded.{c}" for c in CHOICE_COLUMNS)} WHERE excluded.created >= choices.created"""
INSERT = f"""
WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock({LOCK})),
new_workloads AS ({insertion("workloads", ("hash", "name", "script"), "DO NOTHING")}),
new_sketches AS ({insertion("sketches", ("hash", "text"), "DO NOTHING")}),
new_runs AS ({insertion("runs", RUN_COLUMNS, IF_LATER)}),
new_choices AS ({insertion("choices", CHOICE_COLUMNS, IF_NEWER)}),
new_records AS ({insertion("records", COLUMNS, "(uid) DO NOTHING")} RETURNING 1)
SELECT count(*) FROM new_records
"""


def arrays(rows: Rows) -> dict[str, list[Any]]:
    """The values of `INSERT`: of each column, all rows'."""
    workloads = [dict(zip(("hash", "name", "script"), workload)) for workload in rows.workloads]
    sketches = [dict(zip(("hash", "text"), sketch)) for sketch in rows.sketches]
    tables: list[tuple[str, Sequence[str], Any]] = [
        ("workloads", ("hash", "name", "script"), workloads), ("sketches", ("hash", "text"), sketches),
        ("runs", RUN_COLUMNS, rows.runs), ("records", COLUMNS, rows.records),
        ("choices", CHOICE_COLUMNS, rows.choices),
    ]  # fmt: skip
    return {
        f"{table}_{column}": [encode(row[column]) for row in entries]
        for table, columns, entries in tables
        for column in columns
    }


def as_percent(query: str) -> str:
    """`:name` as psycopg writes it.

    >>> as_percent("SELECT 1 WHERE x = :x")
    'SELECT 1 WHERE x = %(x)s'
    """
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", query)


def encode(value: Any) -> Any:
    """PostgreSQL's text holds no NUL: it becomes two characters that nobody writes.

    >>> encode("a\\0b"), decode(encode("a\\0b\\x1a0")) == "a\\0b\\x1a0"
    ('a\\x1a0b', True)
    """
    if isinstance(value, str) and ("\0" in value or "\x1a" in value):
        return value.replace("\x1a", "\x1a1").replace("\0", "\x1a0")
    return value


def decode(value: Any) -> Any:
    if isinstance(value, str) and "\x1a" in value:
        return value.replace("\x1a0", "\0").replace("\x1a1", "\x1a")
    return value


# --- passwords ---


def secrets(url: str) -> list[str]:
    """What must not be printed of a URL, as written and as meant."""
    found = re.findall(r"//[^:/?@]*:(.*)@", url) + re.findall(r"password=([^&]*)", url, re.IGNORECASE)
    return sorted({text for one in found for text in (one, unquote(one)) if text}, key=len, reverse=True)


def check_password(url: str) -> None:
    """libpq reads an odd password as something else, for instance as a port, and then quotes it."""
    if any(set("@/?#[] ") & set(secret) for secret in re.findall(r"//[^:/?@]*:(.*)@", url)):
        raise DatabaseError(
            f"{redact(url)}: a password in an address has @ as %40, / as %2F, ? as %3F, # as %23; "
            "better is PGPASSWORD, ~/.pgpass or a service file"
        )
