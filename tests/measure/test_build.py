"""Programs compiled in worker processes: the same kernels, the same errors, and nobody left behind."""

from __future__ import annotations

import pytest

from metaschedule import Schedule, workloads
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program
from metaschedule.measure.build import FEW, UNTUNED, BuildJob, build_all, build_here, build_in_workers
from metaschedule.runtime import Kernel
from metaschedule.target import resolve
from tests.measure.processes import children

TARGET = resolve("native").with_cores(2)


def products(count: int) -> list[Program]:
    return [workloads.create("GMM", b=1, n=4 + n, m=8, k=8) for n in range(count)]


def untuned_jobs(count: int) -> list[BuildJob]:
    return [BuildJob(program, UNTUNED) for program in products(count)]


def reordered() -> Schedule:
    sch = Schedule(products(1)[0])
    _, i, j, k = sch.get_loops(sch.get_block("matmul"))
    sch.reorder(k, i, j)
    return sch


def test_workers_give_what_this_process_gives() -> None:
    sch = reordered()
    jobs = [BuildJob(sch.state.original, sch.trace), *untuned_jobs(FEW), BuildJob(sch.program)]
    before = children()
    done = build_in_workers(jobs, TARGET, "checked")
    assert children() == before
    assert [done[n] for n in range(len(jobs))] == [build_here(job, TARGET) for job in jobs]
    assert done[0] == done[len(jobs) - 1]


def test_what_a_worker_fails_at_fails_here() -> None:
    wrong = BuildJob(workloads.create("SFM", shape=(4, 8)), reordered().trace)
    with pytest.raises(ScheduleError, match="replay on a program of the structure"):
        build_all([*untuned_jobs(FEW), wrong], TARGET)


def test_interrupted_it_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> Kernel:
        raise KeyboardInterrupt

    monkeypatch.setattr(Kernel, "from_json", interrupted)
    before = children()
    with pytest.raises(KeyboardInterrupt):
        build_all(untuned_jobs(FEW + 2), TARGET)
    assert children() == before
