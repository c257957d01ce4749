"""Matrix products, normalisations and small subgraphs around them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import te
from ..ir import Program


def gmm(b: int, n: int, m: int, k: int, dtype: str) -> Program:
    """Batched matrix product: X(b, n, k), Y(b, k, m), output (b, n, m)."""
    x = te.placeholder((b, n, k), dtype, name="X")
    y = te.placeholder((b, k, m), dtype, name="Y")
    r = te.reduce_axis(k, name="k")
    z = te.compute((b, n, m), lambda b, i, j: te.sum(x[b, i, r] * y[b, r, j], axis=r), name="matmul")
    return te.program([x, y], [z], name="GMM")


def tbg(b: int, s: int, h: int, d: int, dtype: str) -> Program:
    """Attention scores, transposes and all: Q(b, s, h, d), K(b, s, h, d), output (b, h, s, s)."""
    q = te.placeholder((b, s, h, d), dtype, name="Q")
    k = te.placeholder((b, s, h, d), dtype, name="K")
    q_t = te.compute((b, h, s, d), lambda b, h, s, d: q[b, s, h, d], name="Q_transposed")
    k_t = te.compute((b, h, d, s), lambda b, h, d, s: k[b, s, h, d], name="K_transposed")
    r = te.reduce_axis(d, name="k")
    z = te.compute(
        (b, h, s, s),
        lambda b, h, i, j: te.sum(q_t[b, h, i, r] * k_t[b, h, r, j], axis=r),
        name="matmul",
    )
    return te.program([q, k], [z], name="TBG")


def nrm(b: int, m: int, n: int, dtype: str) -> Program:
    """Root of the sum of squares of each matrix: X(b, m, n), output (b)."""
    x = te.placeholder((b, m, n), dtype, name="X")
    i, j = te.reduce_axis(m, name="i"), te.reduce_axis(n, name="j")
    total = te.compute((b,), lambda b: te.sum(x[b, i, j] * x[b, i, j], axis=[i, j]), name="squares")
    root = te.compute((b,), lambda b: te.sqrt(total[b]), name="norm")
    return te.program([x], [root], name="NRM")


def sfm(shape: Sequence[int], dtype: str) -> Program:
    """Softmax over the last axis: X(*shape), any rank from 1."""
    shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not shape or shape[-1] == 0:
        raise ValueError(f"softmax needs a last axis with something in it, got shape {shape}")
    x = te.placeholder(shape, dtype, name="X")
    k = te.reduce_axis(shape[-1], name="k")
    rows = [f"i{d}" for d in range(len(shape) - 1)]
    top = te.compute(shape[:-1], lambda *i: te.max(x[*i, k], axis=k), name="max", axes=rows)
    powers = te.compute(shape, lambda *i: te.exp(x[i] - top[i[:-1]]), name="exp", axes=[*rows, "j"])
    total = te.compute(shape[:-1], lambda *i: te.sum(powers[*i, k], axis=k), name="sum", axes=rows)
    y = te.compute(shape, lambda *i: powers[i] / total[i[:-1]], name="softmax", axes=[*rows, "j"])
    return te.program([x], [y], name="SFM")


def fdense(m: int, n: int, k: int, dtype: str) -> Program:
    """gelu(x @ w + b) with erf: X(m, k), W(k, n), bias(n), output (m, n)."""
    x = te.placeholder((m, k), dtype, name="X")
    w = te.placeholder((k, n), dtype, name="W")
    bias = te.placeholder((n,), dtype, name="bias")
    r = te.reduce_axis(k, name="k")
    dense = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[r, j], axis=r), name="dense")
    y = te.compute((m, n), lambda i, j: dense[i, j] + bias[j], name="bias_add")
    root = 1 / math.sqrt(2)
    gelu = te.compute((m, n), lambda i, j: y[i, j] * 0.5 * (1.0 + te.erf(y[i, j] * root)), name="gelu")
    return te.program([x, w, bias], [gelu], name="FDENSE")
