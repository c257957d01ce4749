"""Runs as they went: which there are, and the trials of one, thinned to what a plot can show."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import workloads
from ..database import Database, Record, TuningRun
from ..errors import ScriptError, VerifyError
from ..schedule import TraceError
from ..script import parse
from ..space.outline import outline
from ..workloads.work import MEMORY_BOUND, bytes_moved

MOST_POINTS = 3000  # of a plot; a screen has fewer columns
SILENCE = 120.0  # seconds without a sign, after which a run is taken for dead


def list_runs(db: Database, offset: int = 0, limit: int = 100) -> dict[str, Any]:
    """The calls of `tune`, the latest first, each with its programs; and programs with records of any."""
    calls: dict[str, list[TuningRun]] = {}
    for run in db.runs():
        calls.setdefault(run.call, []).append(run)
    ordered = sorted(calls.values(), key=lambda runs: -max(run.updated for run in runs))
    counts = db.run_counts()
    names = {w.hash: w.name for w in db.workloads()}
    rows = [summarize_call(runs, counts, names) for runs in ordered[offset : offset + limit]]
    programs = [
        {
            "workload": s.workload,
            "program": s.name,
            "target": s.target,
            "trials": s.outcomes.total(),
            "outcomes": dict(s.outcomes.most_common()),
            "latency": s.best.latency if s.best else None,
        }
        for s in db.summaries(limit=limit, offset=offset)
    ]
    return {
        "calls": rows,
        "programs": programs,
        "total_calls": len(ordered),
        "total_programs": db.count_summaries(),
        "offset": offset,
        "limit": limit,
    }


def summarize_call(
    runs: Sequence[TuningRun], counts: dict[str, int], names: dict[str, str]
) -> dict[str, Any]:
    done = sum(counts.get(run.uid, 0) for run in runs)
    return {
        "call": runs[0].call,
        "label": runs[0].label or ", ".join(dict.fromkeys(names.get(run.workload, "?") for run in runs[:4])),
        "target": runs[0].target,
        "programs": len(runs),
        "trials": done,
        "budget": runs[0].trials,
        "started": min(run.started for run in runs),
        "updated": max(run.updated for run in runs),
        "running": any(is_running(run) for run in runs),
        "stopped": next((run.stopped for run in runs if run.stopped), ""),
        "runs": [{"uid": run.uid, "program": names.get(run.workload, "?")} for run in runs],
    }


def is_running(run: TuningRun) -> bool:
    return run.stopped is None and time.time() - run.updated < SILENCE


def describe_run(db: Database, uid: str) -> dict[str, Any]:
    """One program's tuning by one call: its trials as columns, the best so far, where time went."""
    run = find_run(db, uid)
    records = db.records(run=uid)
    trials = [r for r in records if not r.confirmed]
    workload = next((w for w in db.workloads() if w.hash == run.workload), None)
    sketches = list(dict.fromkeys(r.sketch for r in trials))
    numbers = {sketch: n for n, sketch in enumerate(sketches)}
    shown = thin(trials)
    leader, overall = find_leader(records), db.best(run.workload, run.target)
    final = leader.latency if leader else None
    work = work_of(workload.script) if workload else Work()
    peak = run.details.get("peak")
    return {
        "uid": uid,
        "call": run.call,
        "label": run.label,
        "program": workload.name if workload else "?",
        "workload": run.workload,
        "target": run.target,
        "space": run.space,
        "seed": run.seed,
        "budget": run.trials,
        "minutes": run.minutes,
        "started": run.started,
        "updated": run.updated,
        "running": is_running(run),
        "stopped": run.stopped,
        "machine": run.machine,
        "seconds": dict(run.seconds),
        "left": seconds_left(run, len(trials)),
        "untuned": run.untuned,
        "best": final,
        # None: the fastest of the program, whose address is shorter
        "leader": leader.uid if leader and overall and leader.uid != overall.uid else None,
        **work.rates(final),
        "peak": peak,
        "trials": len(trials),
        "outcomes": dict(Counter(r.outcome for r in trials).most_common()),
        "disturbed": sum(not r.reliable for r in trials),
        "refused": run.details.get("refused", {}),
        "runners": run.details.get("runners", []),
        "points": columns_of(shown, run, numbers),
        "thinned": len(shown) < len(trials),
        "course": course_of(trials, run),
        "sketches": [outline_of(r) for r in first_of_each(trials, sketches)],
    }


def find_run(db: Database, uid: str) -> TuningRun:
    """A run that is told of, or what its records tell of one that is not (older versions)."""
    found = next((run for run in db.runs() if run.uid == uid), None)
    if found is not None:
        return found
    records = db.records(run=uid, limit=1)
    if not records:
        raise LookupError(f"no run {uid}")
    r = records[0]
    ended = db.records(run=uid)[-1].created
    return TuningRun(
        uid, r.workload, r.target, r.space, r.seed, uid, started=r.created, updated=ended, stopped=""
    )


def find_leader(records: Sequence[Record]) -> Record | None:
    """The fastest, as `Database.ranked` has it: leaders are measured again side by side, which counts more
    than the trial; what was measured undisturbed counts more than an upper bound; and a candidate that failed
    once is none."""
    failed = {(r.sketch, r.decisions) for r in records if r.outcome != "ok"}
    working = [r for r in records if r.latency is not None and (r.sketch, r.decisions) not in failed]
    return min(working, key=lambda r: (not r.reliable, not r.confirmed, r.latency or 0.0), default=None)


def thin(records: Sequence[Record], most: int = MOST_POINTS) -> list[Record]:
    """At most about so many of them: all that were the best so far, the first and the last, and of the others
    every n-th, so that a plot looks as it would with all."""
    if len(records) <= most:
        return list(records)
    step = -(-len(records) // most)
    best, kept = float("inf"), []
    for n, record in enumerate(records):
        leads = record.latency is not None and record.latency < best
        if leads:
            best = record.latency or best
        if leads or n % step == 0 or n == len(records) - 1:
            kept.append(record)
    return kept


def columns_of(
    records: Sequence[Record], run: TuningRun, numbers: dict[str | None, int]
) -> dict[str, list[Any]]:
    return {
        "trial": [r.trial for r in records],
        "elapsed": [elapsed_of(r, run) for r in records],
        "latency": [r.latency for r in records],
        "predicted": [r.predicted for r in records],
        "outcome": [r.outcome for r in records],
        "detail": [r.detail.strip().split("\n")[-1][:200] for r in records],
        "sketch": [numbers.get(r.sketch, -1) for r in records],
        "disturbed": [r.disturbed for r in records],
        "uid": [r.uid for r in records],
    }


def elapsed_of(record: Record, run: TuningRun) -> float:
    return record.elapsed if record.elapsed is not None else max(0.0, record.created - run.started)


def course_of(trials: Sequence[Record], run: TuningRun) -> dict[str, list[Any]]:
    """The best so far, where it changed, and at the end."""
    best, course = float("inf"), {"trial": [], "elapsed": [], "latency": []}
    for record in trials:
        last = record is trials[-1]
        if (record.latency is not None and record.latency < best) or (last and best < float("inf")):
            best = min(best, record.latency or float("inf"))
            course["trial"].append(record.trial)
            course["elapsed"].append(elapsed_of(record, run))
            course["latency"].append(best)
    return course


def first_of_each(trials: Sequence[Record], sketches: Sequence[str | None]) -> list[Record]:
    first: dict[str | None, Record] = {}
    for record in trials:
        first.setdefault(record.sketch, record)
    return [first[sketch] for sketch in sketches]


@functools.lru_cache(512)  # a live run is asked for again and again
def outline_of(record: Record) -> str:
    try:
        return "" if record.trace is None else outline(record.trace)
    except TraceError as error:
        return str(error)


def seconds_left(run: TuningRun, done: int) -> float | None:
    """By the pace so far; None for a run that has ended or has just begun."""
    if not is_running(run) or not done:
        return None
    spent = run.updated - run.started
    by_trials = None if run.trials is None else spent * max(0, run.trials - done) / done
    by_minutes = None if run.minutes is None else max(0.0, 60 * run.minutes - spent)
    known = [left for left in (by_trials, by_minutes) if left is not None]
    return min(known, default=None)


@dataclass(frozen=True)
class Work:
    """What a program has to do, at least; zeros if that is not known."""

    operations: int = 0
    bytes: int = 0

    @property
    def is_memory_bound(self) -> bool:
        """Then its share of the peak says nothing: there is no time to be won by computing faster."""
        return self.operations < MEMORY_BOUND * self.bytes

    def rates(self, latency: float | None) -> dict[str, float | None]:
        gflops = self.operations / latency / 1e9 if latency and self.operations else None
        bandwidth = self.bytes / latency / 1e9 if latency and self.is_memory_bound else None
        return {"gflops": gflops, "bandwidth": bandwidth}


@functools.lru_cache(512)
def work_of(script: str) -> Work:
    try:
        program = parse(script)
    except (ScriptError, VerifyError):  # a script of another version: the page then shows no rates
        return Work()
    return Work(workloads.operations(program), bytes_moved(program))
