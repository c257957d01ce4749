"""Copies that transpose square tiles in registers."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.ir import DTYPES, numpy_dtype
from tests.codegen.compiled import build, check, kernel


def transposing(n: int, dtype: str, source: str = "A[j * {n} + v, i * {n} + r]") -> str:
    return f"""
    for i in T.parallel(3):
        for j in range(2):
            for r in T.unrolled({n}):
                for v in T.vectorized({n}):
                    C[i * {n} + r, j * {n} + v] = {source.format(n=n)}
    """


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [4, 8, 16])
def test_square_tiles(n: int, dtype: str) -> None:
    program = kernel(f"A:{dtype}[{2 * n}, {3 * n}] -> C:{dtype}[{3 * n}, {2 * n}]", transposing(n, dtype))
    data = np.random.default_rng(n).integers(0, 100, (2 * n, 3 * n)).astype(numpy_dtype(dtype))
    (result,) = check(program, data)
    np.testing.assert_array_equal(result, data.T)
    text = build(program).source("llvm")
    assert "shufflevector" in text
    assert "gather" not in text


@pytest.mark.parametrize("n", [2, 3, 5, 7, 12])
def test_other_tiles(n: int) -> None:
    program = kernel(f"A[{2 * n}, {3 * n}] -> C[{3 * n}, {2 * n}]", transposing(n, "float32"))
    check(program)


@pytest.mark.parametrize(
    "source",
    [
        "A[j * 8 + v, i * 8 + 7 - r]",
        "A[j * 8 + 7 - v, i * 8 + r]",
        "A[j * 8 + v, (i * 8 + r) // 2]",
        "A[j * 8 + (v + r) % 8, i * 8 + r]",
        "A[j * 8 + v, i * 8 + r * v % 8]",
        "A[v, r]",
        "A[j * 8 + r, i * 8 + v]",
        "A[j * 8 + v, i * 8 + r] + 1.0",
    ],
)
def test_almost_a_transposition(source: str) -> None:
    check(kernel("A[16, 24] -> C[24, 16]", transposing(8, "float32", source)))


def test_rows_that_overlap_keep_their_order() -> None:
    check(kernel("A[64] -> C[15]", """
    for r in T.unrolled(8):
        for v in T.vectorized(8):
            C[r + v] = A[v * 8 + r]
    """))  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(13, 19), (8, 8), (7, 100), (33, 16)])
def test_with_tails(rows: int, columns: int) -> None:
    """Full tiles in registers, the border element by element."""
    program = kernel(f"A[{rows}, {columns}] -> C[{columns}, {rows}]", f"""
    for i, j in T.grid({-(-columns // 8)}, {-(-rows // 8)}):
        for r in T.unrolled(8):
            for v in T.vectorized(8):
                if i * 8 + r < {columns} and j * 8 + v < {rows}:
                    C[i * 8 + r, j * 8 + v] = A[j * 8 + v, i * 8 + r]
    """)  # fmt: skip
    check(program)


def interleaving(n: int, lanes: int, value: str = "A[i, r, v] + B[v]") -> str:
    return f"""
    for i in T.parallel(3):
        for r in T.unrolled({n}):
            for v in T.vectorized({lanes}):
                C[i, v * {n} + r] = {value}
    """


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("lanes", [2, 4, 5, 8, 16, 32])
def test_interleaved_vectors(n: int, lanes: int) -> None:
    program = kernel(f"A[3, {n}, {lanes}], B[{lanes}] -> C[3, {n * lanes}]", interleaving(n, lanes))
    check(program)
    if lanes == 4:
        assert "scatter" not in build(program).source("llvm")


@pytest.mark.parametrize(
    "value",
    [
        "T.select(r * 8 + v < 8, A[i, r, v], B[v])",
        "T.select(v < 3, A[i, r, v], B[v])",
        "B[v] * 2.0",
        "A[i, 1 - r, 7 - v]",
        "A[i, (r + v) % 2, v]",
    ],
)
def test_interleaved_values_of_any_kind(value: str) -> None:
    check(kernel("A[3, 2, 8], B[8] -> C[3, 16]", interleaving(2, 8, value)))


@pytest.mark.parametrize(
    "place", ["v * 2 + 1 - r", "v + 8 * r", "v * 2 + r * r", "v * 3 + r", "14 - v * 2 + r"]
)
def test_almost_interleaved(place: str) -> None:
    check(kernel("A[2, 8] -> C[24]", f"""
    for i in range(24):
        C[i] = 0.0
    for r in T.unrolled(2):
        for v in T.vectorized(8):
            C[{place}] = A[r, v]
    """))  # fmt: skip


def test_what_is_read_again_is_not_interleaved() -> None:
    check(kernel("A[16] -> C[16]", """
    for i in range(16):
        C[i] = A[i]
    for r in T.unrolled(2):
        for v in T.vectorized(8):
            C[v * 2 + r] = C[v * 2 + r] + A[v]
    """))  # fmt: skip


@pytest.mark.parametrize("size", [5, 58, 100])
def test_interleaved_with_tails(size: int) -> None:
    check(kernel(f"A[2, {size}] -> C[{2 * size}]", f"""
    for j in range({-(-size // 16)}):
        for r in T.unrolled(2):
            for v in T.vectorized(16):
                if j * 16 + v < {size}:
                    C[(j * 16 + v) * 2 + r] = A[r, j * 16 + v]
    """))  # fmt: skip
