"""Scripts, traces, databases and saved kernels that were damaged or made up: an error that says so, or the
right result; never a crash, and nothing is executed that a digest does not cover."""

from __future__ import annotations

import functools
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule.database import DatabaseError, Record
from metaschedule.runtime import StorageError
from metaschedule.schedule import Schedule, Trace, TraceError
from tests.conftest import LONG

CASES = (10, 50)  # of an example: at a glance, in the long run
PROGRAM = ms.workloads.create("GMM", b=1, n=6, m=4, k=8)
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    2,
    2**63,
    10**30,
    1.5,
    "x",
    "b0",
    [],
    [[]],
    {},
    {"rv": "b0"},
    {"rv": []},
]

WORDS = ["10**18", "-1", "(", "T", "0", "i", "1e999", "'a'", "lambda: 0"]


def sketch() -> Trace:
    sch = Schedule(PROGRAM, seed=1)
    block = sch.get_block("matmul")
    _, i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_tile(i, 2))
    sch.split(j, sch.sample_perfect_tile(j, 2))
    sch.annotate(block, "note", [1, "x"])
    sch.reorder(i0, k, i1)
    sch.cache_read(block, 0, "local")
    return sch.trace


def mutated(value: Any, rng: random.Random) -> Any:
    """JSON data with one place changed."""
    if isinstance(value, list) and value and rng.random() < 0.9:
        at, new = rng.randrange(len(value)), list(value)
        way = rng.randrange(6)
        if way == 0:
            del new[at]
        elif way == 1:
            new.insert(at, rng.choice(value))
        else:
            new[at] = mutated(value[at], rng)
        return new
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(value[key], rng)}
    return rng.choice(JUNK)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some bits turned over, cut short, or with a piece of them repeated."""
    way, new = rng.randrange(4), bytearray(data)
    if way == 0:
        return data[: rng.randrange(len(data))]
    if way == 1:
        at = rng.randrange(len(data))
        return data[:at] + data[rng.randrange(len(data)) :][: rng.randrange(200)] + data[at:]
    for _ in range(rng.choice((1, 1, 4, 50))):
        new[rng.randrange(len(new))] ^= 1 << rng.randrange(8)
    return bytes(new)


def try_trace(rng: random.Random) -> None:
    data = TRACE
    for _ in range(rng.choice((1, 1, 2, 5))):
        data = mutated(data, rng)
    text = json.dumps(data)
    if rng.random() < 0.2:
        text = flipped(text.encode(), rng).decode(errors="replace")
    try:
        trace = Trace.from_json(text)
        assert Trace.from_json(trace.to_json()) == trace
        trace.apply(PROGRAM)
        trace.apply(PROGRAM, rng=0)
    except (TraceError, ms.ScheduleError):
        pass


def try_script(rng: random.Random) -> None:
    text = flipped(SCRIPT.encode(), rng).decode(errors="replace")
    if rng.random() < 0.5:
        word = rng.choice(SCRIPT.split())
        text = SCRIPT.replace(word, rng.choice(WORDS), 1)
    try:
        program = ms.parse(text)
        assert ms.structural_equal(ms.parse(str(program)), program)
    except (ms.ScriptError, ms.VerifyError):
        pass


def try_kernel(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel"
        data = flipped(kernel_file(), rng)
        if data == kernel_file():
            return
        path.write_bytes(data)
        with pytest.raises(StorageError):
            ms.runtime.load(path)


def try_lines(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        text = lines_file()
        if rng.random() < 0.7:
            rows = text.splitlines()
            at = rng.randrange(len(rows))
            rows[at] = json.dumps(mutated(json.loads(rows[at]), rng))
            path.write_text("\n".join(rows) + "\n")
        else:
            path.write_bytes(flipped(text.encode(), rng))
        db = ms.database.open(None)
        try:
            db.import_(path)
            read_all(db)
        except DatabaseError:
            pass


def try_database(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuning.db"
        path.write_bytes(flipped(database_file(), rng))
        try:
            with ms.database.open(path, readonly=True) as db:
                read_all(db)
        except DatabaseError:
            pass


def read_all(db: ms.database.Database) -> None:
    for record in db.records():
        try:
            if record.trace is not None:
                record.trace.apply(PROGRAM)
        except (TraceError, ms.ScheduleError):
            pass
    db.best(PROGRAM, "x86_64:c4")


TRACE = json.loads(sketch().to_json())
SCRIPT = str(sketch().apply(PROGRAM).program)


@functools.cache
def kernel_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel"
        ms.build(Schedule(PROGRAM)).save(path)
        return path.read_bytes()


def filled(db: ms.database.Database) -> None:
    workload = db.add_program(PROGRAM)
    for n in range(5):
        db.add(Record.of(workload, "x86_64:c4", sketch(), "ok", latency=1e-6 * (n + 1), seed=n))


@functools.cache
def lines_file() -> str:
    with tempfile.TemporaryDirectory() as folder, ms.database.open(None) as db:
        filled(db)
        db.export(Path(folder) / "records.jsonl")
        return (Path(folder) / "records.jsonl").read_text()


@functools.cache
def database_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuning.db"
        with ms.database.open(path) as db:
            filled(db)
        return path.read_bytes()


TRIES = [try_trace, try_script, try_kernel, try_lines, try_database]


@pytest.mark.parametrize("attempt", TRIES, ids=lambda f: f.__name__)
@given(st.integers(0, 2**32))
def test_damaged_files_are_refused_or_right(attempt: Callable[[random.Random], None], seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(CASES[LONG["long"]] if attempt is not try_database else 1):
        attempt(rng)
