"""Buffers: thread-private, cut down to a tile, reusing the workspace, and never what must stay."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.codegen.lower import lower, steps
from metaschedule.ir import Program
from tests.codegen.compiled import build, check, kernel, run


def compacted(program: Program) -> dict[str, tuple[int, ...]]:
    """The shapes of intermediate buffers after `compact_buffers`."""
    return {b.name: b.shape for b in dict(steps(program))["compact_buffers"].allocs}


# --- compaction ---------------------------------------------------------------------------------

PRODUCER_CONSUMER = """
B = T.alloc((32,), "float32")
for i in {outer}(4):
    for j in {inner}(8):
        B[i * 8 + j] = A[i * 8 + j] * 2.0
    for j in {inner}(8):
        C[i * 8 + j] = B[i * 8 + j] + B[i * 8 + 7 - j]
"""


@pytest.mark.parametrize("outer", ["range", "T.parallel", "T.unrolled"])
@pytest.mark.parametrize("inner", ["range", "T.vectorized", "T.unrolled"])
def test_tile_of_a_producer(outer: str, inner: str) -> None:
    program = kernel("A[32] -> C[32]", PRODUCER_CONSUMER.format(outer=outer, inner=inner))
    assert compacted(program) == {"B": (8,)}
    check(program)


def test_stencil_recomputes_its_halo() -> None:
    program = kernel("A[18] -> C[16]", """
    B = T.alloc((18,), "float32")
    for i in T.parallel(4):
        for j in range(6):
            B[i * 4 + j] = A[i * 4 + j] * 2.0
        for j in T.vectorized(4):
            C[i * 4 + j] = B[i * 4 + j] + B[i * 4 + j + 1] + B[i * 4 + j + 2]
    """)  # fmt: skip
    assert compacted(program) == {"B": (6,)}
    check(program)


ALIGNED = """
B = T.alloc((16, 3, 25), "float32")
for i in {outer}(4):
    for ii, j, k in T.grid(4, 3, 20):
        with T.block("B"):
            vi = T.spatial(16, i * 4 + ii)
            vj = T.spatial(3, j)
            vk = T.spatial(20, k)
            T.annotate({{"storage_align": {asked}}})
            B[vi, vj, vk] = A[vi, vj, vk] * 2.0
    for ii, j, k in T.grid(4, 3, 20):
        C[i * 4 + ii, j, k] = B[i * 4 + ii, 2 - j, 19 - k]
"""


@pytest.mark.parametrize("outer", ["range", "T.parallel"])
@pytest.mark.parametrize(
    ("asked", "strides"),
    [
        ("((0, 1, 16, 3),)", (105, 35, 1)),
        ("((0, 0, 64, 0), (0, 1, 16, 0))", (128, 32, 1)),  # rows of 32, then planes of 128
        ("((0, 0, 16, 3),)", (67, 20, 1)),  # which is no multiple of 20
        ("((1, 1, 16, 3), (0, 2, 16, 3))", (60, 20, 1)),  # no such write any more, no such axis
    ],
)
def test_tile_is_padded_as_asked(outer: str, asked: str, strides: tuple[int, ...]) -> None:
    program = kernel("A[16, 3, 20] -> C[16, 3, 20]", ALIGNED.format(outer=outer, asked=asked))
    assert compacted(program) == {"B": (4, 3, 20)}
    (tile,) = [b for b in lower(program).program.allocs if b.name == "B"]
    assert tile.strides == strides
    check(program)


# Programs in which an iteration reads what an earlier one left, so that its buffer must stay whole.
MUST_STAY: dict[str, str] = {
    "rolling window": """
        B = T.alloc((18,), "float32")
        B[0] = A[0]
        B[1] = A[1]
        for i in range(16):
            B[i + 2] = A[i + 2]
            C[i] = B[i] + B[i + 1] + B[i + 2]
        """,
    "rolling window of rows": """
        B = T.alloc((18,), "float32")
        for i in range(8):
            for j in range(4):
                if i == 0 or j >= 2:
                    B[i * 2 + j] = A[i * 2 + j]
            for j in range(2):
                C[i * 2 + j] = B[i * 2 + j] + B[i * 2 + j + 2]
        """,
    "accumulator revisited": """
        B = T.alloc((16,), "float32")
        for k in range(3):
            for i in range(16):
                if k == 0:
                    B[i] = 0.0
                B[i] = B[i] + A[i + k]
                C[i] = B[i]
        """,
    "accumulated tiles revisited": """
        B = T.alloc((16,), "float32")
        for k in range(3):
            for i in range(4):
                for j in range(4):
                    if k == 0:
                        B[i * 4 + j] = A[i * 4 + j]
                    else:
                        B[i * 4 + j] = B[i * 4 + j] * A[k]
                for j in range(4):
                    if k == 2:
                        C[i * 4 + j] = B[i * 4 + j]
        """,
    "written last time": """
        B = T.alloc((16,), "float32")
        for i in range(16):
            B[i] = A[i]
            C[i] = B[i // 2]
        """,
    "half of a tile written": """
        B = T.alloc((20,), "float32")
        for j in range(20):
            B[j] = 1.0
        for i in range(4):
            for j in range(4):
                if j < 2:
                    B[i * 4 + j] = A[i * 4 + j]
            for j in range(4):
                C[i * 4 + j] = B[i * 4 + j]
        """,
    "every second element": """
        B = T.alloc((16,), "float32")
        for t in range(2):
            for j in range(8):
                B[j * 2 + t] = A[j * 2 + t]
            for j in range(8):
                C[j + t * 8] = T.select(t == 0, B[j * 2], B[j * 2 + 1] + B[j * 2])
        """,
    "written under a condition in memory": """
        B = T.alloc((4, 4), "float32")
        for i in range(4):
            for j in range(4):
                if A[i] > 0.0 or i == 0:
                    B[0, j] = A[i + j]
            for j in range(4):
                C[i * 4 + j] = B[0, j]
        """,
    "box that comes back": """
        B = T.alloc((8,), "float32")
        for i in range(16):
            if i < 8:
                B[i % 8] = A[i]
            C[i] = B[i % 8]
        """,
    "shifted tile": """
        B = T.alloc((14,), "float32")
        for i in range(4):
            for j in range(2):
                B[T.min(i * 4, 10) + j + T.select(i < 3, 0, 2)] = A[i * 4 + j]
            for j in range(2):
                if i < 3:
                    B[T.min(i * 4, 10) + j + 2] = A[i * 4 + j + 1]
            for j in range(4):
                C[i * 4 + j] = B[T.min(i * 4, 10) + j]
        """,
    "in a while": """
        B = T.alloc((16,), "float32")
        N = T.alloc((1,), "int64")
        N[0] = 0
        B[0] = 0.0
        while N[0] < 16:
            B[N[0]] = A[N[0]] + B[N[0] // 2]
            C[N[0]] = B[N[0] // 2]
            N[0] = N[0] + 1
        """,
    "start in memory": """
        B = T.alloc((16,), "float32")
        for i in range(16):
            B[I[i]] = A[i]
            C[i] = B[I[0]]
        """,
}


@pytest.mark.parametrize("what", MUST_STAY)
def test_what_iterations_share_stays(what: str) -> None:
    body = MUST_STAY[what].replace("\n        ", "\n")
    program = kernel("A[18], I:int64[18] -> C[16]", body)
    check(program, np.random.default_rng(0).integers(-4, 5, 18).astype("f"), np.arange(18) % 4)


def test_tile_under_a_reduction_loop_outside() -> None:
    """The tile is rewritten for every k, so it may be one tile; the accumulator must be all of them."""
    program = kernel("A[24, 16], W[16, 3] -> C[24]", """
    P = T.alloc((3, 24, 16), "float32")
    S = T.alloc((24,), "float32")
    for k in range(3):
        for i in range(4):
            for r in range(6):
                for c in T.vectorized(16):
                    P[k, i * 6 + r, c] = A[i * 6 + r, c]
            for r in range(6):
                if k == 0:
                    S[i * 6 + r] = 0.0
                for c in range(16):
                    S[i * 6 + r] = S[i * 6 + r] + P[k, i * 6 + r, c] * W[c, k]
    for i in range(24):
        C[i] = S[i]
    """)  # fmt: skip
    assert compacted(program) == {"P": (1, 6, 16), "S": (24,)}
    check(program)


def test_tile_with_a_tail() -> None:
    program = kernel("A[22] -> C[22]", """
    B = T.alloc((22,), "float32")
    for i in T.parallel(4):
        for j in T.vectorized(6):
            if i * 6 + j < 22:
                B[i * 6 + j] = A[i * 6 + j] + 1.0
        for j in T.vectorized(6):
            if i * 6 + j < 22:
                C[i * 6 + j] = B[i * 6 + j] * 2.0
    """)  # fmt: skip
    assert compacted(program) == {"B": (6,)}
    check(program)


# --- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 5000])
def test_private_buffers(size: int) -> None:
    """On the stack, and in each thread's part of the workspace."""
    program = kernel("A[64] -> C[64]", f"""
    for i in T.parallel(64):
        with T.block("b"):
            vi = T.spatial(64, i)
            L = T.alloc(({size},), "float32")
            M = T.alloc(({size},), "float32")
            for j in range({size}):
                L[j] = A[vi] + T.cast(j, "float32")
            for j in range({size}):
                M[j] = L[{size} - 1 - j] * 2.0
            C[vi] = M[0] + M[{size} - 1]
    """)  # fmt: skip
    storage = lower(program).storage
    assert (len(storage.stack), len(storage.private)) == ((2, 0) if size == 16 else (0, 2))
    for _ in range(3):
        check(program)


@pytest.mark.parametrize("size", [1, 5000])
def test_private_values_that_outlive_the_loop(size: int) -> None:
    """The loop runs again, and its iterations find what they left."""
    program = kernel("A[3, 8] -> C[8]", f"""
    B = T.alloc((8, {size}), "float32")
    for t in range(3):
        for i in T.parallel(8):
            for j in range({size}):
                if t == 0:
                    B[i, j] = 0.0
                B[i, j] = B[i, j] + A[t, i]
            if t == 2:
                C[i] = B[i, {size - 1}]
    """)  # fmt: skip
    check(program)
    assert not lower(program).storage.private


def test_scratch_of_a_loop_that_runs_again_is_private() -> None:
    program = kernel("A[3, 8] -> C[8]", """
    B = T.alloc((5000,), "float32")
    for i in range(8):
        C[i] = 0.0
    for t in range(3):
        for i in T.parallel(8):
            for j in range(5000):
                B[j] = A[t, i]
            C[i] = C[i] + B[4999]
    """)  # fmt: skip
    assert len(lower(program).storage.private) == 1
    check(program)


def test_between_two_parallel_loops() -> None:
    """What one writes and the other reads is shared, however small."""
    program = kernel("A[64] -> C[64]", """
    B = T.alloc((64,), "float32")
    for i in T.parallel(64):
        B[i] = A[i] * 3.0
    for i in T.parallel(64):
        C[i] = B[63 - i] + B[i]
    """)  # fmt: skip
    storage = lower(program).storage
    assert (len(storage.shared), len(storage.stack)) == (1, 0)
    check(program)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_parallel_with_more_and_fewer_threads(threads: int) -> None:
    program = kernel("A[5, 7] -> C[5, 7], S[5]", """
    for k in range(2):
        for i in T.parallel(5):
            S[i] = 0.0
            for j in T.parallel(7):
                C[i, j] = A[i, j] + T.cast(k, "float32")
                S[i] = S[i] + C[i, j]
    """)  # fmt: skip
    data = np.arange(35, dtype="f").reshape(5, 7)
    exe = build(program)
    exe.threads = threads
    result, sums = run(exe, data)
    np.testing.assert_array_equal(result, data + 1)
    np.testing.assert_array_equal(sums, (data + 1).sum(1))


def test_outer_variables_inside_a_parallel_loop() -> None:
    check(kernel("A[3, 4, 5] -> C[3, 4, 5]", """
    for a in range(3):
        for b in T.unrolled(2):
            for i in T.parallel(2):
                for j in T.vectorized(5):
                    C[a, b * 2 + i, j] = A[a, b * 2 + i, 4 - j] + T.cast(a * 100 + b, "float32")
    """))  # fmt: skip


# --- the workspace ------------------------------------------------------------------------------

CHAIN = """
B0 = T.alloc((6000,), "float32")
B1 = T.alloc((6000,), "float32")
B2 = T.alloc((6000,), "float32")
B3 = T.alloc((6000,), "float32")
for i in range(6000):
    B0[i] = A[i] + 1.0
for i in T.vectorized(6000):
    B1[i] = B0[5999 - i] * 2.0
for i in T.parallel(6000):
    B2[i] = B1[i] + B1[5999 - i]
for i in range(6000):
    B3[i] = B2[i] - B1[i]
for i in range(6000):
    C[i] = B3[i] * B2[i]
"""


def test_workspace_is_reused() -> None:
    """Of a chain of buffers only those alive together need room of their own."""
    program = kernel("A[6000] -> C[6000]", CHAIN)
    storage = lower(program).storage
    assert len(storage.shared) == 4
    assert storage.shared_bytes == 3 * 24000
    check(program)


def test_buffers_that_share_their_room_may_alias() -> None:
    """What LLVM is told never to alias must not."""
    program = kernel("A[6000] -> C[6000]", CHAIN)
    storage = lower(program).storage
    first = {offset: b for b, offset in storage.shared.items()}
    assert {b.name for b in storage.may_overlap} == {"B0", "B3"} or len(first) == 3
    head = next(s for s in build(program).source("llvm").splitlines() if "void @main(" in s)
    assert head.count("ptr noalias %b") == 4  # A, C, and the two with room of their own


def test_workspace_in_a_loop_is_not_reused_too_early() -> None:
    """Inside a loop, what the last statement writes the first may read."""
    program = kernel("A[3000] -> C[3000]", """
    B = T.alloc((3000,), "float32")
    D = T.alloc((3000,), "float32")
    for t in range(3):
        for i in range(3000):
            if t == 0:
                B[i] = A[i]
            else:
                B[i] = D[2999 - i]
        for i in range(3000):
            D[i] = B[i] + 1.0
    for i in range(3000):
        C[i] = D[i]
    """)  # fmt: skip
    check(program)


def test_places_are_aligned_and_apart() -> None:
    program = kernel("A[6000] -> C[6000]", CHAIN.replace("6000,)", "6001,)"))
    storage = lower(program).storage
    assert all(offset % 64 == 0 for offset in storage.shared.values())
    check(program)


def test_large_arrays_of_each_dtype_side_by_side() -> None:
    check(kernel("A[3001] -> C[3001]", """
    B = T.alloc((3001,), "bool")
    D = T.alloc((3001,), "float64")
    E = T.alloc((30001,), "int8")
    for i in range(3001):
        B[i] = A[i] > 0.0
        D[i] = T.cast(A[i], "float64") * 0.5
    for i in range(30001):
        E[i] = T.cast(i % 5, "int8")
    for i in range(3001):
        C[i] = T.select(B[i], T.cast(D[i], "float32"), T.cast(E[i * 9], "float32"))
    """))  # fmt: skip


def test_strided_accumulator_of_a_parallel_loop_that_runs_again() -> None:
    """Iterations of the parallel loop have elements of their own, two apart, whose boxes overlap."""
    check(kernel("A[5, 4] -> C[4]", """
    S = T.alloc((4,), "float32")
    for k in range(5):
        for i0 in T.parallel(2):
            for i1 in range(2):
                if k == 0:
                    S[i1 * 2 + i0] = 0.0
                S[i1 * 2 + i0] = S[i1 * 2 + i0] + A[k, i1 * 2 + i0]
    for i in range(4):
        C[i] = S[i]
    """))  # fmt: skip
    check(kernel("A[5, 4] -> C[4]", """
    S = T.alloc((4,), "float32")
    for k in range(5):
        for i0 in T.parallel(2):
            for i1 in range(2):
                if k == 0:
                    S[i1 * 2 + i0] = 0.0
                S[i1 * 2 + i0] = S[i1 * 2 + i0] + A[k, i1 * 2 + i0]
                C[i1 * 2 + i0] = S[i1 * 2 + i0]
    """))  # fmt: skip
