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
