"""Vectorised loops: every way of reading and writing, and what must stay serial."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.codegen import generate
from metaschedule.ir import DTYPES, Program, is_float, numpy_dtype
from metaschedule.target import resolve
from tests.codegen.compiled import build, check, kernel, run

# --- accesses -----------------------------------------------------------------------------------

READS = {
    "contiguous": "A[v + 3]",
    "strided": "A[v * 2 + 1]",
    "strided backwards": "A[40 - v * 2]",
    "reversed": "A[20 - v]",
    "broadcast": "A[5]",
    "gathered": "A[I[v]]",
    "divided": "A[v // 3]",
    "remainder": "A[v % 5 + 2]",
    "clipped": "A[T.min(v, 6)]",
    "start in memory": "A[I[0] + v]",
    "two lanes": "A[v] + A[v + 1] * A[20 - v]",
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 16, 19])
def test_reads(how: str, n: int) -> None:
    body = f"""
    for v in T.vectorized({n}):
        C[v] = {READS[how]}
    """
    index = np.random.default_rng(n).integers(0, 20, n).astype(np.int32)
    check(kernel(f"A[41], I:int32[{n}] -> C[{n}]", body), np.arange(41, dtype="f"), index)


@pytest.mark.parametrize("where", ["v", "18 - v", "v * 3", "I[v]", "v // 2", "v * 5 % 19", "7"])
def test_writes(where: str) -> None:
    """Where lanes meet, the last one stays."""
    body = f"""
    for i in range(60):
        C[i] = -1.0
    for v in T.vectorized(19):
        C[{where}] = A[v]
    """
    index = np.random.default_rng(1).integers(0, 6, 19).astype(np.int32)
    check(kernel("A[19], I:int32[19] -> C[60]", body), np.arange(19, dtype="f"), index)


@pytest.mark.parametrize("dtype", DTYPES)
def test_access_of_every_dtype(dtype: str) -> None:
    body = """
    for v in T.vectorized(21):
        C[v] = A[v]
        D[v] = A[20 - v]
        E[20 - v] = A[I[v]]
        F[v] = A[2]
        if v % 3 != 1:
            C[v] = A[v // 2]
    """
    program = kernel(
        f"A:{dtype}[21], I:int64[21] -> C:{dtype}[21], D:{dtype}[21], E:{dtype}[21], F:{dtype}[21]",
        body,
    )
    data = np.random.default_rng(0).integers(0, 100, 21).astype(numpy_dtype(dtype))
    check(program, data, np.random.default_rng(2).permutation(21))


def test_long_loop_in_pieces() -> None:
    """Longer than a few vectors: a loop of wide pieces, then the rest."""
    body = """
    for v in T.vectorized(1003):
        C[v] = A[v] * 2.0 + A[1002 - v]
    for v in T.vectorized(1003):
        S[0] = S[0] + A[v]
    """
    check(kernel("A[1003] -> C[1003], S[1]", "S[0] = 0.0\n" + body.replace("\n    ", "\n")))


# --- conditions in lanes ------------------------------------------------------------------------


def test_masked_reads_and_writes() -> None:
    body = """
    for i in range(16):
        C[i] = -1.0
    for v in T.vectorized(16):
        if A[v] > 0.0:
            C[v] = A[v] * 2.0
        else:
            if v < 11:
                C[v] = B[v]
    """
    check(kernel("A[16], B[11] -> C[16]", body))


GUARDED = {
    "select": "C[v] = T.select(v >= 3 and v < 11, A[v - 3], 0.5)",
    "select of the other": "C[v] = T.select(v < 3 or v >= 11, 0.5, A[v - 3])",
    "select in memory": "C[v] = T.select(I[v] < 8, A[I[v]], 0.0)",
    "nested select": "C[v] = T.select(v < 8, A[v], T.select(v < 12, A[v - 8], -1.0))",
    "and": "C[v] = T.select(I[v] < 8 and A[I[v]] > 0.0, 1.0, 2.0)",
    "or": "C[v] = T.select(I[v] >= 8 or A[I[v]] > 0.0, 1.0, 2.0)",
    "uniform and": "C[v] = T.select(I[0] < 8 and A[I[0]] > 0.0, 1.0, 2.0)",
    "uniform guard": "C[v] = T.select(I[1] < 8, A[I[1]] + B[v], B[v])",
    "index by select": "C[v] = A[T.select(I[v] < 8, I[v], 7)]",
    "uniform read under a mask": "C[v] = T.select(I[v] < 8, A[I[1] % 8], B[v])",
    "uniform read nowhere": "C[v] = T.select(B[v] > 100.0, A[I[1]], B[v])",
}


@pytest.mark.parametrize("how", GUARDED)
def test_guarded_reads(how: str) -> None:
    """What a condition guards against is not read: I has 1000, B is from -4 to 4, A has 8."""
    program = kernel("A[8], I:int64[16], B[16] -> C[16]", f"""
    for v in T.vectorized(16):
        {GUARDED[how]}
    """)  # fmt: skip
    data = np.random.default_rng(0)
    index = np.where(data.random(16) < 0.4, 10**15, data.integers(0, 8, 16))
    index[:2] = 3, 10**15  # far outside the address space of a process
    check(program, data.integers(-4, 5, 8).astype("f"), index, data.integers(-4, 5, 16).astype("f"))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["//", "%"])
def test_guarded_division(dtype: str, op: str) -> None:
    """Lanes that are not to divide would trap."""
    body = f"""
    for v in T.vectorized(16):
        C[v] = B[v]
        D[v] = T.select(B[v] != 0, A[v] {op} B[v], B[v])
        if B[v] != 0:
            C[v] = A[v] {op} B[v]
        if A[v] > 100:
            C[v] = A[v] {op} Z[0]
        E[v] = Z[0] != 0 and A[v] {op} Z[0] > 2
    """
    program = kernel(
        f"A:{dtype}[16], B:{dtype}[16], Z:{dtype}[1] -> C:{dtype}[16], D:{dtype}[16], E:bool[16]",
        body,
    )
    a = np.arange(16) * 5 - (0 if dtype == "uint8" else 40)
    b = np.arange(16) % 4 - (0 if dtype == "uint8" else 2)
    check(program, a.astype(dtype), b.astype(dtype), np.zeros(1, dtype))


def test_condition_and_loops_inside_lanes() -> None:
    body = """
    for v in T.vectorized(8):
        C[v] = 0.0
        for k in range(5):
            if A[k, v] > 0.0:
                for j in range(k):
                    C[v] = C[v] + A[j, v]
            else:
                C[v] = C[v] - 1.0
        for k in range(3):
            for j in range(T.select(k > 0, P[k], 2)):
                C[v] = C[v] + A[j, v]
    """
    check(kernel("A[5, 8], P:int64[3] -> C[8]", body), np.arange(40, dtype="f").reshape(5, 8) - 20,
          np.array([100, 1, 4]))  # fmt: skip


# --- carried from one iteration to the next -----------------------------------------------------

CARRIED = {
    "next element": "B[v + 1] = B[v] + A[v]",
    "last element": "B[v] = B[T.max(v - 1, 0)] + A[v]",
    "far element": "B[v + 4] = B[v] * 2.0",
    "prefix sum": """
        S[0] = S[0] + A[v]
        B[v] = S[0]""",
    "histogram": "B[I[v]] = B[I[v]] + 1.0",
    "pairs": "B[v // 2] = B[v // 2] * 2.0 + A[v]",
    "scatter, then gather": """
        B[I[v]] = A[v]
        C[v] = B[I[v]]""",
    "two stores, element by element": """
        if v % 2 == 1:
            B[v // 2] = A[v]
        if v % 2 == 0:
            B[v // 2] = A[v] * 3.0""",
    "diagonals": """
        for k in range(4):
            B[v + k] = A[v] - A[k]""",
    "diagonals, accumulated": """
        for k in range(4):
            B[v + k] = B[v + k] * 2.0 + A[v]""",
    "last that holds": """
        for k in range(4):
            if A[(v + k * k) % 16] > 0.0:
                S[0] = A[k]""",
    "two sums of one": """
        S[0] = S[0] + A[v]
        S[0] = S[0] * 2.0""",
    "sum and its use as an index": """
        J[0] = J[0] + 1
        B[J[0]] = A[v]""",
    "sums in a tuple": "S[0], D[0] = S[0] + A[v], D[0] + A[v] * A[v]",
    "swap": "B[v], C[v] = C[v] + A[v], B[v]",
    "largest and where": """
        S[0], D[0] = T.select(A[v] > S[0], A[v], S[0]), T.select(A[v] > S[0], 1.0 * v, D[0])""",
    "scatter after a loop": """
        for k in range(4):
            C[v] = C[v] * 2.0 + A[k]
        B[I[v]] = C[v] + A[v]""",
    "while": """
        while B[v] < A[v]:
            B[v] = B[v] + 1.0""",
}  # fmt: skip


@pytest.mark.parametrize("what", CARRIED)
def test_means_the_serial_loop(what: str) -> None:
    body = f"""
    J = T.alloc((1,), "int64")
    J[0] = 0
    S[0] = 0.0
    D[0] = 0.0
    for i in range(20):
        B[i] = 1.0
    for i in range(16):
        C[i] = 2.0
    for v in T.vectorized(16):
        {CARRIED[what].strip()}
    """.replace("1.0 * v", 'T.cast(v, "float32")')
    index = np.array([0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 0, 5, 0, 9, 9, 1], np.int32)
    data = np.random.default_rng(5).integers(-4, 5, 16).astype("f")
    check(kernel("A[16], I:int32[16] -> B[20], C[16], S[1], D[1]", body), data, index)


def test_own_row_stays_a_vector() -> None:
    """Lanes with elements of their own are run together, whatever happens inside a row."""
    body = """
    for i in range(3):
        for v in T.vectorized(8):
            for k in range(4):
                B[i, v, I[k] % 4] = A[v] + B[i, v, I[k] % 4]
                C[v + k * 8] = A[v] * A[k]
    """
    program = kernel("A[8], I:int32[4] -> B[3, 8, 4], C[32]", """
    for i, j, k in T.grid(3, 8, 4):
        B[i, j, k] = 0.0
    """.rstrip() + body)  # fmt: skip
    check(program)
    assert "fadd contract <8 x float>" in build(program).source("llvm")


@pytest.mark.parametrize("index", ["(i * 8 + v) // 12, (i * 8 + v) % 12", "i, v", "T.min(i * 8, 16), v"])
def test_fused_indices_stay_vectors(index: str) -> None:
    shape = "2, 12" if "12" in index else "24, 8"
    body = f"""
    for a, b in T.grid({shape}):
        C[a, b] = 0.0
    for i in range(3):
        for v in T.vectorized(8):
            for k in range(5):
                C[{index}] = C[{index}] + A[k] * B[v]
    """
    program = kernel(f"A[5], B[8] -> C[{shape}]", body)
    check(program)
    assert "fmul contract <8 x float>" in build(program).source("llvm")


# --- reductions ---------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": "S[0] + A[v]",
    "product": "S[0] * A[v]",
    "smallest": "T.min(S[0], A[v])",
    "largest": "T.max(A[v], S[0])",
}


@pytest.mark.parametrize("what", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize("n", [8, 13])
def test_reductions(what: str, dtype: str, n: int) -> None:
    program = kernel(f"A:{dtype}[{n}] -> S:{dtype}[1]", f"""
    S[0] = A[0]
    for v in T.vectorized({n}):
        S[0] = {REDUCTIONS[what]}
    """)  # fmt: skip
    data = np.random.default_rng(n).permutation([1, 2, -1, 2, 3, -2, 1, 4, -1, 2, 1, -3, 1][:n])
    check(program, np.abs(data).astype(dtype) if dtype == "uint8" else data.astype(dtype))
    assert "llvm.vector.reduce" in build(program).source("llvm")


@pytest.mark.parametrize("what", ["smallest", "largest"])
@pytest.mark.parametrize("at", [0, 3, 12])
def test_reduction_with_nan(what: str, at: int) -> None:
    program = kernel("A[13] -> S[1]", f"""
    S[0] = 1.0
    for v in T.vectorized(13):
        S[0] = {REDUCTIONS[what]}
    """)  # fmt: skip
    data = np.arange(13, dtype="f")
    data[at] = np.nan
    assert np.isnan(check(program, data)[0]).all()


def test_masked_reduction() -> None:
    """Idle lanes contribute nothing, and rows that do not exist are neither read nor written."""
    body = """
    for i in range(5):
        S[i] = 0.0
        M[i] = -100.0
        P[i] = 1
    for i0, i1, k0 in T.grid(2, 3, 3):
        for v in T.vectorized(8):
            if i0 * 3 + i1 < 5 and k0 * 8 + v < 19 and A[i0 * 3 + i1, k0 * 8 + v] > -2.0:
                S[i0 * 3 + i1] = S[i0 * 3 + i1] + A[i0 * 3 + i1, k0 * 8 + v]
                M[i0 * 3 + i1] = T.max(M[i0 * 3 + i1], A[i0 * 3 + i1, k0 * 8 + v])
                P[i0 * 3 + i1] = P[i0 * 3 + i1] * B[k0 * 8 + v]
    """
    check(kernel("A[5, 19], B:int32[19] -> S[5], M[5], P:int32[5]", body))


def test_float_sum_is_close() -> None:
    program = kernel("A[1000] -> S[1]", """
    S[0] = 0.0
    for v in T.vectorized(1000):
        S[0] = S[0] + A[v]
    """)  # fmt: skip
    data = np.random.default_rng(0).standard_normal(1000).astype("f")
    (result,) = run(build(program), data)
    bound = 1000 * 2**-24 * np.abs(data).sum()
    assert abs(float(result[0]) - data.astype(float).sum()) < bound


@pytest.mark.parametrize("dtype", [d for d in DTYPES if is_float(d)])
def test_inner_product_in_vectors(dtype: str) -> None:
    """Accumulated lane by lane over an outer loop, then added up."""
    body = f"""
    L = T.alloc((8,), "{dtype}")
    for v in T.vectorized(8):
        L[v] = T.cast(0.0, "{dtype}")
    for k in range(5):
        for v in T.vectorized(8):
            L[v] = L[v] + A[k * 8 + v] * B[k * 8 + v]
    S[0] = T.cast(0.0, "{dtype}")
    for v in T.vectorized(8):
        S[0] = S[0] + L[v]
    """
    check(kernel(f"A:{dtype}[40], B:{dtype}[40] -> S:{dtype}[1]", body))


# --- tails of narrow elements -------------------------------------------------------------------

NARROWED = [("int32", "int16"), ("int32", "int8"), ("int64", "int32"), ("float32", "bfloat16")]
NARROWED += [("int16", "uint8"), ("float32", "float16"), ("float64", "float32"), ("int64", "int8")]


def narrowed(wide: str, narrow: str, lanes: int, n: int, limit: str) -> Program:
    """Columns outermost: what is written beyond the end of a row is not written again."""
    body = f"""
    for j in range(2):
        for i in range(5):
            for v in T.vectorized({lanes}):
                if j * {lanes} + v < {limit}:
                    C[i, j * {lanes} + v] = T.cast(A[i, j * {lanes} + v], "{narrow}")
    """
    return kernel(f"A:{wide}[5, {n}], N:int64[1] -> C:{narrow}[5, {n}]", body)


@pytest.mark.parametrize(("wide", "narrow"), NARROWED)
@pytest.mark.parametrize("tail", [1, 2, 3])
@pytest.mark.parametrize("limit", ["n", "N[0]", "T.min(N[0], n)"])
@pytest.mark.parametrize("lanes", [4, 16])
def test_a_tail_of_narrowed_elements_ends_where_it_should(
    wide: str, narrow: str, tail: int, limit: str, lanes: int
) -> None:
    n = lanes + tail
    program = narrowed(wide, narrow, lanes, n, limit.replace("n", str(n)).replace(f"mi{n}", "min"))
    values = np.random.default_rng(0).integers(1, 100, (5, n)).astype(numpy_dtype(wide))
    check(program, values, np.array([n]))


def test_no_masked_store_of_a_single_lane_for_avx512() -> None:
    """LLVM 22 would store more than the lane (`Memory.hidden`)."""
    target = resolve("x86-64-v4")
    known = generate(narrowed("int32", "int16", 16, 17, "17"), target).llvm
    stores = [line for line in known.splitlines() if "call void @llvm.masked.store" in line]
    assert not [line for line in stores if line.count("i1 true") == 1]
    later = generate(narrowed("int32", "int16", 16, 17, "N[0]"), target).llvm
    assert 'asm ""' in later
    assert 'asm ""' not in generate(narrowed("int32", "int16", 16, 17, "N[0]"), resolve("x86-64-v3")).llvm
