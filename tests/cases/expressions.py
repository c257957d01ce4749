"""The cases that are tensor expressions; `programs.py` has the table of all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from metaschedule import te
from metaschedule.ir import Expr, Program
from tests.cases.case import Arrays, integers


def pooling_gradients(c: int = 16, h: int = 32) -> Program:
    """17934: of 2x2 max pooling (to the first largest of a window) and of 2x2 average pooling."""
    x = te.placeholder((1, c, h, h), name="X")
    d_max = te.placeholder((1, c, h // 2, h // 2), name="D_max")
    d_mean = te.placeholder((1, c, h // 2, h // 2), name="D_mean")
    i, j = te.reduce_axis(2, name="i"), te.reduce_axis(2, name="j")
    best = te.compute(
        d_max.shape,
        lambda n, c, h, w: te.argmax(x[n, c, h * 2 + i, w * 2 + j], axis=[i, j]),
        name="best",
    )
    of_max = te.compute(
        x.shape,
        lambda n, c, h, w: te.select(
            best[n, c, h // 2, w // 2] == h % 2 * 2 + w % 2, d_max[n, c, h // 2, w // 2], 0
        ),
        name="of_max",
    )
    of_mean = te.compute(x.shape, lambda n, c, h, w: d_mean[n, c, h // 2, w // 2] * 0.25, name="of_mean")
    return te.program([x, d_max, d_mean], [of_max, of_mean], name="pooling_gradients")


def pooling_gradients_reference(x: np.ndarray, d_max: np.ndarray, d_mean: np.ndarray) -> Any:
    of_max = np.zeros_like(x)
    _, channels, height, width = d_max.shape
    for c in range(channels):
        for h in range(height):
            for w in range(width):
                window = x[0, c, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2]
                at = divmod(int(window.argmax()), 2)
                of_max[0, c, 2 * h + at[0], 2 * w + at[1]] = d_max[0, c, h, w]
    return of_max, np.repeat(np.repeat(d_mean, 2, 2), 2, 3) / 4


def max_reduction(n: int = 64, m: int = 37) -> Program:
    """18380"""
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis(m)
    return te.program([x], [te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="max")])


def gather(n: int = 32, m: int = 16) -> Program:
    """18424: along axis 1, by int64 indices."""
    x, at = te.placeholder((n, m), name="X"), te.placeholder((n, m), "int64", name="at")
    return te.program([x, at], [te.compute((n, m), lambda i, j: x[i, at[i, j]], name="gather")])


def gather_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    x, at = program.inputs
    return [*integers(program, rng)[:1], rng.integers(0, x.shape[1], at.shape)]


def addition(n: int = 32, m: int = 64) -> Program:
    """18383: one of two equal functions."""
    x, y = te.placeholder((n, m), name="X"), te.placeholder((n, m), name="Y")
    return te.program([x, y], [te.compute((n, m), lambda i, j: x[i, j] + y[i, j], name="add")])


def group_norm(groups: int = 4) -> Program:
    """17936: sum and sum of squares in one tuple reduction."""
    n, c, h, w = 2, 8, 7, 7
    size = c // groups
    x = te.placeholder((n, c, h, w), name="X")
    scale, offset = te.placeholder((c,), name="scale"), te.placeholder((c,), name="offset")
    axes = [te.reduce_axis(e, name=a) for e, a in zip((size, h, w), "chw", strict=True)]

    def moments(n: Expr, g: Expr) -> tuple[Expr, Expr]:
        value = x[n, g * size + axes[0], axes[1], axes[2]]
        return te.sum(value, axis=axes), te.sum(value * value, axis=axes)

    total, squares = te.compute((n, groups), moments, name="moments")
    count = size * h * w

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        mean, g = total[n, c // size] / count, c // size
        spread = squares[n, g] / count - mean * mean
        return (x[n, c, h, w] - mean) * te.rsqrt(spread + 1e-5) * scale[c] + offset[c]

    y = te.compute(x.shape, element, name="normalised")
    return te.program([x, scale, offset], [y], name="group_norm")


def group_norm_reference(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    rows = x.astype(np.float64).reshape(2, 4, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    return rows.reshape(x.shape) * scale[:, None, None] + offset[:, None, None]


def dense_add(m: int = 1, n: int = 1000, k: int = 512) -> Program:
    """14137"""
    x, w = te.placeholder((m, k), name="X"), te.placeholder((n, k), name="W")
    bias = te.placeholder((m, n), name="bias")
    r = te.reduce_axis(k)
    dense = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[j, r], axis=r), name="dense")
    y = te.compute((m, n), lambda i, j: dense[i, j] + bias[i, j], name="add")
    return te.program([x, w, bias], [y], name="dense_add")


def matmul(n: int = 8192, m: int = 14336, k: int = 8192) -> Program:
    """15987"""
    x, y = te.placeholder((n, k), name="X"), te.placeholder((k, m), name="Y")
    r = te.reduce_axis(k)
    z = te.compute((n, m), lambda i, j: te.sum(x[i, r] * y[r, j], axis=r), name="matmul")
    return te.program([x, y], [z], name="matmul")


def mean(c: int = 2048) -> Program:
    """13203: over 7x7 of (1, 7, 7, c)."""
    x = te.placeholder((1, 7, 7, c), name="X")
    i, j = te.reduce_axis(7, name="i"), te.reduce_axis(7, name="j")
    y = te.compute(
        (1, 1, 1, c),
        lambda n, h, w, c: te.sum(x[n, h + i, w + j, c], axis=[i, j]) / 49.0,
        name="mean",
    )
    return te.program([x], [y], name="mean")


def weight_gradient(ci: int = 128, co: int = 128) -> Program:
    """8991: of a 3x3 convolution with padding 1 of a 7x7 image."""
    x = te.placeholder((1, ci, 7, 7), name="X")
    dy = te.placeholder((1, co, 7, 7), name="DY")
    padded = te.compute(
        (1, ci, 9, 9),
        lambda n, c, h, w: te.select(te.all_of(h >= 1, h < 8, w >= 1, w < 8), x[n, c, h - 1, w - 1], 0),
        name="pad",
    )
    n, h, w = (te.reduce_axis(e, name=a) for e, a in ((1, "n"), (7, "h"), (7, "w")))
    y = te.compute(
        (co, ci, 3, 3),
        lambda o, c, i, j: te.sum(padded[n, c, h + i, w + j] * dy[n, o, h, w], axis=[n, h, w]),
        name="gradient",
    )
    return te.program([x, dy], [y], name="weight_gradient")


def weight_gradient_reference(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    shifted = [[padded[:, :, i : i + 7, j : j + 7] for j in range(3)] for i in range(3)]
    return np.einsum("ijnchw,nohw->ocij", np.array(shifted), dy)


def sparse_dense(n: int = 256, m: int = 256, k: int = 256, entries: int = 6554) -> Program:
    """12929: compressed sparse rows (n, k) times dense (k, m); a tenth of the elements."""
    data = te.placeholder((entries,), name="data")
    columns = te.placeholder((entries,), "int32", name="columns")
    starts = te.placeholder((n + 1,), "int32", name="starts")
    y = te.placeholder((k, m), name="Y")

    def element(i: Expr, j: Expr) -> Expr:
        e = te.reduce_axis((starts[i], starts[i + 1]), name="e")
        return te.sum(data[e] * y[columns[e], j], axis=e)

    z = te.compute((n, m), element, name="product")
    return te.program([data, columns, starts, y], [z], name="sparse_dense")


def sparse_dense_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    data, _, starts, y = integers(program, rng)
    cuts = np.sort(rng.integers(0, len(data) + 1, len(starts) - 2))
    starts = np.array([0, *cuts, len(data)], np.int32)  # some rows are empty
    columns = rng.integers(0, len(y), len(data)).astype(np.int32)
    return [data, columns, starts, y]


def sparse_dense_reference(
    data: np.ndarray, columns: np.ndarray, starts: np.ndarray, y: np.ndarray
) -> np.ndarray:
    dense = np.zeros((len(starts) - 1, len(y)), np.float32)
    for i, (a, b) in enumerate(pairwise(starts)):
        np.add.at(dense[i], columns[a:b], data[a:b])
    return dense @ y


def dense_int8(m: int = 32, n: int = 32, k: int = 64) -> Program:
    """18224: uint8 times int8 to int32, in dot products of 4 elements."""
    x, w = te.placeholder((m, k), "uint8", name="X"), te.placeholder((n, k), "int8", name="W")
    ko, ki = te.reduce_axis(k // 4, name="ko"), te.reduce_axis(4, name="ki")
    y = te.compute(
        (m, n),
        lambda i, j: te.sum(
            te.cast(x[i, ko * 4 + ki], "int32") * te.cast(w[j, ko * 4 + ki], "int32"), axis=[ko, ki]
        ),
        name="dense",
    )
    return te.program([x, w], [y], name="dense_int8")


def elementwise(n: int = 128, m: int = 128) -> Program:
    """16288"""
    x = te.placeholder((n, m), name="X")
    return te.program([x], [te.compute((n, m), lambda i, j: x[i, j] * 2.0 + 1.0, name="map")])


def sine_of_sum(n: int = 100) -> Program:
    """15198"""
    x = te.placeholder((n,), name="X")
    k = te.reduce_axis(n)
    total = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="sum")
    return te.program([x], [te.compute((1,), lambda i: te.sin(total[i]), name="sin")])


def conv1d_transpose(length: int = 224, co: int = 32) -> Program:
    """15201: (1, 3, 224) -> (1, 32, 450), kernel 4, stride 2."""
    x, w = te.placeholder((1, 3, length), name="X"), te.placeholder((3, co, 4), name="W")
    out = (length - 1) * 2 + 4
    spread = te.compute(
        (1, 3, out + 3),
        lambda n, c, i: te.select(
            te.all_of(i >= 3, i < 3 + 2 * length - 1, (i - 3) % 2 == 0), x[n, c, (i - 3) // 2], 0
        ),
        name="spread",
    )
    c, k = te.reduce_axis(3, name="c"), te.reduce_axis(4, name="k")
    y = te.compute(
        (1, co, out),
        lambda n, o, i: te.sum(spread[n, c, i + k] * w[c, o, 3 - k], axis=[c, k]),
        name="conv",
    )
    return te.program([x, w], [y], name="conv1d_transpose")


def conv1d_transpose_reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    out = np.zeros((1, w.shape[1], (x.shape[2] - 1) * 2 + 4), np.float32)
    for i in range(x.shape[2]):
        out[0, :, 2 * i : 2 * i + 4] += np.einsum("c,cok->ok", x[0, :, i], w)
    return out


TABLE = (np.arange(40) * 7 % 41 - 20).reshape(2, 2, 10).astype(np.float32)


def min_of_table() -> Program:
    """15203: comparisons as indices."""
    table = te.table(TABLE, name="table")
    k = te.reduce_axis(8)
    y = te.compute(
        (16, 10),
        lambda i, j: te.min(table[te.cast(i < k, "int64"), te.cast(j >= k, "int64"), j], axis=k),
        name="min",
    )
    return te.program([], [y], name="min_of_table")


def min_of_table_reference() -> np.ndarray:
    i, j, k = np.ogrid[:16, :10, :8]
    return TABLE[(i < k).astype(int), (j >= k).astype(int), j].min(axis=2)


def read_past_the_end() -> Program:
    """15205: sum of 64 reads of a 3-element constant. Must be refused."""
    table = te.table([1.0, 2.0, 3.0], name="table")
    k = te.reduce_axis(64)
    return te.program([], [te.compute((1,), lambda i: te.sum(table[k], axis=k), name="sum")])


def sum_of_middle(n: int = 256) -> Program:
    """17799"""
    x = te.placeholder((n, n, n), name="X")
    k = te.reduce_axis(n)
    return te.program([x], [te.compute((n, n), lambda i, j: te.sum(x[i, k, j], axis=k), name="sum")])


def three_maps(n: int = 1024) -> Program:
    """15911: C = A + B, D = C + C, E = D + A."""
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    d = te.compute((n,), lambda i: c[i] + c[i], name="D")
    return te.program([a, b], [te.compute((n,), lambda i: d[i] + a[i], name="E")])


def adaptive_argmax(n: int = 77, out: int = 32) -> Program:
    """Halide 8256: where the largest of `out` averages of overlapping pieces is, float64."""
    x = te.placeholder((3, n), "float64", name="X")

    def average(b: Expr, i: Expr) -> Expr:
        low, high = i * n // out, ((i + 1) * n + out - 1) // out
        k = te.reduce_axis((low, high))
        return te.sum(x[b, k], axis=k) / te.cast(high - low, "float64")

    pool = te.compute((3, out), average, name="pool")
    k = te.reduce_axis(out)
    y = te.compute((3,), lambda b: te.argmax(pool[b, k], axis=k), name="argmax")
    return te.program([x], [y], name="adaptive_argmax")


def adaptive_argmax_reference(x: np.ndarray) -> np.ndarray:
    n, out = x.shape[1], 32
    pieces = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
    return np.array([x[:, a:b].sum(1) / (b - a) for a, b in pieces]).argmax(0)


def embedding(rows: int = 50, n: int = 20) -> Program:
    """Halide 8308: negative indices wrapped, then clamped; rows of 64."""
    table = te.placeholder((rows, 64), name="embedding")
    at = te.placeholder((n,), "int32", name="at")

    def element(i: Expr, j: Expr) -> Expr:
        wrapped = te.select(at[i] < 0, at[i] + rows, at[i])
        return table[te.minimum(te.maximum(wrapped, 0), rows - 1), j]

    return te.program([table, at], [te.compute((n, 64), element, name="rows")], name="embedding")


def embedding_inputs(program: Program, rng: np.random.Generator) -> Arrays:
    table, at = integers(program, rng)
    return [table, rng.integers(-60, 60, at.shape).astype(np.int32)]


def embedding_reference(table: np.ndarray, at: np.ndarray) -> np.ndarray:
    return table[np.clip(np.where(at < 0, at + len(table), at), 0, len(table) - 1)]


def concatenate_pool(c: int = 48, h: int = 64) -> Program:
    """20401: three branches concatenated to (1, 3c, h, h), 2x2 max pooling, + 1."""
    inputs = [te.placeholder((1, c, h, h), name=name) for name in "ABC"]
    a, b, d = (
        te.compute((1, c, h, h), lambda n, c, h, w, x=x: te.maximum(x[n, c, h, w], 0), name="relu")
        for x in inputs
    )
    joined = te.compute(
        (1, 3 * c, h, h),
        lambda n, k, h, w: te.select(
            k < c,
            a[n, k, h, w],
            te.select(k < 2 * c, b[n, k - c, h, w], d[n, k - 2 * c, h, w]),
        ),
        name="concatenate",
    )
    i, j = te.reduce_axis(2, name="i"), te.reduce_axis(2, name="j")
    pooled = te.compute(
        (1, 3 * c, h // 2, h // 2),
        lambda n, c, h, w: te.max(joined[n, c, h * 2 + i, w * 2 + j], axis=[i, j]),
        name="pool",
    )
    y = te.compute(pooled.shape, lambda n, c, h, w: pooled[n, c, h, w] + 1.0, name="add")
    return te.program(inputs, [y], name="concatenate_pool")


def concatenate_pool_reference(*inputs: np.ndarray) -> np.ndarray:
    joined = np.maximum(np.concatenate(inputs, axis=1), 0)
    n, c, h, w = joined.shape
    return joined.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5)) + 1


def linear_of_unknown_batch() -> Program:
    """17465: (n, 784) -> 128 with n unknown. Must be refused with a clear error."""
    x, w = te.placeholder((None, 784), name="X"), te.placeholder((128, 784), name="W")
    k = te.reduce_axis(784)
    return te.program([x, w], [te.compute((x.shape[0], 128), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))])
