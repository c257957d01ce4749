"""The space of a program as tuning saw it: how often each sketch was drawn, how fast it was, and refusals."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import Any

from ..database import Database, Record
from ..ir import Program
from ..schedule import TraceError
from ..script import parse
from ..space.size import size_of
from ..space.statistics import sites
from .history import find_leader, outline_of
from .kernel import describe_record, name_decision

MOST_VALUES = 24  # of one decision, in a table of how often each was drawn


def describe_space(db: Database, workload: str, target: str) -> dict[str, Any]:
    """Of the sketches that were tried, the fastest first."""
    source = next((w for w in db.workloads() if w.hash == workload), None)
    if source is None:
        raise LookupError(f"no program {workload}")
    groups: dict[str | None, list[Record]] = {}
    for record in db.records(workload, target):
        groups.setdefault(record.sketch, []).append(record)
    program = parse(source.script)
    sketches = [describe_sketch(records, program) for records in groups.values()]
    sketches.sort(key=lambda s: (s["best"] is None, s["best"]))
    refused: Counter[str] = Counter()
    for run in db.runs():
        if (run.workload, run.target) == (workload, target):
            refused.update(run.details.get("refused", {}))
    return {
        "workload": workload,
        "program": source.name,
        "target": target,
        "sketches": sketches,
        "refused": [[why, times] for why, times in refused.most_common()],
    }


def describe_sketch(measured: list[Record], program: Program) -> dict[str, Any]:
    """How often it was drawn, and how fast that was; its leader may have been measured again since."""
    records = [r for r in measured if not r.confirmed] or measured
    times = [r.latency for r in records if r.latency is not None]
    best = find_leader(measured)
    found: dict[str, Any] = {
        "outline": outline_of(records[0]),
        "drawn": len(records),
        "outcomes": dict(Counter(r.outcome for r in records).most_common()),
        "best": best.latency if best else None,
        "median": statistics.median(times) if times else None,
        "record": describe_record(best) if best else None,
        "spaces": sorted({r.space for r in records}),
        "sites": [],
        "size": None,
        "decisions": [],
    }
    try:
        if (trace := records[0].trace) is not None:
            size = size_of(trace, program)
            found |= {
                "sites": sites(trace),
                "size": f"{int(size):,}" if size.exact else f"about {round_to_two(int(size))}",
            }
            found["decisions"] = count_decisions(records)
    except (TraceError, ValueError) as error:
        found["outline"] = f"cannot be replayed: {error}"
    return found


def round_to_two(number: int) -> str:
    """A size that is an estimate, with two digits.

    >>> round_to_two(8342), round_to_two(61_234_567), round_to_two(3 * 10**20)
    ('8,300', '61 million', '3.0e+20')
    """
    rounded = round(number, 2 - len(str(number)))
    for unit, name in ((10**12, ""), (10**9, " billion"), (10**6, " million")):
        if rounded >= unit:
            return f"{rounded / unit:g}{name}" if name else f"{rounded:.1e}"
    return f"{rounded:,}"


def count_decisions(records: list[Record]) -> list[dict[str, Any]]:
    """For each random variable of a sketch, the values that were drawn: how often, and the fastest candidate
    with it. Only decisions are decoded, each set of them once: of 100,000 traces that would take minutes."""
    trace = records[0].trace
    drawn = [i for i in trace.instructions if i.is_sampling] if trace else []
    names = [name_decision(trace, i) for i in drawn] if trace else []
    latencies: dict[str, list[float | None]] = {}
    for record in records:
        latencies.setdefault(record.decisions or "[]", []).append(record.latency)
    tables: dict[str, dict[str, list[float | None]]] = {name: {} for name in names}
    for decisions, times in latencies.items():
        for name, decision in zip(names, json.loads(decisions), strict=True):
            tables[name].setdefault(str(decision), []).extend(times)
    return [
        {
            "name": name,
            "values": [
                [value, len(times), min((t for t in times if t is not None), default=None)]
                for value, times in sorted(values.items(), key=lambda item: -len(item[1]))[:MOST_VALUES]
            ],
            "distinct": len(values),
        }
        for name, values in tables.items()
    ]
