"""The kernel of attention to a cache: its loops end where the mask does (`passes/attention.py`).

Each query of each head is a job: the scores of all positions before the end, each a product of rows; their
softmax; the sum of the values by these weights. A row is a few vectors, so keys and values are read once, in
order, at the speed of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .graph import Node
from .own_programs import Names, has_own_program, lanes_of

WIDTH = 16  # scores of which the softmax is computed at a time


@has_own_program("cached_attention")
def attention(node: Node, names: Names) -> str:
    query, keys, values, mask, length, shape, scale, safe = node.args
    heads, queries, features = query.shape
    shared, positions, _ = keys.shape
    width = values.shape[-1]
    jobs, share = heads * queries, queries * (heads // shared)
    lanes, wide = lanes_of(features), lanes_of(width)
    padded = -(-positions // WIDTH) * WIDTH
    q, k, v, m, n = (names[t] for t in (query, keys, values, mask, length))
    end = f"T.min(T.max({n}[0], 0), {positions})"
    passed = f"{m}[{', '.join(mask_index(mask.shape, shape))}]"
    mean = "sums[i, c] / total[i]"
    result = f"T.select(total[i] > 0.0, {mean}, 0.0)" if safe else mean
    return f"""\
products = T.alloc(({jobs}, {lanes}), "float32")
scores = T.alloc(({jobs}, {padded}), "float32")
tops = T.alloc(({jobs}, {WIDTH}), "float32")
top = T.alloc(({jobs},), "float32")
totals = T.alloc(({jobs}, {WIDTH}), "float32")
total = T.alloc(({jobs},), "float32")
sums = T.alloc(({jobs}, {width}), "float32")
for j in T.parallel({jobs}):
    for l in range({end}):
        for z in T.vectorized({lanes}):
            with T.block("clear_products"):
                i = T.spatial({jobs}, j)
                vz = T.spatial({lanes}, z)
                products[i, vz] = 0.0
        for d in T.unrolled({features // lanes}):
            for z in T.vectorized({lanes}):
                with T.block("multiply"):
                    i = T.spatial({jobs}, j)
                    p = T.spatial({positions}, l)
                    f = T.reduce({features // lanes}, d)
                    vz = T.spatial({lanes}, z)
                    products[i, vz] = (
                        products[i, vz]
                        + {q}[i // {queries}, i % {queries}, f * {lanes} + vz]
                        * {k}[i // {share}, p, f * {lanes} + vz]
                    )
        for z in T.vectorized({lanes}):
            with T.block("score"):
                i = T.spatial({jobs}, j)
                p = T.spatial({positions}, l)
                vz = T.reduce({lanes}, z)
                with T.init():
                    scores[i, p] = 0.0
                scores[i, p] = scores[i, p] + products[i, vz]
        with T.block("mask"):
            i = T.spatial({jobs}, j)
            p = T.spatial({positions}, l)
            scores[i, p] = T.select({passed}, scores[i, p] * T.float32({scale!r}), T.float32("-inf"))
    for z in T.vectorized({WIDTH}):
        with T.block("clear_totals"):
            i = T.spatial({jobs}, j)
            vz = T.spatial({WIDTH}, z)
            tops[i, vz] = T.float32("-inf")
            totals[i, vz] = 0.0
    for l in range(({end} + {WIDTH - 1}) // {WIDTH}):
        for z in T.vectorized({WIDTH}):
            with T.block("find_tops"):
                i = T.spatial({jobs}, j)
                p = T.reduce({padded // WIDTH}, l)
                vz = T.spatial({WIDTH}, z)
                T.where(l * {WIDTH} + z < T.min({n}[0], {positions}))
                tops[i, vz] = T.max(tops[i, vz], scores[i, p * {WIDTH} + vz])
    for z in T.vectorized({WIDTH}):
        with T.block("find_top"):
            i = T.spatial({jobs}, j)
            vz = T.reduce({WIDTH}, z)
            with T.init():
                top[i] = T.float32("-inf")
            top[i] = T.max(top[i], tops[i, vz])
    for l in range(({end} + {WIDTH - 1}) // {WIDTH}):
        for z in T.vectorized({WIDTH}):
            with T.block("weigh"):
                i = T.spatial({jobs}, j)
                p = T.reduce({padded // WIDTH}, l)
                vz = T.spatial({WIDTH}, z)
                scores[i, p * {WIDTH} + vz] = T.select(
                    p * {WIDTH} + vz < {n}[0],
                    T.exp(scores[i, p * {WIDTH} + vz] - T.select(top[i] == T.float32("-inf"), 0.0, top[i])),
                    0.0,
                )
        for z in T.vectorized({WIDTH}):
            with T.block("add_weights"):
                i = T.spatial({jobs}, j)
                p = T.reduce({padded // WIDTH}, l)
                vz = T.spatial({WIDTH}, z)
                totals[i, vz] = totals[i, vz] + scores[i, p * {WIDTH} + vz]
    for z in T.vectorized({WIDTH}):
        with T.block("add_totals"):
            i = T.spatial({jobs}, j)
            vz = T.reduce({WIDTH}, z)
            with T.init():
                total[i] = 0.0
            total[i] = total[i] + totals[i, vz]
    for e in T.unrolled({width // wide}):
        for z in T.vectorized({wide}):
            with T.block("clear_sums"):
                i = T.spatial({jobs}, j)
                c = T.spatial({width}, e * {wide} + z)
                sums[i, c] = 0.0
    for l in range({end}):
        for e in T.unrolled({width // wide}):
            for z in T.vectorized({wide}):
                with T.block("add_values"):
                    i = T.spatial({jobs}, j)
                    p = T.reduce({positions}, l)
                    c = T.spatial({width}, e * {wide} + z)
                    sums[i, c] = sums[i, c] + scores[i, p] * {v}[i // {share}, p, c]
    for e in T.unrolled({width // wide}):
        for z in T.vectorized({wide}):
            with T.block("divide"):
                i = T.spatial({jobs}, j)
                c = T.spatial({width}, e * {wide} + z)
                y0[i // {queries}, i % {queries}, c] = {result}"""


def mask_index(mask: Sequence[int], shape: Sequence[int]) -> list[str]:
    """Where the mask of position `p` for job `i` is: jobs are numbered as scores are, in row-major order.

    >>> mask_index((1, 1, 3, 40), (2, 8, 3, 40))
    ['0', '0', 'i % 3', 'p']
    """
    index = ["p"]
    inner = 1
    for d in range(2, len(shape) + 1):
        extent = shape[-d]
        if d <= len(mask):
            last = inner * extent == math.prod(shape[:-1])
            part = f"i // {inner}" if inner > 1 else "i"
            index.insert(0, "0" if mask[-d] == 1 else part if last else f"{part} % {extent}")
        inner *= extent
    return index
