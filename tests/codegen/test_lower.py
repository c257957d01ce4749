"""Each lowering pass, before and after.

A case is the parameters, the body before and the body after; `kernel` reads them as a script.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from metaschedule import Schedule, ir, workloads
from metaschedule.codegen.lower import PASSES, lower, steps
from metaschedule.codegen.lower.compact import compact_buffers
from metaschedule.codegen.lower.flatten import flatten
from metaschedule.codegen.lower.loop_versioning import version_loops
from metaschedule.codegen.lower.predicate_padding import split_padding
from metaschedule.codegen.lower.simplify import simplify_program
from metaschedule.codegen.lower.unroll import unroll_annotated
from tests.codegen.compiled import check, kernel

Case = tuple[str, str, str]

FLATTEN: dict[str, Case] = {
    "init and predicate become conditions": (
        "A[7, 5] -> C[7]",
        """
for i0, i1, k in T.grid(2, 4, 5):
    with T.block("sum"):
        vi = T.spatial(7, i0 * 4 + i1)
        vk = T.reduce(5, k)
        T.where(i0 * 4 + i1 < 7)
        with T.init():
            C[vi] = 0.0
        C[vi] = C[vi] + A[vi, vk]
""",
        """
for i0, i1, k in T.grid(2, 4, 5):
    if i0 * 4 + i1 < 7:
        if k == 0:
            C[i0 * 4 + i1] = 0.0
        C[i0 * 4 + i1] = C[i0 * 4 + i1] + A[i0 * 4 + i1, k]
""",
    ),
    "blocks in blocks": (
        "A[8] -> C[8]",
        """
for i in range(2):
    with T.block("outer"):
        vi = T.spatial(2, i)
        L = T.alloc((4,), "float32", scope="local")
        for j in range(4):
            with T.block("fill"):
                vj = T.spatial(4, j)
                vk = T.spatial(8, vi * 4 + j)
                L[vj] = A[vk]
        for j in range(4):
            with T.block("copy"):
                vj = T.spatial(4, 3 - j)
                vk = T.spatial(8, vi * 4 + j)
                C[vk] = L[vj]
""",
        """
L = T.alloc((4,), "float32", scope="local")
for i in range(2):
    for j in range(4):
        L[j] = A[i * 4 + j]
    for j in range(4):
        C[i * 4 + j] = L[3 - j]
""",
    ),
    "a binding that the body overwrites": (
        "A:int64[4] -> C:int64[4], D:int64[4]",
        """
for i in range(4):
    with T.block("b"):
        vi = T.spatial(4, i)
        vj = T.spatial(4, C[i])
        C[vi] = 0
        D[vj] = 5
""",
        """
vj = T.alloc((1,), "int64")
for i in range(4):
    vj[0] = C[i]
    C[i] = 0
    D[vj[0]] = 5
""",
    ),
    "terms with a padding zero are left out where asked": (
        "A[9], W[3] -> C[9]",
        """
for i, k in T.grid(9, 3):
    with T.block("conv"):
        vi = T.spatial(9, i)
        vk = T.reduce(3, k)
        T.annotate({"skip_zeros": True})
        with T.init():
            C[vi] = 0.0
        C[vi] = C[vi] + T.select((vi + vk) % 2 == 0, A[(vi + vk) // 2], 0.0) * W[vk]
""",
        """
for i, k in T.grid(9, 3):
    if k == 0:
        C[i] = 0.0
    if (i + k) % 2 == 0:
        C[i] = C[i] + A[(i + k) // 2] * W[k]
""",
    ),
    "padding is filled first where asked": (
        "A[7] -> C[9]",
        """
for i in range(9):
    with T.block("pad"):
        vi = T.spatial(9, i)
        T.annotate({"skip_zeros": True})
        C[vi] = T.select(vi >= 1 and vi < 8, A[vi - 1], 0.0)
""",
        """
for i in range(9):
    C[i] = 0.0
    if i >= 1 and i < 8:
        C[i] = A[i - 1]
""",
    ),
}
SIMPLIFY: dict[str, Case] = {
    "what the loops say": (
        "A[4, 8], I:int64[32] -> C[4, 8]",
        """
for f in range(32):
    if f < 32 and I[f] + 1 > I[f]:
        C[f // 8, f % 8] = T.select(f // 8 * 8 + f % 8 < 32, A[(f // 8 * 8 + f % 8) // 8, f % 8], 0.0)
for i in range(4):
    for j in range(8):
        if i * 8 + j < 32:
            C[(i * 8 + j) // 8, (i * 8 + j) % 8] = A[T.min(i, 7), j]
        else:
            C[0, 0] = 0.0
""",
        """
for f in range(32):
    if I[f] + 1 > I[f]:
        C[f // 8, f % 8] = A[f // 8, f % 8]
for i, j in T.grid(4, 8):
    C[i, j] = A[i, j]
""",
    ),
    "a condition that follows from a later one": (
        "A[64] -> C[64]",
        """
for i in range(16):
    for r in T.vectorized(16):
        if i * 4 + r < 64 and r < 4:
            C[i * 4 + r] = A[i * 4 + r]
""",
        """
for i in range(16):
    for r in T.vectorized(16):
        if r < 4:
            C[i * 4 + r] = A[i * 4 + r]
""",
    ),
}
COMPACT: dict[str, Case] = {
    "rows shorter than the vector": (
        "A[8, 4] -> C[8, 4]",
        """
B = T.alloc((8, 4096), "float32")
for i in range(8):
    for j0, j1 in T.grid(2, 2):
        B[i, i * 4 + j0 * 2 + j1] = A[i, j0 * 2 + j1]
    for v in T.vectorized(16):
        if v < 4:
            C[i, v] = B[i, i * 4 + v]
""",
        """
B = T.alloc((1, 16), "float32")
for i in range(8):
    for j0, j1 in T.grid(2, 2):
        B[0, j0 * 2 + j1] = A[i, j0 * 2 + j1]
    for v in T.vectorized(16):
        if v < 4:
            C[i, v] = B[0, v]
""",
    ),
    "a fused loop whose tile does not divide": (
        "A[8, 9, 3] -> C[8, 3]",
        """
B = T.alloc((64, 3), "float32")
for i in range(8):
    for q, r in T.grid(2, 16):
        if q * 16 + r < 27:
            B[i * 4 + (q * 16 + r) // 3, (q * 16 + r) % 3] = A[i, (q * 16 + r) // 3, (q * 16 + r) % 3]
    for j, k in T.grid(3, 9):
        C[i, j] = C[i, j] + B[i * 4 + k, j]
""",
        """
B = T.alloc((9, 3), "float32")
for i in range(8):
    for q, r in T.grid(2, 16):
        if q * 16 + r < 27:
            B[(q * 16 + r) // 3, (q * 16 + r) % 3] = A[i, (q * 16 + r) // 3, (q * 16 + r) % 3]
    for j, k in T.grid(3, 9):
        C[i, j] = C[i, j] + B[k, j]
""",
    ),
    "the other branch is no guard": (
        "A[8, 16] -> C[8, 16]",
        """
B = T.alloc((8, 64), "float32")
for i in range(8):
    for v in range(16):
        if v < 4:
            C[i, v] = 0.0
        else:
            B[i, i + v] = A[i, v]
    for v in range(12):
        C[i, v + 4] = B[i, i + v + 4]
""",
        """
B = T.alloc((1, 16), "float32")
for i in range(8):
    for v in range(16):
        if v < 4:
            C[i, v] = 0.0
        else:
            B[0, v] = A[i, v]
    for v in range(12):
        C[i, v + 4] = B[0, v + 4]
""",
    ),
    "lanes have elements of their own": (
        "A[8, 16] -> C[8, 16]",
        """
B = T.alloc((8, 16), "float32")
for i in range(8):
    for v in T.vectorized(16):
        B[i, v] = A[i, v] * 2.0
        C[i, v] = B[i, v] + B[i, v]
""",
        """
B = T.alloc((1, 16), "float32")
for i in range(8):
    for v in T.vectorized(16):
        B[0, v] = A[i, v] * 2.0
        C[i, v] = B[0, v] + B[0, v]
""",
    ),
    "a tile, and a buffer used in two nests": (
        "A[32] -> C[32]",
        """
B = T.alloc((32,), "float32")
D = T.alloc((32,), "float32")
for i in range(32):
    D[i] = A[i]
for i in T.parallel(4):
    for j in T.vectorized(8):
        B[i * 8 + j] = D[i * 8 + j] * 2.0
    for j in T.vectorized(8):
        C[i * 8 + j] = B[i * 8 + 7 - j]
""",
        """
B = T.alloc((8,), "float32")
D = T.alloc((32,), "float32")
for i in range(32):
    D[i] = A[i]
for i in T.parallel(4):
    for j in T.vectorized(8):
        B[j] = D[i * 8 + j] * 2.0
    for j in T.vectorized(8):
        C[i * 8 + j] = B[7 - j]
""",
    ),
}
TAILS: dict[str, Case] = {
    "two tails, each where it is decided": (
        "A[13, 20] -> C[13, 20]",
        """
for i0 in T.parallel(3):
    for j0 in range(2):
        for i1 in T.unrolled(6):
            for j1 in T.vectorized(16):
                if i0 * 6 + i1 < 13 and j0 * 16 + j1 < 20:
                    C[i0 * 6 + i1, j0 * 16 + j1] = A[i0 * 6 + i1, j0 * 16 + j1]
""",
        """
for i0 in T.parallel(3):
    if i0 * 6 <= 7:
        for j0 in range(2):
            if j0 * 16 <= 4:
                for i1 in T.unrolled(6):
                    for j1 in T.vectorized(16):
                        C[i0 * 6 + i1, j0 * 16 + j1] = A[i0 * 6 + i1, j0 * 16 + j1]
            else:
                for i1 in T.unrolled(6):
                    for j1 in T.vectorized(16):
                        if j1 < 4:
                            C[i0 * 6 + i1, j0 * 16 + j1] = A[i0 * 6 + i1, j0 * 16 + j1]
    else:
        for j0 in range(2):
            if j0 * 16 <= 4:
                for i1 in T.unrolled(6):
                    for j1 in T.vectorized(16):
                        if i1 < 1:
                            C[i0 * 6 + i1, j0 * 16 + j1] = A[i0 * 6 + i1, j0 * 16 + j1]
            else:
                for i1 in T.unrolled(6):
                    for j1 in T.vectorized(16):
                        if i1 < 1 and j1 < 4:
                            C[i0 * 6 + i1, j0 * 16 + j1] = A[i0 * 6 + i1, j0 * 16 + j1]
""",
    ),
    "above the reduction loop": (
        "A[22, 5] -> C[22]",
        """
for i0 in range(4):
    for k in range(5):
        for i1 in T.unrolled(6):
            if i0 * 6 + i1 < 22:
                C[i0 * 6 + i1] = C[i0 * 6 + i1] + A[i0 * 6 + i1, k]
""",
        """
for i0 in range(4):
    if i0 * 6 <= 16:
        for k in range(5):
            for i1 in T.unrolled(6):
                C[i0 * 6 + i1] = C[i0 * 6 + i1] + A[i0 * 6 + i1, k]
    else:
        for k in range(5):
            for i1 in T.unrolled(6):
                if i1 < 4:
                    C[i0 * 6 + i1] = C[i0 * 6 + i1] + A[i0 * 6 + i1, k]
""",
    ),
    "of a fused loop": (
        "A[5, 23] -> C[5, 23]",
        """
for f in T.parallel(15):
    for j in T.vectorized(8):
        if f % 3 * 8 + j < 23:
            C[f // 3, f % 3 * 8 + j] = A[f // 3, f % 3 * 8 + j]
""",
        """
for f in T.parallel(15):
    if f % 3 * 8 <= 15:
        for j in T.vectorized(8):
            C[f // 3, f % 3 * 8 + j] = A[f // 3, f % 3 * 8 + j]
    else:
        for j in T.vectorized(8):
            if j < 7:
                C[f // 3, f % 3 * 8 + j] = A[f // 3, f % 3 * 8 + j]
""",
    ),
    "a tail in chunks of tiles, and chunks beyond it": (
        "A[128] -> C[128]",
        """
for f in T.parallel(12):
    for i in range(8):
        for r in T.unrolled(6):
            if f // 4 * 48 + i * 6 + r < 128:
                C[f // 4 * 48 + i * 6 + r] = A[f // 4 * 48 + i * 6 + r]
""",
        """
for f in T.parallel(12):
    for i in range(8):
        if f // 4 * 48 + i * 6 <= 122:
            for r in T.unrolled(6):
                C[f // 4 * 48 + i * 6 + r] = A[f // 4 * 48 + i * 6 + r]
        elif f // 4 * 48 + i * 6 == 126:
            for r in T.unrolled(6):
                if r < 2:
                    C[f // 4 * 48 + i * 6 + r] = A[f // 4 * 48 + i * 6 + r]
""",
    ),
    "tiles cut at their beginning and at their end": (
        "A[20] -> C[20]",
        """
for i in range(6):
    for r in T.vectorized(4):
        if i * 4 + r >= 2 and i * 4 + r < 22:
            C[i * 4 + r - 2] = A[i * 4 + r - 2]
""",
        """
for i in range(6):
    if i * 4 >= 2:
        if i * 4 <= 18:
            for r in T.vectorized(4):
                C[i * 4 + r - 2] = A[i * 4 + r - 2]
        else:
            for r in T.vectorized(4):
                if r < 2:
                    C[i * 4 + r - 2] = A[i * 4 + r - 2]
    else:
        for r in T.vectorized(4):
            if r >= 2:
                C[i * 4 + r - 2] = A[i * 4 + r - 2]
""",
    ),
    "several tails, and empty tiles": (
        "A[13] -> C[13]",
        """
for i in range(9):
    for r in T.vectorized(6):
        if i * 2 + r < 13:
            C[i * 2 + r] = A[i * 2 + r]
""",
        """
for i in range(9):
    if i * 2 <= 7:
        for r in T.vectorized(6):
            C[i * 2 + r] = A[i * 2 + r]
    elif i * 2 == 8:
        for r in T.vectorized(6):
            if r < 5:
                C[i * 2 + r] = A[i * 2 + r]
    elif i * 2 == 10:
        for r in T.vectorized(6):
            if r < 3:
                C[i * 2 + r] = A[i * 2 + r]
    elif i * 2 == 12:
        for r in T.vectorized(6):
            if r < 1:
                C[i * 2 + r] = A[i * 2 + r]
""",
    ),
    "what holds for a whole tile is decided outside of it": (
        "A[11, 8] -> C[11, 8]",
        """
for i in range(3):
    for j in range(4):
        for r in T.vectorized(8):
            if i * 4 + j < 11:
                C[i * 4 + j, r] = A[i * 4 + j, r]
""",
        """
for i, j in T.grid(3, 4):
    if i * 4 + j <= 10:
        for r in T.vectorized(8):
            C[i * 4 + j, r] = A[i * 4 + j, r]
""",
    ),
    "but not if that would double the rest": (
        "A[11, 8] -> C[11, 8], D[3, 4, 8]",
        """
for i in range(3):
    for j in range(4):
        for r in T.vectorized(8):
            D[i, j, r] = 1.0
        for r in T.vectorized(8):
            if i * 4 + j < 11:
                C[i * 4 + j, r] = A[i * 4 + j, r]
""",
        """
for i, j in T.grid(3, 4):
    for r in T.vectorized(8):
        D[i, j, r] = 1.0
    for r in T.vectorized(8):
        if i * 4 + j < 11:
            C[i * 4 + j, r] = A[i * 4 + j, r]
""",
    ),
    "serial loops keep their guard": (
        "A[22] -> C[22]",
        """
for i0 in range(4):
    for i1 in range(6):
        if i0 * 6 + i1 < 22:
            C[i0 * 6 + i1] = A[i0 * 6 + i1]
""",
        """
for i0, i1 in T.grid(4, 6):
    if i0 * 6 + i1 < 22:
        C[i0 * 6 + i1] = A[i0 * 6 + i1]
""",
    ),
    "conditions with an else stay": (
        "A[10], B[10] -> C[10], D[10]",
        """
for i0 in range(3):
    for i1 in T.unrolled(4):
        if i0 * 4 + i1 < 10:
            C[i0 * 4 + i1] = A[i0 * 4 + i1]
        else:
            D[0] = 1.0
        if i0 * 4 + i1 < 9 and A[i0] > 0.0:
            D[i0 * 4 + i1] = B[i0 * 4 + i1]
""",
        """
for i0 in range(3):
    if i0 * 4 <= 5:
        for i1 in T.unrolled(4):
            if i0 * 4 + i1 < 10:
                C[i0 * 4 + i1] = A[i0 * 4 + i1]
            else:
                D[0] = 1.0
            if A[i0] > 0.0:
                D[i0 * 4 + i1] = B[i0 * 4 + i1]
    else:
        for i1 in T.unrolled(4):
            if i0 * 4 + i1 < 10:
                C[i0 * 4 + i1] = A[i0 * 4 + i1]
            else:
                D[0] = 1.0
            if i1 < 1 and A[i0] > 0.0:
                D[i0 * 4 + i1] = B[i0 * 4 + i1]
""",
    ),
}


def body(program: ir.Program) -> str:
    """The text of a program, from its first statement or buffer on."""
    return dedent(str(program).partition("):\n")[2]).strip()


def check_pass(run: Callable[[ir.Program], ir.Program], case: Case) -> None:
    parameters, before, after = case
    assert body(run(kernel(parameters, before))) == after.strip()


@pytest.mark.parametrize("name", FLATTEN)
def test_flatten(name: str) -> None:
    check_pass(flatten, FLATTEN[name])


@pytest.mark.parametrize("name", SIMPLIFY)
def test_simplify(name: str) -> None:
    check_pass(simplify_program, SIMPLIFY[name])


@pytest.mark.parametrize("name", COMPACT)
def test_compact(name: str) -> None:
    check_pass(compact_buffers, COMPACT[name])


@pytest.mark.parametrize("name", TAILS)
def test_version_loops(name: str) -> None:
    check_pass(version_loops, TAILS[name])


# --- places -------------------------------------------------------------------------------------


def test_places() -> None:
    """Small is the stack, between parallel loops is shared, inside one is private, data is a table."""
    program = kernel("A[64] -> C[64]", """
    W = T.table([1.0, 2.0], (2,), "float32")
    S = T.alloc((64,), "float32")
    L = T.alloc((16,), "float32", scope="local")
    P = T.alloc((4000,), "float32")
    G = T.alloc((5000,), "float32")
    X = T.alloc((3,), "float32")
    for i in range(5000):
        G[i] = 1.0
    for i in T.parallel(64):
        S[i] = A[i] + G[i]
    for i in T.parallel(64):
        for j in range(16):
            L[j] = S[63 - i]
        for j in range(4000):
            P[j] = L[j % 16] * W[j % 2]
        C[i] = P[0] + P[3999]
    """)  # fmt: skip
    storage = lower(program).storage

    def names(buffers: object) -> list[str]:
        return [b.name for b in buffers]  # pyright: ignore

    assert names(storage.tables) == ["W"]
    assert names(storage.stack) == ["L"]
    assert sorted(names(storage.shared)) == ["G", "S"]
    assert names(storage.private) == ["P"]
    assert storage.shared_bytes == 20032 + 256  # 5000 floats end within a line of 64 bytes
    assert storage.private_bytes == 16000


def test_passes_in_order() -> None:
    assert [run.__name__ for run in PASSES] == [
        "unroll_annotated",
        "flatten",
        "simplify_program",
        "compact_buffers",
        "serialize_loops",
        "hoist_conditions",
        "version_loops",
        "serialize_unsafe_parallel",
    ]


LOOPS = """
for i in range(5):
    for j in range(9):
        C[i, j] = 1.0
for i in T.KIND(4):
    for j in T.KIND(8):
        BODY
"""
SERIALIZED = {
    "nested threads": ("parallel", "parallel", "C[i, j] = A[i, j]", ("parallel", "serial")),
    "nested lanes": ("vectorized", "vectorized", "C[i, j] = A[i, j]", ("vectorized", "serial")),
    "threads in lanes": ("vectorized", "parallel", "C[i, j] = A[i, j]", ("vectorized", "serial")),
    "lanes in threads": ("parallel", "vectorized", "C[i, j] = A[i, j]", ("parallel", "vectorized")),
    "carried": ("serial", "vectorized", "C[i, j + 1] = C[i, j] + A[i, j]", ("serial", "serial")),
    "lanes in lanes that are carried": (
        "vectorized", "vectorized", "C[i + 1, j] = C[i, j] + A[i, j]", ("serial", "vectorized")),
    "a row for each lane": (
        "vectorized", "serial", "C[i, j] = A[i, j]\n        C[i, 8 - j] = C[i, j]", ("vectorized", "serial")),
}  # fmt: skip


@pytest.mark.parametrize("name", SERIALIZED)
def test_the_lowered_program_says_what_runs(name: str) -> None:
    outer, inner, body, expected = SERIALIZED[name]
    text = LOOPS.replace("KIND", outer, 1).replace("KIND", inner, 1).replace("BODY", body)
    program = kernel("A[5, 9] -> C[5, 9]", text)
    lowered = dict(steps(program))["serialize_loops"]
    assert tuple(s.kind for s in ir.walk(lowered) if isinstance(s, ir.For))[2:] == expected
    check(program)


def test_one_iteration_is_no_thread() -> None:
    program = kernel("A[4] -> C[4]", """
    for i in T.parallel(1):
        for j in T.parallel(4):
            C[j] = A[j]
    """)  # fmt: skip
    *_, (_, lowered) = steps(program)
    assert [s.kind for s in ir.walk(lowered) if isinstance(s, ir.For)] == ["serial", "parallel"]


@pytest.mark.parametrize("name", workloads.names())
def test_no_block_is_left(name: str) -> None:
    program = workloads.create(name)
    assert ir.blocks(program)
    for step, lowered in steps(program):
        without = not any(isinstance(s, ir.Block) for s in ir.walk(lowered))
        assert without or step == "unroll_annotated", step


# --- zeros --------------------------------------------------------------------------------------


def test_which_terms_may_be_zero() -> None:
    a, w = ir.Buffer("A", (4,)), ir.Buffer("W", (4,))
    cond = a[0] > 0.0
    found = split_padding(w[1] * (ir.select(cond, a[1], 0.0) * w[2]))
    assert found is not None
    assert found[0] is cond
    assert str(found[1]) == "W[1] * (A[1] * W[2])"
    assert split_padding(ir.select(cond, a[1], 1.0) * w[0]) is None
    assert split_padding(ir.select(cond, a[1], 0.0) + w[0]) is None
    assert split_padding(a[0] * w[0]) is None


def test_zeros_are_kept_unless_asked_for() -> None:
    parameters, before, _ = FLATTEN["terms with a padding zero are left out where asked"]
    plain = before.replace('        T.annotate({"skip_zeros": True})\n', "")
    assert "T.select" in body(flatten(kernel(parameters, plain)))


@pytest.mark.parametrize(
    ("steps_wanted", "kinds"),
    [(0, "serial serial"), (4, "serial unrolled"), (11, "serial unrolled"), (12, "unrolled unrolled")],
)
def test_unrolled_as_far_as_an_annotation_says(steps_wanted: int, kinds: str) -> None:
    sch = Schedule(workloads.create("GMM", b=1, n=3, m=8, k=4))
    block = sch.get_block("matmul")
    _, i, j, k = sch.get_loops(block)
    sch.reorder(i, k, j)
    sch.vectorize(j)
    sch.annotate(block, "unroll", steps_wanted)
    lowered = unroll_annotated(sch.program)
    loops = [s for s in ir.walk(lowered) if isinstance(s, ir.For) and s.fixed_extent != 1]
    assert " ".join(s.kind for s in loops) == f"{kinds} vectorized"
