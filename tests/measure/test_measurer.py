"""Real candidates of real programs, in real processes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.ir import Program
from metaschedule.measure import KINDS, MeasureError, Measurer
from metaschedule.measure.reference import reference_kernel
from metaschedule.measure.runner import CONFIRM_ROUNDS, ENOUGH_ROUNDS, MORE_ROUNDS
from metaschedule.measure.stage import lower_stages
from metaschedule.runtime import Executable, random_arrays
from metaschedule.script import parse
from metaschedule.target import resolve
from tests.cases.programs import CASES
from tests.measure import faulty_kernels as faulty


def matmul(k: int = 48, terms: int | None = None) -> Program:
    """24 x 32 x k; with fewer `terms` than k it is wrong."""
    return parse(f"""
@ms.program
def matmul(A: T.Tensor((24, {k})), B: T.Tensor(({k}, 32)), C: T.Output((24, 32))):
    for i, j, k in T.grid(24, 32, {terms or k}):
        with T.block("C"):
            vi = T.spatial(24, i)
            vj = T.spatial(32, j)
            vk = T.reduce({terms or k}, k)
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")


def tiled(program: Program, rows: int, columns: int) -> Program:
    sch = ms.Schedule(program)
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, columns])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.unroll(i1)
    sch.vectorize(j1)
    return sch.program


def bound_to_a_gpu(program: Program) -> Program:
    sch = ms.Schedule(program)
    sch.bind(sch.get_loops(sch.get_block("C"))[0], "blockIdx.x")
    return sch.program


def test_outcomes_in_order() -> None:
    program = matmul()
    candidates = [
        program,
        tiled(program, 6, 16),
        tiled(matmul(terms=47), 4, 8),
        tiled(matmul(k=40), 4, 8),
        bound_to_a_gpu(program),
        tiled(program, 5, 16),
    ]
    with Measurer(program, threads=1) as m:
        outcomes = m.measure(candidates)
        assert [o.kind for o in outcomes] == ["ok", "ok", "wrong result", "illegal", "build error", "ok"]
        assert {o.kind for o in outcomes} <= set(KINDS)
        for o in outcomes:
            if o.ok:
                assert o.latency is not None
                assert min(o.times) <= o.latency <= max(o.times)
                assert o.build_seconds > 0
                assert o.run_seconds > sum(o.times)
        assert "parameters" in outcomes[3].detail
        confirmed = m.confirm([candidates[1], candidates[2], candidates[5]])
        assert [o.kind for o in confirmed] == ["ok", "wrong result", "ok"]
        assert ENOUGH_ROUNDS <= len(confirmed[0].times) <= CONFIRM_ROUNDS + MORE_ROUNDS
        assert confirmed[0].latency == sorted(confirmed[0].times)[1]


def test_leaders_are_confirmed_without_building_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul()
    candidates = [tiled(program, 4, 8), tiled(program, 2, 16), bound_to_a_gpu(program)]
    built: list[int] = []
    with Measurer(program) as m:
        m.measure(candidates)
        compile = m._compile
        monkeypatch.setattr(m, "_compile", lambda *args: built.append(len(args[0])) or compile(*args))
        outcomes = m.confirm([candidates[1], tiled(program, 8, 8), candidates[0]])
    assert built == [1]
    assert [o.kind for o in outcomes] == ["ok"] * 3


def test_a_hopeless_candidate_is_not_repeated() -> None:
    with Measurer(faulty.program()) as m:
        good, by_earlier = m.measure([faulty.GOOD, faulty.WORKS_LONG])
        (by_best,), (alone,) = m.measure([faulty.WORKS_LONG], best=1e-6), m.measure([faulty.WORKS_LONG])
    for hopeless in (by_earlier, by_best) if not good.disturbed else (by_best,):
        assert hopeless.ok
        assert len(hopeless.times) == 1 or hopeless.disturbed  # what was disturbed is looked at again
        assert hopeless.latency is not None
        assert hopeless.latency >= 0.03  # of two threads, both of whose time counts
    assert len(alone.times) > 1 or alone.disturbed


def small_case(number: str) -> Callable[[], Program]:
    return CASES[number].small_program


@pytest.mark.parametrize(
    "make",
    [
        small_case("17960"),  # a `while`
        small_case("18387"),  # an assertion that wants positive numbers
        small_case("12929"),  # a sparse matrix
        lambda: ms.workloads.create("GMM", b=1, n=8, m=8, k=24, dtype="bfloat16"),
    ],
    ids=["while", "assertion", "sparse", "bfloat16"],
)
def test_programs_of_every_sort(make: Callable[[], Program]) -> None:
    program = make()
    with Measurer(program, threads=1) as m:
        (outcome,) = m.measure([program])
    assert outcome.ok, outcome.detail


def test_the_interpreter_stands_in_for_what_cannot_be_built() -> None:
    program = matmul()
    with Measurer(bound_to_a_gpu(program)) as m:
        outcomes = m.measure([tiled(program, 6, 16), tiled(matmul(terms=47), 6, 16)])
    assert [o.kind for o in outcomes] == ["ok", "wrong result"]


ROOT = """
@ms.program
def root(A: T.Tensor((4,)), B: T.Output((4,))):
    for i in range(4):
        with T.block("root"):
            v = T.spatial(4, i)
            assert A[v] == 7.0, "only sevens"
            B[v] = A[v] * 2.0
"""


def test_a_workload_that_wants_special_inputs() -> None:
    program = parse(ROOT)
    with Measurer(program) as m, pytest.raises(MeasureError, match=r"only sevens.*inputs="):
        m.measure([program])
    with pytest.raises(ValueError, match=r"float32\[4\].*got \['float64\[3\]'\]"):
        Measurer(program, inputs=[np.zeros(3)])
    eights = generate(parse(ROOT.replace("7.0", "8.0")), resolve())
    with Measurer(program, inputs=[np.full(4, 7, np.float32)]) as m:
        good, wrong = m.measure([program, eights])
    assert good.ok
    assert wrong.kind == "wrong result"
    assert "only sevens" in wrong.detail


def test_only_this_machine() -> None:
    with pytest.raises(ValueError, match="only this machine can be measured"):
        Measurer(matmul(), "aarch64")


def test_the_reference_is_the_program_as_written_bit_for_bit() -> None:
    for program in (
        ms.workloads.create("SFM", shape=(9, 33)),
        ms.workloads.create("NRM", b=2, n=17, m=5),
        matmul(),
    ):
        inputs = random_arrays(generate(program, resolve()).inputs)
        reference = Executable(reference_kernel(program, resolve()))(*inputs)
        as_written = Executable(generate(program, resolve(), fma=False))(*inputs)
        np.testing.assert_array_equal(reference, as_written)


def test_of_very_many_terms_the_reference_is_a_good_sum() -> None:
    """One accumulator is wrong by a thousandth here, and candidates that are more exact would be refused."""
    program = ms.workloads.create("NRM", m=2048, n=2048)
    x = np.random.default_rng(0).standard_normal((1, 2048, 2048), "float32")
    (got,) = Executable(reference_kernel(program, resolve()))(x)
    assert got == pytest.approx(np.linalg.norm(x.astype("float64")), rel=1e-5)
    candidates = [trace.apply(program).program for trace in ms.space.default().sketches(program)]
    with Measurer(program) as measurer:
        assert [outcome.detail for outcome in measurer.measure(candidates)] == [""] * len(candidates)


def test_work_on_constants_is_a_stage_of_its_own() -> None:
    text = """
def f(X: T.Tensor((8,)), W: T.Tensor((8,), "float32"{constant}), Y: T.Output((8,))):
    V = T.alloc((8,), "float32")
    for i in range(8):
        V[i] = W[i] + 1.0
    for i in range(8):
        Y[i] = X[i] * V[i]
"""
    for constant, takes in (("", [(0, 1)]), (", constant=True", [(1,), (0,)])):
        program = parse(text.format(constant=constant))
        assert [stage.takes for stage in lower_stages(program, resolve())] == takes


def test_wrong_constants_are_wrong_results() -> None:
    text = """
def f(X: T.Tensor((8,)), W: T.Tensor((8,), "float32", constant=True), Y: T.Output((8,))):
    V = T.alloc((8,), "float32")
    for i in range(8):
        V[i] = W[i] + 1.0
    for i in range(8):
        Y[i] = X[i] * V[i]
"""
    with Measurer(parse(text)) as m:
        right, wrong = m.measure([parse(text), parse(text.replace("+ 1.0", "+ 2.0"))])
    assert right.ok
    assert wrong.kind == "wrong result"


def test_a_preparation_that_fails_is_a_wrong_result() -> None:
    text = """
def f(X: T.Tensor((8,)), W: T.Tensor((8,), constant=True), I: T.Tensor((8,), "int64", constant=True),
      Y: T.Output((8,))):
    V = T.alloc((8,), "float32")
    for i in range(8):
        V[i] = W[I[i]{offset}]
    for i in range(8):
        Y[i] = X[i] * V[i]
"""
    with Measurer(parse(text.format(offset=""))) as m:
        right, wrong = m.measure([parse(text.format(offset=offset)) for offset in ("", " + 8")])
    assert right.ok, right.detail
    assert wrong.kind == "wrong result"
    assert "out of range for axis 0 of W" in wrong.detail
