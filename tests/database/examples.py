"""A program, a candidate of it, and records made of them."""

from __future__ import annotations

from typing import Any

import metaschedule as ms
from metaschedule.database import Record

PROGRAM = ms.workloads.create("GMM", b=1, n=12, m=10, k=6)
WORKLOAD = ms.structural_hash(PROGRAM)
TARGET = ms.target.resolve("x86-64-v3,cores=2")


def candidate(seed: int = 0) -> ms.Trace:
    sch = ms.Schedule(PROGRAM, seed=seed)
    b, i, j, k = sch.get_loops(sch.get_block("matmul"))
    sch.split(i, sch.sample_tile(i, 2, 8))
    sch.split(k, [None, sch.sample_categorical([2, 3, 6], [0.2, 0.3, 0.5])])
    return sch.trace


def ok(latency: float = 1e-3, **fields: Any) -> Record:
    return Record.of(WORKLOAD, TARGET, candidate(), "ok", latency=latency, **fields)


def failed(outcome: str = "crash", **fields: Any) -> Record:
    return Record.of(WORKLOAD, TARGET, None, outcome, **fields)
