"""Kernels tiled by hand in the script: what the code generator is measured with.

Each function gives the text of a program. The tiles are those that reach the limit of an AVX2 machine
(6x16 and 5x16 in float32); `lanes` is the width of a row of a tile, two hardware vectors.
"""

from __future__ import annotations

import math


def matmul(n: int, m: int, k: int, rows: int = 6, lanes: int = 16) -> str:
    """A small matrix product: no packing, the last tile of rows shifted back over the one before."""
    row = f"T.min(i0 * {rows}, {n - rows}) + i1"
    column = f"j0 * {lanes} + j1"
    return f"""
@ms.program
def matmul(A: T.Tensor(({n}, {k}), "float32"), B: T.Tensor(({k}, {m}), "float32"),
           C: T.Output(({n}, {m}), "float32")):
    acc = T.alloc(({n}, {m}), "float32", scope="local")
    for f in T.parallel({math.ceil(n / rows) * (m // lanes)}):
        with T.block("tile"):
            j0 = T.spatial({m // lanes}, f // {math.ceil(n / rows)})
            i0 = T.spatial({math.ceil(n / rows)}, f % {math.ceil(n / rows)})
            for i1 in T.unrolled({rows}):
                for j1 in T.vectorized({lanes}):
                    acc[{row}, {column}] = 0.0
            for k in range({k}):
                for i1 in T.unrolled({rows}):
                    for j1 in T.vectorized({lanes}):
                        acc[{row}, {column}] += A[{row}, k] * B[k, {column}]
            for i1 in T.unrolled({rows}):
                for j1 in T.vectorized({lanes}):
                    C[{row}, {column}] = acc[{row}, {column}]
"""


def matmul_packed(
    n: int, m: int, k: int, rows: int = 6, lanes: int = 16, depth: int | None = None, parts: int = 2
) -> str:
    """A large one: B packed into panels, the last tile of rows smaller. With a `depth` below k, C is revisited
    by panels of k."""
    depth = depth or k
    part = math.ceil(n / parts)
    tile = f"i0 * {rows} + i1 < {part}"
    row, column = f"p * {part} + i0 * {rows} + i1", f"j0 * {lanes} + j1"
    return f"""
@ms.program
def matmul_packed(A: T.Tensor(({n}, {k}), "float32"), B: T.Tensor(({k}, {m}), "float32"),
                  C: T.Output(({n}, {m}), "float32")):
    P = T.alloc(({m // lanes}, {k}, {lanes}), "float32")
    acc = T.alloc(({rows}, {lanes}), "float32", scope="local")
    for j0 in T.parallel({m // lanes}):
        for k0 in range({k}):
            for j1 in T.vectorized({lanes}):
                P[j0, k0, j1] = B[k0, j0 * {lanes} + j1]
    for p in T.parallel({parts}):
        for k0, j0, i0 in T.grid({k // depth}, {m // lanes}, {math.ceil(part / rows)}):
            if k0 == 0:
                for i1 in T.unrolled({rows}):
                    for j1 in T.vectorized({lanes}):
                        if {tile}:
                            acc[i1, j1] = 0.0
            else:
                for i1 in T.unrolled({rows}):
                    for j1 in T.vectorized({lanes}):
                        if {tile}:
                            acc[i1, j1] = C[{row}, {column}]
            for k1 in range({depth}):
                for i1 in T.unrolled({rows}):
                    for j1 in T.vectorized({lanes}):
                        if {tile}:
                            acc[i1, j1] += A[{row}, k0 * {depth} + k1] * P[j0, k0 * {depth} + k1, j1]
            for i1 in T.unrolled({rows}):
                for j1 in T.vectorized({lanes}):
                    if {tile}:
                        C[{row}, {column}] = acc[i1, j1]
"""


def convolution(
    size: int = 224, ci: int = 3, co: int = 64, kernel: int = 7, stride: int = 2, padding: int = 3,
    dilation: int = 1, columns: int = 5, lanes: int = 16,
) -> str:  # fmt: skip
    """A strided 2-D convolution, channels last: padded input and packed weights, a tile of output
    columns by output channels in registers, the last tile shifted back."""
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    padded = size + 2 * padding
    tiles = math.ceil(out / columns)
    column = f"T.min(w0 * {columns}, {out - columns}) + w1"
    return f"""
@ms.program
def convolution(X: T.Tensor((1, {size}, {size}, {ci}), "float32"),
                W: T.Tensor(({kernel}, {kernel}, {ci}, {co}), "float32"),
                Y: T.Output((1, {out}, {out}, {co}), "float32")):
    XP = T.alloc(({padded}, {padded * ci}), "float32")
    WP = T.alloc(({co // lanes}, {kernel}, {kernel}, {ci}, {lanes}), "float32")
    acc = T.alloc(({columns}, {lanes}), "float32", scope="local")
    for h in T.parallel({padded}):
        if h >= {padding} and h < {size + padding}:
            for q in T.vectorized({padding * ci}):
                XP[h, q] = 0.0
            for w in range({size // 8}):
                for q in T.vectorized({ci * 8}):
                    XP[h, w * {ci * 8} + q + {padding * ci}] = X[0, h - {padding}, w * 8 + q // {ci}, q % {ci}]
            for q in T.vectorized({padding * ci}):
                XP[h, q + {(size + padding) * ci}] = 0.0
        else:
            for q in T.vectorized({padded * ci}):
                XP[h, q] = 0.0
    for c0 in range({co // lanes}):
        for r in range({kernel}):
            for s in range({kernel}):
                for c in T.unrolled({ci}):
                    for v in T.vectorized({lanes}):
                        WP[c0, r, s, c, v] = W[r, s, c, c0 * {lanes} + v]
    for h in T.parallel({out}):
        for c0 in range({co // lanes}):
            for w0 in range({tiles}):
                for w1 in T.unrolled({columns}):
                    for v in T.vectorized({lanes}):
                        acc[w1, v] = 0.0
                for r in range({kernel}):
                    for s in range({kernel}):
                        for c in T.unrolled({ci}):
                            for w1 in T.unrolled({columns}):
                                for v in T.vectorized({lanes}):
                                    acc[w1, v] += XP[h * {stride} + r * {dilation}, ({column}) * {stride * ci} + s * {dilation * ci} + c] * WP[c0, r, s, c, v]
                for w1 in T.unrolled({columns}):
                    for v in T.vectorized({lanes}):
                        Y[0, h, {column}, c0 * {lanes} + v] = acc[w1, v]
"""


def softmax(rows: int, columns: int, lanes: int = 32) -> str:
    """Row by row: maximum, exponentials and their sum, scaling, each with a vector of accumulators."""
    return f"""
@ms.program
def softmax(X: T.Tensor(({rows}, {columns}), "float32"), Y: T.Output(({rows}, {columns}), "float32")):
    most = T.alloc(({lanes},), "float32", scope="local")
    total = T.alloc(({lanes},), "float32", scope="local")
    row_max = T.alloc((1,), "float32", scope="local")
    row_sum = T.alloc((1,), "float32", scope="local")
    for i in T.parallel({rows}):
        for v in T.vectorized({lanes}):
            most[v] = T.float32("-inf")
        for j in range({columns // lanes}):
            for v in T.vectorized({lanes}):
                most[v] = T.max(most[v], X[i, j * {lanes} + v])
        row_max[0] = T.float32("-inf")
        for v in T.vectorized({lanes}):
            row_max[0] = T.max(row_max[0], most[v])
        for v in T.vectorized({lanes}):
            total[v] = 0.0
        for j in range({columns // lanes}):
            for v in T.vectorized({lanes}):
                Y[i, j * {lanes} + v] = T.exp(X[i, j * {lanes} + v] - row_max[0])
                total[v] += Y[i, j * {lanes} + v]
        row_sum[0] = 0.0
        for v in T.vectorized({lanes}):
            row_sum[0] += total[v]
        row_sum[0] = 1.0 / row_sum[0]
        for j in range({columns // lanes}):
            for v in T.vectorized({lanes}):
                Y[i, j * {lanes} + v] = Y[i, j * {lanes} + v] * row_sum[0]
"""


def exponential(threads: int, size: int, repeats: int, lanes: int = 32) -> str:
    """exp of data that stays in the first-level cache, over and over: its throughput."""
    return f"""
@ms.program
def exponential(X: T.Tensor(({size},), "float32"), Y: T.Output(({threads}, {size}), "float32")):
    for t in T.parallel({threads}):
        for r in range({repeats}):
            for j in range({size // lanes}):
                for v in T.vectorized({lanes}):
                    Y[t, j * {lanes} + v] = T.exp(X[j * {lanes} + v] - T.cast(r, "float32"))
"""


def add(size: int, lanes: int = 32) -> str:
    """Element-wise sum of two vectors."""
    return f"""
@ms.program
def add(X: T.Tensor(({size},), "float32"), Y: T.Tensor(({size},), "float32"),
        Z: T.Output(({size},), "float32")):
    for i in T.parallel({size // lanes}):
        for v in T.vectorized({lanes}):
            Z[i * {lanes} + v] = X[i * {lanes} + v] + Y[i * {lanes} + v]
"""


def transpose(n: int, m: int, block: int = 8) -> str:
    """A transposing copy in square blocks that stay in registers."""
    return f"""
@ms.program
def transpose(X: T.Tensor(({n}, {m}), "float32"), Y: T.Output(({m}, {n}), "float32")):
    for j in T.parallel({m // block}):
        for i in range({n // block}):
            for r in T.unrolled({block}):
                for v in T.vectorized({block}):
                    Y[j * {block} + r, i * {block} + v] = X[i * {block} + v, j * {block} + r]
"""


def copy(n: int, m: int, lanes: int = 32) -> str:
    """A plain copy of a matrix."""
    return f"""
@ms.program
def copy(X: T.Tensor(({n}, {m}), "float32"), Y: T.Output(({n}, {m}), "float32")):
    for i in T.parallel({n}):
        for j in range({m // lanes}):
            for v in T.vectorized({lanes}):
                Y[i, j * {lanes} + v] = X[i, j * {lanes} + v]
"""
