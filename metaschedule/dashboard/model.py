"""The programs of one call of `tune`, as parts of a model: what each takes in it, before and after."""

from __future__ import annotations

from typing import Any

from ..database import Database, Record, StoredWorkload, TuningRun
from .history import is_running, work_of

PLAIN_SHARE = 0.9  # of the peak: what a good kernel reaches, so what is above it is not to be won


def describe_model(db: Database, call: str) -> dict[str, Any]:
    """Kernels by what they take in the model now, the slowest first."""
    runs = [run for run in db.runs() if run.call == call]
    if not runs:
        raise LookupError(f"no call {call}")
    workloads = {w.hash: w for w in db.workloads()}
    trials = db.run_counts()
    kernels = [describe_kernel(db, run, workloads[run.workload], trials.get(run.uid, 0)) for run in runs]
    kernels.sort(key=lambda k: -(k["after"] or k["before"] or 0.0))
    # known both before and after, so that the two sums compare
    compared = [k for k in kernels if k["before"] is not None and k["after"] is not None]
    return {
        "call": call,
        "label": runs[0].label,
        "target": runs[0].target,
        "machine": runs[0].machine,
        "started": min(run.started for run in runs),
        "updated": max(run.updated for run in runs),
        "running": any(is_running(run) for run in runs),
        "kernels": kernels,
        "compared": len(compared),
        "before": total(compared, "before"),
        "after": total(compared, "after"),
        "eager": runs[0].details.get("eager", []),
    }


def describe_kernel(db: Database, run: TuningRun, workload: StoredWorkload, trials: int) -> dict[str, Any]:
    best: Record | None = db.best(run.workload, run.target)
    latency = best.latency if best else None
    weight = 1.0 if run.weight is None else run.weight
    work, peak = work_of(workload.script), run.details.get("peak")
    bound = None
    if peak and work.operations and not work.is_memory_bound:
        bound = work.operations / (PLAIN_SHARE * peak * 1e9)
    left = max(0.0, latency - bound) * weight if latency is not None and bound is not None else None
    return {
        "run": run.uid,
        "workload": run.workload,
        "target": run.target,
        "program": workload.name,
        "weight": weight,
        "untuned": run.untuned,
        "latency": latency,
        "before": None if run.untuned is None else weight * run.untuned,
        "after": None if latency is None else weight * latency,
        "may_win": left,
        **work.rates(latency),
        "peak": peak,
        "trials": trials,
        "stopped": run.stopped,
    }


def total(kernels: list[dict[str, Any]], what: str) -> float | None:
    return sum(k[what] for k in kernels) if kernels else None
