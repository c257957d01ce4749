"""One candidate of a program: what was written, what was done to it, what came out; the best of its kind."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..codegen import generate
from ..cost.learned import rank_correlation
from ..database import Database, Record, StoredWorkload, TuningRun
from ..errors import ScheduleError
from ..ir import Program
from ..runtime.compile import assembly
from ..schedule import Instruction, Schedule, Trace, TraceError
from ..script import parse
from ..target import Target, resolve
from .history import outline_of, thin
from .machine_code import find_inner_loop

LEADERS = 10
MOST_PAIRS = 2000


def describe_kernel(db: Database, workload: str, target: str, uid: str | None = None) -> dict[str, Any]:
    """A record, the fastest unless `uid` names one: program, trace, scheduled program; how it compares."""
    source, record = find_candidate(db, workload, target, uid)
    leaders = [r for r in db.ranked(workload, target, limit=20 * LEADERS) if r.sketch == record.sketch]
    pairs = [
        (r.predicted, r.latency)
        for r in thin(db.records(workload, target, outcome="ok"), MOST_PAIRS)
        if r.predicted is not None and r.latency is not None
    ]
    scheduled = replay(record, source)
    written, lines = source.script.splitlines(), str(scheduled.program).splitlines()
    return {
        "workload": workload,
        "program": source.name,
        "target": target,
        "record": describe_record(record),
        "source": written,
        "trace": str(scheduled.trace).splitlines(),
        "scheduled": lines,
        "new": changed_lines(written, lines),
        "decisions": compare_decisions(distinct(leaders)[:LEADERS]),
        "predictions": {
            "predicted": [p for p, _ in pairs],
            "measured": [m for _, m in pairs],
            "correlation": rank_correlation(*np.array(pairs).T) if len(pairs) > 2 else None,
        },
        "others": [describe_record(r) for r in db.ranked(workload, target, limit=LEADERS)],
        "runs": list(dict.fromkeys(r.run for r in leaders)),
    }


def describe_record(record: Record) -> dict[str, Any]:
    return {
        "uid": record.uid,
        "latency": record.latency,
        "outcome": record.outcome,
        "detail": record.detail,
        "confirmed": record.confirmed,
        "disturbed": record.disturbed,
        "space": record.space,
        "seed": record.seed,
        "trial": record.trial,
        "run": record.run,
        "created": record.created,
        "version": record.version,
        "outline": outline_of(record),
    }


def describe_steps(db: Database, workload: str, target: str, uid: str | None = None) -> list[dict[str, Any]]:
    """The candidate's trace, step by step: the program after each instruction, and which lines are new."""
    source, record = find_candidate(db, workload, target, uid)
    steps = replay(record, source).trace.steps(parse_program(source))
    found: list[dict[str, Any]] = []
    before = source.script.splitlines()
    for step in steps:
        after = str(step.after).splitlines()
        new = changed_lines(before, after)
        # most instructions look or draw: what stays as it was is not sent again
        found.append({"text": step.text, "lines": after if new else None, "new": new})
        before = after
    return found


def describe_code(db: Database, workload: str, target: str, uid: str | None = None) -> dict[str, Any]:
    """The candidate's assembly for the machine it was measured on, its inner loop marked and counted."""
    source, record = find_candidate(db, workload, target, uid)
    machine = find_target(db, record)
    if machine is None:
        return {
            "error": f"this metaschedule cannot tell what machine {target} is, so it makes no code for it"
        }
    kernel = generate(replay(record, source).program, machine)
    text = assembly(kernel.llvm, machine)
    loop = find_inner_loop(text)
    return {"target": str(machine), "lines": text.splitlines(), "loop": loop and loop.as_data()}


def find_candidate(
    db: Database, workload: str, target: str, uid: str | None
) -> tuple[StoredWorkload, Record]:
    source = next((w for w in db.workloads() if w.hash == workload), None)
    if source is None:
        raise LookupError(f"no program {workload}")
    record = db.best(workload, target) if uid is None else db.record(uid)
    if record is None or record.workload != workload:
        raise LookupError(f"no record {uid or 'that works'} of {source.name} for {target}")
    return source, record


def find_target(db: Database, record: Record) -> Target | None:
    """The machine a record was measured on: as its run tells it, or this one if they are alike."""
    run = next((run for run in db.runs() if run.uid == record.run), None)
    if run is not None and (told := target_of(run)) is not None and told.key == record.target:
        return told
    cores = record.target.rpartition(":c")[2]
    native = resolve("native")
    native = native.with_cores(int(cores)) if cores.isdigit() and int(cores) else native
    return native if native.key == record.target else None


def target_of(run: TuningRun) -> Target | None:
    try:
        return Target.from_json(run.details["target"])
    except (KeyError, ValueError):
        return None


def parse_program(source: StoredWorkload) -> Program:
    return parse(source.script)


def replay(record: Record, source: StoredWorkload) -> Schedule:
    """Raises `LookupError` with the reason, if what is stored no longer replays."""
    try:
        trace = record.trace or Trace()
        return trace.apply(parse_program(source))
    except (TraceError, ScheduleError) as error:
        raise LookupError(f"record {record.uid} does not replay: {error}") from error


def changed_lines(before: Sequence[str], after: Sequence[str]) -> list[int]:
    """Numbers of the lines of `after` that are not in `before`.

    >>> changed_lines(["a", "b", "c"], ["a", "B", "c", "d"])
    [1, 3]
    """
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [n for tag, _, _, start, end in blocks if tag in ("replace", "insert") for n in range(start, end)]


def distinct(records: Sequence[Record]) -> list[Record]:
    """The first record of each candidate, in their order."""
    found: dict[str | None, Record] = {}
    for record in records:
        found.setdefault(record.decisions, record)
    return list(found.values())


def name_decision(trace: Trace, instruction: Instruction) -> str:
    """By the names of what it gives in the text of the trace: "v0, v1 (tile)"."""
    names = trace.names()
    drawn = ", ".join(names[h] for h in instruction.outputs)
    return f"{drawn} ({instruction.primitive.op.removeprefix('sample_')})"


def compare_decisions(records: Sequence[Record]) -> dict[str, Any]:
    """The decisions of candidates that share a sketch, as columns of numbers: one for each, and one for each
    factor of a tile; constant ones are left out."""
    columns: dict[str, list[float]] = {}
    for record in records:
        trace = record.trace or Trace()
        names = trace.names()
        for i in trace.instructions:
            if not i.is_sampling:
                continue
            values = i.decision if isinstance(i.decision, (list, tuple)) else [i.decision]
            op = i.primitive.op.removeprefix("sample_")
            if len(values) == len(i.outputs):
                labels = [f"{names[h]} ({op})" for h in i.outputs]
            else:
                labels = [f"{name_decision(trace, i)}[{k}]" for k in range(len(values))]
            for label, value in zip(labels, values, strict=True):
                if isinstance(value, (int, float)):
                    columns.setdefault(label, []).append(value)
    whole = {name: column for name, column in columns.items() if len(column) == len(records)}
    return {
        "uids": [r.uid for r in records],
        "latency": [r.latency for r in records],
        "columns": {name: column for name, column in whole.items() if len(set(column)) > 1},
    }
