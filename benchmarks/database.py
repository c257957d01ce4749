"""How long a database takes over 100,000 records: storing, best look-up, pages, prune; SQLite and PostgreSQL.

    .venv/bin/python benchmarks/database.py [--records N] [--server postgresql://...] [--json]

Records are of 50 programs for 4 machines, as a team that tunes ten models has them, and half of them again
of one program for one machine, which a long search leaves; a tenth failed. Without --server PostgreSQL is
started in a temporary directory, if it is installed. What is timed is a call: queries, the network and making
`Record`s of rows. Look-ups are medians and the worst of many.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import metaschedule as ms
from metaschedule.database import Database, Record

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres import running_server, unavailable

PROGRAMS, MACHINES, LOOKUPS = 50, 4, 200
TARGETS = [ms.target.resolve(f"x86-64-v3,cores={cores}") for cores in range(1, MACHINES + 1)]


def make_records(count: int) -> tuple[list[Any], list[Record]]:
    """Programs, and records of them."""
    rng = random.Random(0)
    programs = [ms.workloads.create("GMM", b=1, n=8 + n, m=16, k=16) for n in range(PROGRAMS)]
    examples = [
        [Record.of(program, "", trace, "ok", latency=1.0) for trace in draw_traces(program)]
        for program in programs
    ]
    found: list[Record] = []
    for number in range(count):
        long = number % 2 == 0
        example = rng.choice(examples[0] if long else rng.choice(examples))
        works = rng.random() < 0.9
        latency = rng.lognormvariate(-9, 1) if works else None
        found.append(
            replace(
                example,
                target=TARGETS[0 if long else rng.randrange(MACHINES)].key,
                decisions=json.dumps([number, *json.loads(example.decisions or "[]")]),
                outcome="ok" if works else "crash",
                latency=latency,
                times=() if latency is None else (latency,) * 5,
                confirmed=works and rng.random() < 0.1,
                disturbed=float(rng.random() < 0.05),
                trial=number,
                run=f"{number // 64:032}",
                elapsed=float(number % 64),
                uid=f"{number:032}",
            )
        )
    return programs, found


def draw_traces(program: Any) -> list[ms.Trace]:
    return [ms.space.default().sample(program, random.Random(seed)).trace for seed in range(4)]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def measure(place: str | Path, programs: list[Any], records: list[Record]) -> dict[str, float]:
    """Seconds, by what was done."""
    figures: dict[str, float] = {}
    with ms.database.open(place) as db:
        for program in programs:
            db.add_program(program)
        figures["store all, in batches of 1000"], _ = timed(lambda: store(db, records[:-640]))
        batches = [records[at : at + 64] for at in range(len(records) - 640, len(records), 64)]
        figures["store a batch of 64"] = statistics.median(
            timed(lambda b=b: db.add_all(b))[0] for b in batches
        )
    figures["open"], db = timed(lambda: ms.database.open(place))
    with db:
        rng = random.Random(1)
        db.best(programs[0], TARGETS[0])  # reads the sketch, once
        hashes = [ms.structural_hash(program) for program in programs]
        lookups = [timed(lambda: db.best(rng.choice(hashes), rng.choice(TARGETS)))[0] for _ in range(LOOKUPS)]
        figures["best look-up, median"], figures["best look-up, worst"] = (
            statistics.median(lookups),
            max(lookups),
        )
        largest = [timed(lambda: db.best(hashes[0], TARGETS[0]))[0] for _ in range(LOOKUPS)]
        figures["best look-up of half of all, median"] = statistics.median(largest)
        figures["list programs, 100 rows"], _ = timed(lambda: db.summaries(limit=100))
        figures["first page of 100 records"], _ = timed(lambda: db.records(limit=100))
        figures["last page of 100 records"], page = timed(
            lambda: db.records(limit=100, offset=len(records) - 100)
        )
        assert page == records[-100:]
        figures["what is new, nothing"], _ = timed(lambda: db.records_since(position_of_end(db), hashes[0]))
        best = {(h, t.key): db.best(h, t) for h in hashes for t in TARGETS}
        figures["prune --keep 16"], deleted = timed(lambda: db.prune(16))
        assert deleted == len(records) - db.count() > 0
        assert best == {(h, t.key): db.best(h, t) for h in hashes for t in TARGETS}
    return figures


def store(db: Database, records: list[Record]) -> None:
    for at in range(0, len(records), 1000):
        db.add_all(records[at : at + 1000])


def position_of_end(db: Database) -> int:
    return db.store.rows(f"SELECT max(id) FROM {db.store.schema}records", {})[0][0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--server", help="address of an empty PostgreSQL database")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    programs, records = make_records(options.records)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places: dict[str, str | Path] = {"SQLite": directory / "tuning.db"}
        if options.server:
            places["PostgreSQL"] = options.server
        elif reason := unavailable():
            print(f"without PostgreSQL: {reason}", file=sys.stderr)
        else:
            places["PostgreSQL"] = stack.enter_context(running_server()).create_database()
        found = {name: measure(place, programs, records) for name, place in places.items()}
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.records} records; milliseconds")
    print(f"{'':40}" + "".join(f"{name:>12}" for name in found))
    for what in next(iter(found.values())):
        print(f"{what:40}" + "".join(f"{1e3 * figures[what]:12.2f}" for figures in found.values()))


if __name__ == "__main__":
    main()
