"""Branches, while loops, assertions, tuple stores, blocks, extents that are data."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.codegen import generate
from metaschedule.interpreter import InterpreterError, interpret
from metaschedule.ir import Program
from metaschedule.runtime import Executable, KernelAssertion
from metaschedule.target import resolve
from tests.codegen.compiled import build, check, kernel, run

# --- branches and while -------------------------------------------------------------------------


def test_if_decides_before_it_stores() -> None:
    check(kernel("A[6] -> C[6]", """
    for i in range(6):
        C[i] = A[i]
    for i in range(6):
        if C[i] > 0.0:
            C[i] = -1.0
        else:
            C[i] = 1.0
    """))  # fmt: skip


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
def test_while(kind: str) -> None:
    """Collatz: how many steps to 1, in every kind of loop."""
    check(kernel("N:int64[9] -> C:int64[9]", f"""
    M = T.alloc((9,), "int64")
    for i in T.{kind}(9):
        C[i] = 0
        M[i] = N[i]
        while M[i] != 1 and C[i] < 1000:
            M[i] = T.select(M[i] % 2 == 0, M[i] // 2, M[i] * 3 + 1)
            C[i] = C[i] + 1
    """), np.array([1, 2, 3, 7, 9, 27, 97, 6, 1]))  # fmt: skip


def test_while_that_never_runs_and_nested() -> None:
    check(kernel("N:int64[4] -> C:int64[4], D:int64[4]", """
    for i in range(4):
        C[i] = 0
        D[i] = 0
        while C[i] < N[i]:
            C[i] = C[i] + 1
            while D[i] < C[i] * C[i]:
                D[i] = D[i] + C[i]
    """), np.array([0, -3, 1, 5]))  # fmt: skip


def test_guarded_reads_of_scalars() -> None:
    check(kernel("A[8], I:int64[6] -> C[6], D:bool[6]", """
    for i in range(6):
        C[i] = T.select(I[i] < 8, A[I[i]], -1.0)
        D[i] = I[i] < 8 and A[I[i]] > 0.0
        if I[i] >= 8 or A[I[i]] < 0.0:
            C[i] = C[i] - 1.0
    """), np.arange(8, dtype="f") - 3, np.array([0, 10**15, 7, 5, 10**16, 2]))  # fmt: skip


# --- data-dependent loops -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
def test_csr(dtype: str, kind: str) -> None:
    """A sparse matrix times a vector, one row empty."""
    program = kernel(f"P:{dtype}[5], I:{dtype}[10], D[10], X[6] -> Y[4]", f"""
    for i in T.{kind}(4):
        Y[i] = 0.0
        for j in T.vectorized(P[i + 1] - P[i]):
            Y[i] = Y[i] + D[P[i] + j] * X[I[P[i] + j]]
    """)  # fmt: skip
    starts, columns = np.array([0, 3, 3, 8, 10], dtype), np.arange(10).astype(dtype) % 6
    rng = np.random.default_rng(0)
    check(program, starts, columns, rng.integers(-4, 5, 10).astype("f"), np.arange(6, dtype="f"))


def test_triangular_and_negative_extents() -> None:
    check(kernel("A[7, 7], N:int64[1] -> C[7], D[1]", """
    D[0] = 3.0
    for i in range(N[0]):
        D[0] = 0.0
    for i in range(7):
        C[i] = 0.0
        for j in range(i + 1):
            C[i] = C[i] + A[i, j]
        for j in T.vectorized(i - 3):
            C[i] = C[i] * A[i, j]
    """), np.random.default_rng(0).integers(-2, 3, (7, 7)).astype("f"), np.array([-5]))  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3, 11])
@pytest.mark.parametrize("extent", [1, 2, 3, 12, 1000])
def test_threads_share_iterations_and_run_each_once(extent: int, threads: int) -> None:
    """The later an iteration, the more it has to do: threads that come to an end help others."""
    program = kernel(f"-> C:int64[{extent}]", f"""
    for i in range({extent}):
        C[i] = 0
    for i in T.parallel({extent}):
        for j in range(i + 1):
            C[i] = C[i] + 1
    """)  # fmt: skip
    exe = Executable(generate(program, resolve("native,cores=16")), threads=threads)
    for _ in range(5):
        assert np.array_equal(exe(), np.arange(1, extent + 1))


def test_parallel_loop_of_an_extent_in_memory() -> None:
    """It runs serially, and what is private to it has a place all the same."""
    check(kernel("N:int64[1], A[8] -> C[8]", """
    B = T.alloc((4000,), "float32")
    for i in T.parallel(N[0]):
        for j in range(4000):
            B[j] = A[i] + 1.0
        C[i] = B[3999]
    """), np.array([8]), np.arange(8, dtype="f"))  # fmt: skip


def test_extent_is_taken_when_the_loop_begins() -> None:
    check(kernel("A[9] -> C[9], N:int64[1]", """
    N[0] = 3
    for i in range(9):
        C[i] = 0.0
    for i in range(N[0]):
        N[0] = N[0] + 1
        C[i] = A[i]
    """))  # fmt: skip


# --- assertions ---------------------------------------------------------------------------------

ASSERTS = {
    "plain": """
    for i in range(20):
        assert A[i] < 5.0, "too large"
        C[i] = A[i]
    """,
    "parallel": """
    for i in T.parallel(20):
        assert A[i] < 5.0, "too large"
        C[i] = A[i]
    """,
    "vectorized": """
    for i in T.vectorized(20):
        assert A[i] < 5.0, "too large"
        C[i] = A[i]
    """,
    "masked": """
    for i in T.vectorized(20):
        if A[i] > -100.0:
            assert A[i] < 5.0, "too large"
        C[i] = A[i]
    """,
    "unrolled": """
    for i in T.unrolled(20):
        assert A[i] < 5.0, "too large"
        C[i] = A[i]
    """,
    "uniform in lanes": """
    for i in T.parallel(5):
        for j in T.vectorized(4):
            assert A[i * 4] < 5.0, "too large"
            C[i * 4 + j] = A[i * 4 + j]
    """,
    "in a serial loop around a parallel one": """
    for i in range(5):
        for j in T.parallel(4):
            assert A[i * 4 + j] < 5.0, "too large"
            C[i * 4 + j] = A[i * 4 + j]
    """,
    "before a read": """
    for i in T.vectorized(20):
        assert A[i] < 5.0, "too large"
        C[i] = A[T.cast(A[i], "int64")]
    """,
}


@pytest.mark.parametrize("where", ASSERTS)
def test_assertions(where: str) -> None:
    program = kernel("A[20] -> C[20]", ASSERTS[where])
    good, bad = np.zeros(20, "f"), np.zeros(20, "f")
    bad[8] = 1e15
    exe = build(program)
    np.testing.assert_array_equal(run(exe, good)[0], good)
    with pytest.raises(KernelAssertion, match="too large"):
        exe(bad)
    np.testing.assert_array_equal(run(exe, good)[0], good)  # the failure left nothing behind
    with pytest.raises(InterpreterError, match="too large"):
        interpret(program, bad)


def test_assertion_of_an_idle_lane_does_not_fail() -> None:
    check(kernel("A[16] -> C[16]", """
    for v in T.vectorized(16):
        C[v] = A[v]
        if A[v] > 0.0:
            assert A[v] > 0.0, "positive"
        else:
            assert A[v] <= 0.0, "not positive"
    """))  # fmt: skip


def test_which_assertion_and_its_text() -> None:
    program = kernel("A[4] -> C[4]", """
    for i in range(4):
        assert A[i] >= 0.0, "first"
        assert A[i] <= 9.0
        C[i] = A[i]
        assert C[i] != 5.0, "third, with \\"quotes\\" and 100% ünïcode"
    """)  # fmt: skip
    exe = build(program)
    with pytest.raises(KernelAssertion, match="first"):
        exe(np.array([-1, 0, 0, 0], "f"))
    with pytest.raises(KernelAssertion, match=r"A\[i\] <= 9\.0"):
        exe(np.array([0, 10, 0, 0], "f"))
    with pytest.raises(KernelAssertion, match='third, with "quotes" and 100% ünïcode'):
        exe(np.array([0, 5, -1, 0], "f"))


# --- tuple stores -------------------------------------------------------------------------------


def test_tuple_store_computes_before_it_stores() -> None:
    check(kernel("A:int64[4] -> C:int64[2], D:int64[4]", """
    for i in range(4):
        D[i] = A[i]
    C[0] = 1
    C[1] = 2
    C[0], C[1] = C[1], C[0]
    C[0], D[C[0]] = D[0], D[C[1]]
    """), np.array([3, 7, 8, 9]))  # fmt: skip


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled"])
def test_tuple_reduction(kind: str) -> None:
    """argmax over the inner loop, whatever the loops are."""
    body = f"""
    for i in T.{kind}(5):
        M[i] = -100.0
        P[i] = -1
        for k in T.{kind}(7):
            M[i], P[i] = (
                T.select(A[i, k] > M[i], A[i, k], M[i]),
                T.select(A[i, k] > M[i], k, P[i]),
            )
    """
    check(kernel("A[5, 7] -> M[5], P:int64[5]", body))


# --- blocks -------------------------------------------------------------------------------------


def test_nested_and_opaque_blocks_with_buffers_of_their_own() -> None:
    body = """
    for i0 in T.parallel(3):
        with T.block("outer"):
            vi = T.spatial(3, i0)
            L = T.alloc((4, 2), "float32")
            for j in range(4):
                with T.block("fill"):
                    vj = T.spatial(4, j)
                    vk = T.spatial(12, vi * 4 + j)
                    vl = T.spatial(12, vi * 4 + 3 - j)
                    L[vj, 0] = A[vk]
                    L[vj, 1] = A[vl]
            with T.block("opaque"):
                S = T.alloc((4,), "float32")
                for j in T.vectorized(4):
                    S[j] = L[j, 0] * 2.0 + L[j, 1]
                for j in T.vectorized(4):
                    L[j, 0] = S[3 - j]
            for j in T.vectorized(4):
                with T.block("copy"):
                    vj = T.spatial(4, j)
                    vk = T.spatial(12, vi * 4 + j)
                    C[vk] = L[vj, 0]
    """
    check(kernel("A[12] -> C[12]", body))


def test_init_and_predicate() -> None:
    """`init` in the first instance only, and instances outside the predicate not at all."""
    body = """
    for i0, k0, i1, k1 in T.grid(2, 3, 4, 2):
        with T.block("sum"):
            vi = T.spatial(7, i0 * 4 + i1)
            vk = T.reduce(5, k0 * 2 + k1)
            T.where(i0 * 4 + i1 < 7)
            T.where(k0 * 2 + k1 < 5)
            with T.init():
                C[vi] = 10.0
            C[vi] = C[vi] + A[vi, vk]
    """
    check(kernel("A[7, 5] -> C[7]", body))


def test_binding_that_the_block_overwrites() -> None:
    check(kernel("A:int64[4] -> C:int64[4], D:int64[4]", """
    for i in range(4):
        C[i] = A[i]
        D[i] = 0
    for i in range(4):
        with T.block("b"):
            vi = T.spatial(4, i)
            vj = T.spatial(4, C[i])
            C[vi] = 0
            D[vj] = D[vj] + vj
    """), np.array([1, 2, 3, 3]))  # fmt: skip


# --- other programs -----------------------------------------------------------------------------


def test_scalars_tables_and_nothing() -> None:
    check(kernel("A[] -> C[]", "C[()] = A[()] * 2.0"))
    check(kernel("A[0], B[3, 0] -> C[0], D[1]", """
    D[0] = 0.0
    for i in range(0):
        C[i] = A[i]
    for i, j in T.grid(3, 0):
        D[0] = B[i, j]
    """))  # fmt: skip


TABLES = {
    "float32": "[1.5, -2.0, 1e-40, 3.0]", "float64": "[1.5, -2.0, 0.1, 3.0]",
    "float16": "[1.5, -2.0, 6e-8, 65504.0]", "bfloat16": "[1.5, -2.0, 1e30, 3.0]",
    "int8": "[-128, 127, 0, 1]", "uint8": "[0, 255, 128, 1]", "int16": "[-32768, 32767, 0, 1]",
    "int32": "[-2147483648, 2147483647, 0, 1]", "int64": "[-9223372036854775808, 2, 0, 1]",
    "bool": "[True, False, True, True]",
}  # fmt: skip


@pytest.mark.parametrize("dtype", TABLES)
def test_embedded_tables(dtype: str) -> None:
    program = kernel(f"I:int64[9] -> C:{dtype}[9], D:{dtype}[4]", f"""
    W = T.table({TABLES[dtype]}, (4,), "{dtype}")
    for i in T.parallel(9):
        C[i] = W[I[i]]
    for v in T.vectorized(4):
        D[v] = W[v]
    """)  # fmt: skip
    check(program, np.arange(9) * 3 % 4)


def gpu_program() -> Program:
    return kernel("A[4] -> C[4]", """
    for i in T.bind(4, "threadIdx.x"):
        C[i] = A[i]
    """)  # fmt: skip


def test_gpu_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threadIdx\.x.*CPU has no such axis"):
        build(gpu_program())
