"""Programs compiled in worker processes: the same kernels, the same errors, and nobody left behind."""

from __future__ import annotations

import pytest

from metaschedule import Schedule, workloads
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program
from metaschedule.measure import Limits, Measurer
from metaschedule.measure.build import FEW, UNTUNED, BuildJob, build_all, build_here, build_in_workers
from metaschedule.runtime import Kernel
from metaschedule.schedule import register_intrinsic
from metaschedule.script import parse
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
    done = dict(build_in_workers(dict(enumerate(jobs)), TARGET, "checked"))
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


def test_an_instruction_of_the_users_is_lowered_here() -> None:
    """Builders do not know it: no module of the user's is imported there."""
    description = """
def pairs(A: T.Tensor((4, 2), "int16"), B: T.Tensor((4, 2), "int16"), C: T.Output((4,), "int32")):
    for i, k in T.grid(4, 2):
        C[i] = C[i] + T.cast(A[i, k], "int32") * T.cast(B[i, k], "int32")
"""
    code = """
        %a = sext <8 x i16> %A to <8 x i32>
        %b = sext <8 x i16> %B to <8 x i32>
        %p = mul <8 x i32> %a, %b
        %even = shufflevector <8 x i32> %p, <8 x i32> poison, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
        %odd = shufflevector <8 x i32> %p, <8 x i32> poison, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
        %both = add <4 x i32> %even, %odd
        add <4 x i32> %C, %both
    """
    register_intrinsic("test.built_pairs", parse(description), instruction=code)
    text = """
def lanes(A: T.Tensor((8, 2), "int16"), B: T.Tensor((8, 2), "int16"), C: T.Tensor((8,), "int32"),
          D: T.Output((8,), "int32")):
    for i in T.vectorized(8):
        D[i] = {value}
"""
    product = 'T.cast(A[i, {k}], "int32") * T.cast(B[i, {k}], "int32")'
    as_written = f"C[i] + {product.format(k=0)} + {product.format(k=1)}"
    called = 'T.instruction("test.built_pairs", C[i], A[i, 0], A[i, 1], B[i, 0], B[i, 1])'
    program, candidate = (parse(text.format(value=value)) for value in (as_written, called))
    with Measurer(program, threads=1, limits=Limits(run_seconds=60)) as m:
        (outcome,) = m.measure([candidate])
    assert outcome.ok, outcome.detail
