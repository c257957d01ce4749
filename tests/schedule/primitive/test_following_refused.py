"""What reverse_compute_at refuses where a block would follow the loops of its producer: the reason, the
program, and which loop around block P block Y would move to."""

from __future__ import annotations

import pytest

import metaschedule as ms
from metaschedule.schedule import Schedule
from tests.schedule.primitive.test_rare_refusals import COPY, HEAD, loop
from tests.schedule.refusals import refusal

TILES = """
    for t in range(2):
        {under}
            for i in range(4):
                with T.block("P"):
                    v = T.spatial(8, t * 4 + i)
                    B[v] = A[v]
        for i in range({count}):
            with T.block("Y"):
                v = T.spatial(8, t * 4 + i)
                {where}
                Y[v] = B[v]
"""
TO_P: list[tuple[str, str, int]] = [
    (
        "block 'Z' reads what block 'Y' stores before its reduction is done",
        """
    S = T.alloc((1,), "int32")
    for i in range(8):
        with T.block("P"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for k in range(8):
        with T.block("Y"):
            r = T.reduce(8, k)
            with T.init():
                S[0] = 0
            S[0] = S[0] + B[r]
        with T.block("Z"):
            v = T.spatial(8, k)
            Y[v] = S[0]
""",
        0,
    ),
    (
        "block 'inner' stores what block 'Y' reads, and is inside of another block",
        """
    for i in range(2):
        with T.block("P"):
            o = T.spatial(2, i)
            for j in range(4):
                with T.block("inner"):
                    v = T.spatial(8, o * 4 + j)
                    B[v] = A[v]
"""
        + COPY,
        0,
    ),
    (
        "block 'Y' may read other values of block 'P' there: "
        "block 'P' is not the only one that writes it in the loops around",
        """
    for i in range(8):
        with T.block("P"):
            v = T.spatial(8, i)
            B[v] = A[v]
        with T.block("again"):
            v = T.spatial(8, i)
            B[v] = A[v] + 1
"""
        + COPY,
        0,
    ),
    (
        "block 'Y' reads elements of B that other iterations of that loop store",
        """
    for i in range(8):
        with T.block("P"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = B[v // 2]
""",
        0,
    ),
    (
        "block 'Y' reads elements of B that other iterations of that loop store",
        """
    for i in range(8):
        with T.block("P"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = B[A[v]]
""",
        0,
    ),
    (
        "block 'Y' is not known to run for all that block 'P' stores "
        "in one iteration of the loops around both",
        TILES.format(under="for u in range(1):", count=3, where=""),
        1,
    ),
    (
        "block 'P' is under a condition, or in a loop that may not run",
        TILES.format(under="if t < 1:", count=4, where=""),
        1,
    ),
    (
        "block 'Y' runs under a condition: i != 2",
        TILES.format(under="for u in range(1):", count=4, where="T.where(i != 2)"),
        1,
    ),
    (
        "a test of block 'P' cannot be carried along: i + j < 5",
        """
    C = T.alloc((2, 4), "int32")
    for i, j in T.grid(2, 4):
        with T.block("P"):
            v = T.spatial(2, i)
            w = T.spatial(4, j)
            T.where(i + j < 5)
            C[v, w] = A[w]
    for i, j in T.grid(2, 4):
        with T.block("Y"):
            v = T.spatial(2, i)
            w = T.spatial(4, j)
            Y[v * 4 + w] = C[v, 3 - w]
""",
        0,
    ),
    (
        "block 'P' leaves out iterations of the loop over i",
        """
    for t, i in T.grid(2, 6):
        with T.block("P"):
            v = T.spatial(8, t * 4 + i)
            T.where(i < 4)
            B[v] = A[v]
"""
        + COPY,
        0,
    ),
    (
        "block 'Y' would not reduce every term once, the first one first",
        """
    for i in range(8):
        with T.block("P"):
            v = T.spatial(8, 7 - i)
            B[v] = A[v]
    for k in range(8):
        with T.block("Y"):
            r = T.reduce(8, k)
            with T.init():
                Y[0] = 0
            Y[0] = Y[0] + B[r]
""",
        0,
    ),
]


@pytest.mark.parametrize(("reason", "body", "at"), TO_P, ids=[case[0] for case in TO_P])
def test_reverse_compute_at_refuses_to_follow(reason: str, body: str, at: int) -> None:
    sch = Schedule(ms.parse(HEAD + body))
    assert refusal(sch.reverse_compute_at, sch.get_block("Y"), loop(sch, "P", at)) == reason
