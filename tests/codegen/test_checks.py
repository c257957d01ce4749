"""What is not proved is checked: machine code fails exactly where the interpreter does, and touches nothing
else."""

from __future__ import annotations

import ctypes
import shutil
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import generate
from metaschedule.codegen.lower import lower
from metaschedule.interpreter import InterpreterError, interpret
from metaschedule.ir import Program, numpy_dtype
from metaschedule.runtime import Executable, KernelDivisionError, KernelError, KernelIndexError
from metaschedule.runtime.sequence import KernelCall, Place, Sequence
from metaschedule.target import resolve
from tests.codegen.compiled import build, kernel, outputs, run

KINDS = ["serial", "parallel", "vectorized", "unrolled"]
N = 21  # lanes and a remainder


@lru_cache(maxsize=1)
def compiled(program: Program) -> Executable:
    return build(program)


def agree(program: Program, *inputs: np.ndarray) -> type[KernelError] | None:
    """Compiled and interpreted, the program gives the same or fails the same; the class of the failure."""
    exe = compiled(program)
    try:
        expected = outputs(interpret(program, *inputs))
    except InterpreterError as error:
        found = KernelDivisionError if "division by zero" in str(error) else KernelIndexError
        with pytest.raises(found):
            run(exe, *inputs)
        return found
    for got, want in zip(run(exe, *inputs), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    return None


def indices(bad: dict[int, int] | None = None, extent: int = 5, dtype: str = "int64") -> np.ndarray:
    values = np.arange(N) % extent
    for at, value in (bad or {}).items():
        values[at] = value
    return values.astype(numpy_dtype(dtype))


A = np.arange(5, dtype="f")

# --- what fails -----------------------------------------------------------------------------------

FAILING = {
    "gather": "C[v] = A[I[v]]",
    "gather of an expression": "C[v] = A[I[v] * 2 - I[v]]",
    "scatter": "C[v] = 0.0\n        D[I[v]] = 1.0",
    "guarded elsewhere": "C[v] = T.select(I[v] < 3, 1.0, A[I[v]])",
    "in a condition": "if A[I[v]] > 1.0:\n            C[v] = 1.0\n        else:\n            C[v] = 2.0",
    "in an index": "C[v] = A[T.cast(A[I[v]], 'int64')]",
    "under a condition": "C[v] = 0.0\n        if v % 2 == 1:\n            C[v] = A[I[v]]",
    "in a tuple": "C[v], E[v] = A[I[v]], 2.0",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", FAILING)
def test_an_index_out_of_range(how: str, kind: str) -> None:
    program = kernel(f"A[5], I:int64[{N}] -> C[{N}], D[5], E[{N}]", f"""
    for i in range(5):
        D[i] = 0.0
    for v in T.{kind}({N}):
        E[v] = 0.0
    for v in T.{kind}({N}):
        {FAILING[how]}
    """)  # fmt: skip
    assert agree(program, A, indices()) is None
    for at, bad in ((1, 5), (7, 2**40), (7, -1), (N - 2, 2**63 - 1), (N - 2, -(2**63))):
        if how != "guarded elsewhere" or bad > 0:
            assert agree(program, A, indices({at: bad})) is KernelIndexError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_indices_of_every_dtype(dtype: str, kind: str) -> None:
    program = kernel(f"A[5], I:{dtype}[{N}] -> C[{N}]", f"""
    for v in T.{kind}({N}):
        C[v] = A[I[v]]
    """)  # fmt: skip
    assert agree(program, A, indices(dtype=dtype)) is None
    for bad in (5, 127) if dtype == "uint8" else (5, 127, -1, -128):
        assert agree(program, A, indices({8: bad}, dtype=dtype)) is KernelIndexError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["//", "%"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_division_by_zero(dtype: str, op: str, kind: str) -> None:
    program = kernel(f"A:{dtype}[{N}], B:{dtype}[{N}] -> C:{dtype}[{N}]", f"""
    for v in T.{kind}({N}):
        C[v] = A[v] {op} B[v]
    """)  # fmt: skip
    a, b = indices(extent=7, dtype=dtype), indices(extent=3, dtype=dtype) + numpy_dtype(dtype).type(1)
    assert agree(program, a, b) is None
    b[N - 1] = 0
    assert agree(program, a, b) is KernelDivisionError


def test_an_index_that_is_no_load() -> None:
    program = kernel("A[5] -> C[4]", """
    for i in range(4):
        C[i] = A[i * i]
    """)  # fmt: skip
    assert agree(program, A) is KernelIndexError
    with pytest.raises(
        KernelIndexError, match=r"index 9 is out of range for axis 0 of A, which has extent 5"
    ):
        build(program)(A)


def test_a_block_whose_iterator_is_bound_too_far() -> None:
    program = kernel("A[5] -> C[5]", """
    for i in range(5):
        with T.block("C"):
            vi = T.spatial(5, T.min(i * i, 6))
            C[vi] = A[vi]
    """)  # fmt: skip
    with pytest.raises(KernelIndexError):
        run(build(program), A)


def test_rows_of_csr() -> None:
    program = kernel("P:int32[5], J:int32[9], V[9], X[6] -> Y[4]", """
    for i in range(4):
        Y[i] = 0.0
        for k in range(P[i + 1] - P[i]):
            Y[i] = Y[i] + V[P[i] + k] * X[J[P[i] + k]]
    """)  # fmt: skip
    p, j = np.array([0, 2, 2, 5, 9], "int32"), np.array([0, 5, 1, 2, 3, 0, 1, 4, 5], "int32")
    v, x = np.arange(9, dtype="f"), np.arange(6, dtype="f")
    assert agree(program, p, j, v, x) is None
    for bad in (np.array([0, 2, 2, 5, 10], "int32"), np.array([-1, 2, 2, 5, 9], "int32")):
        assert agree(program, bad, j, v, x) is KernelIndexError
    assert agree(program, np.array([0, 9, 999, 5, 9], "int32"), j, v, x) is KernelIndexError
    j[4] = 6
    assert agree(program, p, j, v, x) is KernelIndexError


def test_a_chain_that_leaves() -> None:
    """`while` follows links: the kernel ends where a link leads nowhere."""
    program = kernel("L:int64[6] -> C:int64[2]", """
    C[0] = 0
    C[1] = 0
    while L[C[0]] != C[0] and C[1] < 100:
        C[0] = L[C[0]]
        C[1] = C[1] + 1
    """)  # fmt: skip
    assert agree(program, np.array([2, 1, 4, 3, 1, 0])) is None
    assert agree(program, np.array([2, 1, 4, 3, 6, 0])) is KernelIndexError


# --- what does not fail ---------------------------------------------------------------------------

GUARDED = {
    "select": "C[v] = T.select(I[v] >= 0 and I[v] < 5, A[I[v]], -1.0)",
    "otherwise": "C[v] = T.select(I[v] < 0 or I[v] >= 5, -1.0, A[I[v]])",
    "another condition": "C[v] = T.select(G[v], A[I[v]], -1.0)",
    "if": "C[v] = -1.0\n        if G[v]:\n            C[v] = A[I[v]]",
    "if and else": "if not G[v]:\n            C[v] = -1.0\n        else:\n            C[v] = A[I[v]]",
    "and": "C[v] = T.select(G[v] and A[I[v]] >= 0.0, 1.0, -1.0)",
    "or": "C[v] = T.select(not G[v] or A[I[v]] >= 0.0, 1.0, -1.0)",
    "clamped": "C[v] = A[T.min(T.max(I[v], 0), 4)]",
    "remainder": "C[v] = A[I[v] % 5]",
    "division": "C[v] = T.cast(T.select(I[v] != 0, 7 // I[v], 0), 'float32')",
    "a sum": "C[v] = -1.0\n        if G[v]:\n            D[0] = D[0] + A[I[v]]",
    "a scatter": "C[v] = -1.0\n        if G[v]:\n            D[I[v]] = 1.0",
    "lanes of a start in memory": "C[v] = -1.0\n        if G[v]:\n            C[v] = B[I[0] + v]",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", GUARDED)
def test_what_is_not_evaluated_does_not_fail(how: str, kind: str) -> None:
    program = kernel(f"A[5], B[{N}], I:int64[{N}], G:bool[{N}] -> C[{N}], D[5]", f"""
    for i in range(5):
        D[i] = 0.0
    for v in T.{kind}({N}):
        {GUARDED[how]}
    """)  # fmt: skip
    if how == "a sum" and kind == "parallel":
        pytest.skip("a race")
    index = indices({1: 5, 7: -1, 8: 2**40, 12: -(2**63), N - 1: 2**63 - 1})
    good = (index >= 0) & (index < 5)
    b = np.arange(N, dtype="f")
    assert agree(program, A, b, index, good) is None
    assert agree(program, A, b, index, np.zeros(N, bool)) is None


def test_a_condition_on_what_the_loop_changes_proves_nothing() -> None:
    program = kernel("A[5], I:int64[3] -> C:int64[3], D[3]", """
    for i in range(3):
        C[i] = I[i]
    for i in range(3):
        D[i] = 0.0
        if C[i] >= 0 and C[i] < 5:
            C[i] = C[i] + 2
            D[i] = A[C[i]]
    """)  # fmt: skip
    assert agree(program, A, np.array([0, 9, 2])) is None
    assert agree(program, A, np.array([0, 3, 2])) is KernelIndexError


def test_a_guard_that_wraps_round_proves_nothing() -> None:
    """`i + 1 < 6` holds for the largest integer, whose successor is the least."""
    program = kernel("A[5], I:int64[3] -> C[3]", """
    for i in range(3):
        C[i] = T.select(I[i] >= 0 and I[i] + 1 < 6, A[I[i]], -1.0)
    """)  # fmt: skip
    assert agree(program, A, np.array([0, -1, 4])) is None
    assert agree(program, A, np.array([0, 2**63 - 1, 4])) is KernelIndexError


# --- proofs: no code where nothing can fail -------------------------------------------------------

PROVED = [
    "A[T.min(T.max(I[v], 0), 4)]",
    "A[I[v] % 5]",
    "A[(I[v] & 3) + 1]",
    "T.select(I[v] >= 0 and I[v] < 5, A[I[v]], -1.0)",
    "T.select(I[v] < 0, 0.0, T.select(I[v] > 4, 1.0, A[I[v]]))",
    "A[T.cast(U[v], 'int64') // 64]",
    "A[T.cast(G[v], 'int64') + 3]",
    "A[7 // (T.abs(I[v] % 3) + 2)]",
]


@pytest.mark.parametrize("value", PROVED)
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_what_is_proved_costs_nothing(value: str, kind: str) -> None:
    program = kernel(f"A[5], I:int64[{N}], U:uint8[{N}], G:bool[{N}] -> C[{N}]", f"""
    for v in T.{kind}({N}):
        C[v] = {value}
    """)  # fmt: skip
    made = {bounds: generate(program, resolve(), bounds=bounds) for bounds in ("checked", "unchecked")}
    assert made["checked"] == made["unchecked"]
    assert not made["checked"].failures


@pytest.mark.parametrize("name", ms.workloads.names())
def test_the_operators_of_the_paper_have_no_checks(name: str) -> None:
    program = ms.workloads.create(name, 0)
    space = ms.space.default("x86-64-v3")
    for candidate in (program, *[space.sample(program, seed).program for seed in range(2)]):
        found = lower(candidate)
        assert not any(found.unproved.known.values())
        assert not found.unproved.divisions


def test_unchecked_by_choice() -> None:
    x, index = te.placeholder((5, 16), name="X"), te.placeholder((9,), "int64", name="I")
    program = te.program([x, index], [te.compute((9, 16), lambda i, j: x[index[i], j], name="Y")])
    free, safe = ms.build(program, bounds="unchecked"), ms.build(program)
    assert not free.kernel.failures
    assert len(safe.kernel.failures) == 1
    assert "ms.fail" not in free.source("llvm")
    with pytest.raises(ValueError, match="bounds must be one of 'checked', 'unchecked', got 'off'"):
        ms.build(program, bounds="off")


def test_vectors_stay_vectors() -> None:
    program = kernel("A[5], I:int32[64] -> C[64]", """
    for v in T.vectorized(64):
        C[v] = A[I[v]]
    """)  # fmt: skip
    text = generate(program, resolve("x86-64-v3")).llvm
    assert "masked.gather.v32f32" in text
    assert "icmp uge <32 x i64>" in text
    assert "ms.fail" in text
    assert "load float" not in text


# --- te, schedules, messages ----------------------------------------------------------------------


def gather_rows() -> Program:
    x, index = te.placeholder((5, 16), name="X"), te.placeholder((9,), "int64", name="I")
    y = te.compute((9, 16), lambda i, j: x[index[i], j] * 2.0, name="Y")
    return te.program([x, index], [te.compute((9, 16), lambda i, j: y[i, j] + 1.0, name="Z")])


@pytest.mark.parametrize("seed", range(4))
def test_gathers_of_the_default_space(seed: int) -> None:
    program = gather_rows()
    exe = ms.build(ms.space.default("native").sample(program, seed))
    x, index = np.random.default_rng(0).random((5, 16), np.float32), np.arange(9) % 5
    np.testing.assert_array_equal(exe(x, index), x[index] * 2 + 1)
    for bad in (5, -1, 10**6, 2**40):
        index[seed] = bad
        with pytest.raises(KernelIndexError, match=rf"index {bad} is out of range for axis 0 of X") as error:
            exe(x, index)
        assert error.value.index == bad
        assert error.value.kernel == exe.name
    index[seed] = 0
    np.testing.assert_array_equal(exe(x, index), x[index] * 2 + 1)  # the failure left nothing behind


def test_benchmark_fails_as_a_call_does() -> None:
    exe = ms.build(gather_rows())
    with pytest.raises(KernelIndexError, match="index 77"):
        exe.benchmark(np.zeros((5, 16), "f"), np.full(9, 77))


def test_many_threads_fail_at_once() -> None:
    program = kernel("A[5], I:int64[4096] -> C[4096]", """
    for v in T.parallel(4096):
        C[v] = A[I[v]]
    """)  # fmt: skip
    exe = build(program)
    index = np.arange(4096) + 5
    for _ in range(20):
        with pytest.raises(KernelIndexError) as error:
            exe(A, index)
        assert error.value.index in index


# --- generated ------------------------------------------------------------------------------------

INDICES = [
    "I[v]",
    "I[v] + 1",
    "I[v] * 2",
    "T.max(I[v], 0)",
    "T.min(I[v], 4)",
    "I[v] // 2",
    "I[J[v]]",
    "v + I[0]",
]
CONDITIONS = ["I[v] >= 0", "I[v] < 5", "I[v] >= 0 and I[v] < 5", "J[v] > 0", "v < 13", "A[J[v]] > 1.0"]
VALUES = [
    "A[{index}]",
    "T.select({cond}, A[{index}], -1.0)",
    "T.select({cond}, 2.0, A[{index}])",
    "T.cast({index} // J[v], 'float32')",
    "T.select(J[v] != 0, T.cast(7 % J[v], 'float32'), A[{index}])",
]
STATEMENTS = [
    "C[v] = {value}",
    "C[v] = 0.0\n        if {cond}:\n            C[v] = {value}",
    "C[v] = 0.0\n        if v % 3 == 0:\n            D[{index}] = 1.0",
    "C[v] = 0.0\n        for k in range(3):\n            if {cond}:\n                C[v] = C[v] + {value}",
]


@given(st.data())
def test_generated_programs_fail_where_the_interpreter_does(data: st.DataObject) -> None:
    draw = data.draw
    index, cond = draw(st.sampled_from(INDICES)), draw(st.sampled_from(CONDITIONS))
    value = draw(st.sampled_from(VALUES)).format(index=index, cond=cond)
    text = draw(st.sampled_from(STATEMENTS)).format(value=value, cond=cond, index=index)
    count, kind = draw(st.sampled_from([1, 3, 8, 13, 19])), draw(st.sampled_from(KINDS))
    if "D[" in text and kind == "parallel":
        kind = "serial"  # a race
    program = kernel(f"A[5], I:int64[{count}], J:int32[{count}] -> C[{count}], D[5]", f"""
    for i in range(5):
        D[i] = 0.0
    for v in T.{kind}({count}):
        {text}
    """)  # fmt: skip
    numbers = st.one_of(st.integers(0, 2), st.integers(-2, 6), st.sampled_from([2**40, 2**63 - 1, -(2**63)]))
    i = np.array(draw(st.lists(numbers, min_size=count, max_size=count)), "int64")
    j = np.array(draw(st.lists(st.integers(-1, 4), min_size=count, max_size=count)), "int32")
    agree(program, A, i, j)


# --- the ways out of a kernel ---------------------------------------------------------------------


def test_saved_exported_and_in_a_sequence(tmp_path: Path) -> None:
    exe = ms.build(gather_rows())
    x, index, z = np.ones((5, 16), "f"), np.full(9, 7), np.zeros((9, 16), "f")
    exe.save(tmp_path / "rows.ms")
    with pytest.raises(KernelIndexError, match="index 7 is out of range"):
        ms.runtime.load(tmp_path / "rows.ms")(x, index)
    workspace = np.zeros(exe.kernel.workspace_bytes(1) + 64, "uint8")
    places = tuple(Place(n, 0) for n in (1, 2, 3))
    run_one = Sequence([KernelCall(exe, places, Place(4, -workspace.ctypes.data % 64))], bases=4)
    with pytest.raises(KernelIndexError, match="index 7 is out of range") as error:
        run_one(1, *[a.ctypes.data for a in (x, index, z, workspace)])
    assert error.value.kernel == exe.name
    if shutil.which("cc"):
        library = ctypes.CDLL(str(exe.export_library(tmp_path / "rows.so")))
        library.rows_message.restype = ctypes.c_char_p
        status = library.rows(*[ctypes.c_void_p(a.ctypes.data) for a in (x, index, z)])
        assert b"an index is out of range for axis 0 of X" in library.rows_message(status)
        assert "1: an index is out of range" in (tmp_path / "rows.h").read_text()
