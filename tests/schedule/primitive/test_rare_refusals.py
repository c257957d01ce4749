"""Refusals that need a program made for them: the reason, what the program does, the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.schedule import LoopRV, Schedule
from tests.schedule.refusals import refusal

HEAD = """@ms.program
def f(A: T.Tensor((8,), "int32"), Y: T.Output((8,), "int32")):
    B = T.alloc((8,), "int32")
"""


def loop(sch: Schedule, block: str, at: int = 0) -> LoopRV:
    return sch.get_loops(sch.get_block(block))[at]


Case = tuple[str, str, Callable[[Schedule], Any]]


TRIANGLE = """
    for i in range(8):
        for j in range(i + 1):
            with T.block("Y"):
                v = T.spatial(8, i)
                r = T.reduce(v + 1, j)
                with T.init():
                    Y[v] = 0
                Y[v] = Y[v] + A[r]
"""
REDUCED = """
    for k in range(4):
        for i in range({extent}):
            with T.block("Y"):
                r = T.reduce(4, k)
                v = T.spatial({domain}, {binding})
                with T.init():
                    Y[v] = 0
                Y[v] = Y[v] + A[r]
"""
NESTED = """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for i in range(2):
        with T.block("outer"):
            o = T.spatial(2, i)
            for j in range(4):
                with T.block("Y"):
                    v = T.spatial(8, o * 4 + j)
                    Y[v] = B[v]
"""
LOCAL = """
    with T.block("outer"):
        L = T.alloc((8,), "int32")
        T.reads(A[0:8])
        T.writes(L[0:8], Y[0:8])
        for i in range(8):
            L[i] = A[i]
        for i in range(8):
            Y[i] = L[i]
"""
COPY = """
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = B[v]
"""
OVER_AND_OVER = (
    """
    C = T.alloc((8,), "int32")
    D = T.alloc((8,), "int32")
    for t in {kind}(2):
        for i in range(8):
            with T.block("C"):
                v = T.spatial(8, i)
                C[v] = {value}
        for i in range(8):
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = C[v]
        {last}
"""
    + COPY
)
CHANGES = "block 'B' would be computed from other values: C may change: "
SHARED = """
    for i, j in T.grid(2, 8):
        with T.block("B"):
            v = T.spatial(2, i)
            r = T.reduce(8, j)
            {store}
"""
EXTENT_READ = """
    for i in range(8):
        for j in range(B[0]):
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = A[v]
"""
SINGLE: list[Case] = [
    (
        CHANGES + "block 'C' is in a parallel loop with 'B'",
        OVER_AND_OVER.format(kind="T.parallel", value="A[v]", last=""),
        lambda s: s.compute_inline(s.get_block("B")),
    ),
    (
        CHANGES + "block 'C' may write it again: it reads what it writes",
        OVER_AND_OVER.format(kind="range", value="C[v] + A[v]", last=""),
        lambda s: s.compute_inline(s.get_block("B")),
    ),
    (
        CHANGES + "a statement outside of blocks changes what it is computed from",
        OVER_AND_OVER.format(kind="range", value="D[v]", last="D[0] = A[t]"),
        lambda s: s.compute_inline(s.get_block("B")),
    ),
    (
        "the order of the instances of block 'B' may matter: it stores nothing that could be seen",
        SHARED.format(store="pass") + COPY,
        lambda s: s.reorder(loop(s, "B", 1), loop(s, "B", 0)),
    ),
    (
        "the order of the instances of block 'B' may matter: "
        "where it stores to B depends on more than its spatial iterators",
        SHARED.format(store="B[r] = A[r]") + COPY,
        lambda s: s.reorder(loop(s, "B", 1), loop(s, "B", 0)),
    ),
    (
        "iterations of the loop over i may depend on each other: "
        "B is written, and an extent or a condition depends on it",
        EXTENT_READ + COPY,
        lambda s: s.parallel(loop(s, "B")),
    ),
    (
        "the loops cannot run side by side: B is written, and an extent or a condition depends on it",
        EXTENT_READ + COPY,
        lambda s: s.merge(loop(s, "B"), loop(s, "Y")),
    ),
    (
        "v of block 'Y' is bound to i * 4 + j - 4: i - 1 is not known to be in a range from 0",
        """
    for i, j in T.grid(3, 4):
        with T.block("Y"):
            v = T.spatial(8, i * 4 + j - 4)
            T.where(i * 4 + j >= 4)
            Y[v] = A[v]
""",
        lambda s: s.blockize(loop(s, "Y", 1)),
    ),
    ("the extent of the loop is not a constant", TRIANGLE, lambda s: s.split(loop(s, "Y", 1), [2, 4])),
    (
        "the extent of the loop is not a constant",
        TRIANGLE,
        lambda s: s.sample_perfect_tile(loop(s, "Y", 1), 2),
    ),
    (
        "the block needs iterators of constant extents",
        TRIANGLE,
        lambda s: s.transform_block_layout(s.get_block("Y"), lambda i, j: (j, i)),
    ),
    (
        "there is a statement outside of any block, whose order may matter",
        """
    for i, j in T.grid(2, 4):
        B[i * 4 + j] = A[j]
        with T.block("Y"):
            v = T.spatial(2, i)
            w = T.spatial(4, j)
            Y[v * 4 + w] = A[w]
""",
        lambda s: s.reorder(loop(s, "Y", 1), loop(s, "Y", 0)),
    ),
    (
        "the loops are not perfectly nested",
        """
    for i in range(2):
        with T.block("B"):
            v = T.spatial(2, i)
            B[v] = A[v]
        for j in range(4):
            with T.block("Y"):
                v = T.spatial(2, i)
                w = T.spatial(4, j)
                Y[v * 4 + w] = A[w]
""",
        lambda s: s.reorder(loop(s, "Y", 1), loop(s, "Y", 0)),
    ),
    (
        "the extent is a loaded value, which the loops may change",
        """
    for i in range(A[0]):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for i in range(A[0]):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = A[v]
""",
        lambda s: s.merge(loop(s, "B"), loop(s, "Y")),
    ),
    (
        "where block 'Y' runs depends on loaded values: A[i]",
        REDUCED.format(extent=8, domain=8, binding="A[i]"),
        lambda s: s.decompose_reduction(s.get_block("Y"), loop(s, "Y")),
    ),
    (
        "the extent of i depends on a reduction loop",
        REDUCED.format(extent="k + 1", domain=8, binding="i"),
        lambda s: s.rfactor(loop(s, "Y"), 0),
    ),
    (
        "the extent of i depends on loaded values",
        REDUCED.format(extent="A[0]", domain=8, binding="i"),
        lambda s: s.rfactor(loop(s, "Y"), 0),
    ),
    (
        "the extent of v depends on a reduction iterator",
        REDUCED.format(extent=8, domain="r + 8", binding="i"),
        lambda s: s.rfactor(loop(s, "Y"), 0),
    ),
    (
        "the reduction reads Y",
        """
    S = T.alloc((1,), "int32")
    for k in range(8):
        with T.block("S"):
            r = T.reduce(8, k)
            with T.init():
                S[0] = 0
            S[0] = S[0] + A[r] * Y[r]
    for i in range(1):
        with T.block("Y"):
            v = T.spatial(1, i)
            Y[v] = S[v] + A[v]
""",
        lambda s: s.fuse_reduction_epilogue(s.get_block("S"), s.get_block("Y")),
    ),
    (
        "the loop over i is bound to threadIdx.x",
        """
    for i in T.bind(8, "threadIdx.x"):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = T.select(v < 4, A[v], 0)
""",
        lambda s: s.decompose_padding(s.get_block("Y"), loop(s, "Y")),
    ),
    (
        "not all values of the iterators are known to write Y",
        """
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            T.where(i < 5 or i > 6)
            Y[v] = A[v]
""",
        lambda s: s.reindex(s.get_block("Y"), 0, "write"),
    ),
    (
        "block 'Y' runs before block 'B'",
        """
    for t in range(2):
        for i in range(8):
            with T.block("Y"):
                v = T.spatial(8, i)
                Y[v] = B[v]
        for i in range(8):
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = A[v]
""",
        lambda s: s.reverse_compute_inline(s.get_block("Y")),
    ),
    (
        "B is written by the program, and the block is inside of block 'outer'",
        NESTED,
        lambda s: s.cache_read(s.get_block("Y"), 0),
    ),
    (
        "how much block 'outer' reads of A is not a constant",
        """
    for i in range(8):
        with T.block("outer"):
            o = T.spatial(8, i)
            for j in range(o + 1):
                with T.block("Y"):
                    v = T.spatial(8, j)
                    Y[v] = A[v]
""",
        lambda s: s.cache_read(s.get_block("Y"), 0),
    ),
    (
        "L lives in block 'outer', which has no blocks inside",
        LOCAL,
        lambda s: s.transform_layout(s.get_block("outer"), 0, "write", lambda i: (i // 3, i % 3), 0),
    ),
]


@pytest.mark.parametrize(("reason", "body", "step"), SINGLE, ids=[case[0] for case in SINGLE])
def test_refuses_a_block(reason: str, body: str, step: Callable[[Schedule], Any]) -> None:
    assert refusal(step, Schedule(ms.parse(HEAD + body))) == reason
