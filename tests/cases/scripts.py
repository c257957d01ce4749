"""The cases that tensor expressions cannot say, as scripts; `programs.py` has the table of all."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaschedule.ir import Program
from metaschedule.script import parse
from tests.cases.case import Arrays, integers


def searchsorted() -> Program:
    """17960: binary search with a `while`."""
    return parse(
        """
@ms.program
def searchsorted(
    A: T.Tensor((10,), "int32"), Q: T.Tensor((5,), "int32"), Out: T.Output((5,), "int32")
):
    for i in range(5):
        with T.block("search"):
            v_i = T.spatial(5, i)
            T.reads(A[0 : T.size(10)], Q[v_i])
            T.writes(Out[v_i])
            low = T.alloc((1,), "int32", scope="local")
            high = T.alloc((1,), "int32", scope="local")
            low[0] = 0
            high[0] = 10
            while low[0] < high[0]:
                if A[(low[0] + high[0]) // 2] < Q[v_i]:
                    low[0] = (low[0] + high[0]) // 2 + 1
                else:
                    high[0] = (low[0] + high[0]) // 2
            Out[v_i] = low[0]
"""
    )


def searchsorted_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    a, q = (rng.integers(-9, 10, b.shape).astype(np.int32) for b in program.inputs)
    return [np.sort(a), q]


def top_k(rows: int = 128) -> Program:
    """17973: the 10 largest of 64, values and positions, by selection; the body is opaque."""
    return parse(
        f"""
@ms.program
def top_k(
    X: T.Tensor(({rows}, 64), "float32"),
    Values: T.Output(({rows}, 10), "float32"),
    Indices: T.Output(({rows}, 10), "int64"),
):
    for i in range({rows}):
        with T.block("top_k"):
            v_i = T.spatial({rows}, i)
            T.reads(X[v_i, 0 : T.size(64)])
            T.writes(Values[v_i, 0 : T.size(10)], Indices[v_i, 0 : T.size(10)])
            taken = T.alloc((64,), "bool", scope="local")
            best = T.alloc((1,), "int64", scope="local")
            for j in range(64):
                taken[j] = False
            for n in range(10):
                best[0] = -1
                for j in range(64):
                    if not taken[j]:
                        if best[0] < 0:
                            best[0] = j
                        else:
                            if X[v_i, j] > X[v_i, best[0]]:
                                best[0] = j
                taken[best[0]] = True
                Values[v_i, n] = X[v_i, best[0]]
                Indices[v_i, n] = best[0]
"""
    )


def top_k_reference(x: np.ndarray) -> Any:
    order = np.argsort(-x, axis=1, kind="stable")[:, :10]
    return np.take_along_axis(x, order, axis=1), order


def reverse_sequence() -> Program:
    """18423: the first `lengths[i]` elements of each row reversed, in place in the output."""
    return parse(
        """
@ms.program
def reverse_sequence(
    X: T.Tensor((8, 5), "float32"), lengths: T.Tensor((8,), "int32"), Y: T.Output((8, 5), "float32")
):
    for i, j in T.grid(8, 5):
        with T.block("copy"):
            v_i = T.spatial(8, i)
            v_j = T.spatial(5, j)
            T.reads(X[v_i, v_j])
            T.writes(Y[v_i, v_j])
            Y[v_i, v_j] = X[v_i, v_j]
    for i in range(8):
        with T.block("reverse"):
            v_i = T.spatial(8, i)
            T.reads(lengths[v_i], Y[v_i, 0 : T.size(5)])
            T.writes(Y[v_i, 0 : T.size(5)])
            for j in range(lengths[v_i] // 2):
                Y[v_i, j], Y[v_i, lengths[v_i] - 1 - j] = Y[v_i, lengths[v_i] - 1 - j], Y[v_i, j]
"""
    )


def reverse_sequence_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    x, _ = integers(program, rng)
    return [x, rng.integers(0, 6, 8).astype(np.int32)]


def reverse_sequence_reference(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    y = x.copy()
    for row, n in zip(y, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    return y


def assertion() -> Program:
    """18387"""
    return parse(
        """
@ms.program
def root(A: T.Tensor((16,), "float32"), B: T.Output((16,), "float32")):
    for i in range(16):
        with T.block("root"):
            v_i = T.spatial(16, i)
            T.reads(A[v_i])
            T.writes(B[v_i])
            assert A[v_i] >= 0.0, "the root of a negative number"
            B[v_i] = T.sqrt(A[v_i])
"""
    )


def assertion_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    return [np.square(x) for x in integers(program, rng)]


def opaque_matmul(n: int = 512) -> Program:
    """12907: one block without iterators and without init."""
    return parse(
        f"""
@ms.program
def opaque_matmul(
    A: T.Tensor(({n}, {n}), "float32"),
    B: T.Tensor(({n}, {n}), "float32"),
    C: T.Output(({n}, {n}), "float32"),
):
    with T.block("matmul"):
        T.reads(A[0 : T.size({n}), 0 : T.size({n})], B[0 : T.size({n}), 0 : T.size({n})])
        T.writes(C[0 : T.size({n}), 0 : T.size({n})])
        for i, j in T.grid({n}, {n}):
            C[i, j] = 0.0
            for k in range({n}):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
    )


def difference() -> Program:
    """15209: B[i] = B[i] - A[i, k] is no associative combination."""
    return parse(
        """
@ms.program
def difference(A: T.Tensor((64, 64), "float32"), B: T.Output((64,), "float32")):
    for i, k in T.grid(64, 64):
        with T.block("difference"):
            v_i = T.spatial(64, i)
            v_k = T.reduce(64, k)
            T.reads(A[v_i, v_k])
            T.writes(B[v_i])
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] - A[v_i, v_k]
"""
    )
