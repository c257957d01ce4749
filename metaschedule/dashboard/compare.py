"""Two records, two runs or two spaces, side by side."""

from __future__ import annotations

import difflib
from typing import Any

from ..database import Database, Record
from .history import course_of, describe_run, find_leader, find_run
from .kernel import describe_record, replay


def compare_records(db: Database, first: str, second: str) -> dict[str, Any]:
    """Their traces and programs line by line; how much faster the second is."""
    sides = [find_record(db, uid) for uid in (first, second)]
    names = {w.hash: w for w in db.workloads()}
    schedules = [replay(r, names[r.workload]) for r in sides]
    return {
        "kind": "records",
        "sides": [
            describe_record(r) | {"program": names[r.workload].name, "target": r.target} for r in sides
        ],
        "faster": ratio(sides[0].latency, sides[1].latency),
        "trace": align(*[str(s.trace).splitlines() for s in schedules]),
        "scheduled": align(*[str(s.program).splitlines() for s in schedules]),
    }


def compare_runs(db: Database, first: str, second: str) -> dict[str, Any]:
    sides = [describe_run(db, uid) for uid in (first, second)]
    for side in sides:
        del side["points"]
    return {"kind": "runs", "sides": sides, "faster": ratio(sides[0]["best"], sides[1]["best"])}


def compare_spaces(db: Database, workload: str, target: str, first: str, second: str) -> dict[str, Any]:
    """The best so far of all trials of a program in two spaces."""
    sides: list[dict[str, Any]] = []
    for space in (first, second):
        records = db.records(workload, target, space=space)
        trials = [r for r in records if not r.confirmed]
        if not trials:
            raise LookupError(f"no trials in the space {space}")
        course = course_of(trials, find_run(db, trials[0].run))
        course["trial"] = list(range(len(course["trial"]))) if None in course["trial"] else course["trial"]
        leader = find_leader(records)
        best = leader.latency if leader else None
        sides.append({"space": space, "trials": len(trials), "best": best, "course": course})
    return {"kind": "spaces", "sides": sides, "faster": ratio(sides[0]["best"], sides[1]["best"])}


def find_record(db: Database, uid: str) -> Record:
    record = db.record(uid)
    if record is None:
        raise LookupError(f"no record {uid}")
    return record


def ratio(first: float | None, second: float | None) -> float | None:
    """How many times as fast the second is."""
    return first / second if first and second else None


def align(first: list[str], second: list[str]) -> list[list[str | None]]:
    """Rows of a table of two columns: equal lines beside each other, None where one side has nothing.

    >>> align(["a", "b"], ["a", "c", "d"])
    [['a', 'a', '='], ['b', 'c', '~'], [None, 'd', '+']]
    """
    rows: list[list[str | None]] = []
    for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        left, right = first[a0:a1], second[b0:b1]
        for n in range(max(len(left), len(right))):
            a = left[n] if n < len(left) else None
            b = right[n] if n < len(right) else None
            mark = "=" if tag == "equal" else "+" if a is None else "-" if b is None else "~"
            rows.append([a, b, mark])
    return rows
