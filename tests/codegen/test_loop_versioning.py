"""Tiles that do not divide, in the four forms of a tail and with every kind of loop.

The forms are *small* (the last tile is a smaller one), *mask* (its lanes are switched off), *shift* (it
begins early) and *pad* (operands are filled up with zeros, only the write-back is guarded).
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from metaschedule.codegen.lower import steps
from metaschedule.ir import For, If, Program, walk
from tests.codegen.compiled import build, check, kernel

KINDS = ["serial", "parallel", "vectorized", "unrolled"]
SIZES = [(109, 16), (7, 8), (13, 5), (16, 8), (5, 6), (1, 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "f"), SIZES)
def test_guarded_tail(n: int, f: int, kind: str) -> None:
    check(kernel(f"A[{n}] -> C[{n}]", f"""
    for i0 in T.parallel({-(-n // f)}):
        for i1 in T.{kind}({f}):
            with T.block("C"):
                vi = T.spatial({n}, i0 * {f} + i1)
                T.where(i0 * {f} + i1 < {n})
                C[vi] = A[vi] * 2.0 + A[{n - 1} - vi]
    """))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "f"), [(n, f) for n, f in SIZES if n >= f])
def test_shifted_tail(n: int, f: int, kind: str) -> None:
    check(kernel(f"A[{n}] -> C[{n}]", f"""
    for i0 in range({-(-n // f)}):
        for i1 in T.{kind}({f}):
            with T.block("C"):
                vi = T.spatial({n}, T.min(i0 * {f}, {n - f}) + i1)
                C[vi] = A[vi] * 2.0 + A[{n - 1} - vi]
    """))  # fmt: skip


@pytest.mark.parametrize("inner", ["vectorized", "unrolled", "serial"])
@pytest.mark.parametrize(("n", "f", "g"), [(22, 6, 4), (23, 12, 8), (100, 24, 16)])
def test_tile_of_tiles(n: int, f: int, g: int, inner: str) -> None:
    """An inner tile that does not divide has rows that belong to the next one: its own predicate."""
    check(kernel(f"A[{n}] -> C[{n}]", f"""
    for i in range({n}):
        C[i] = 1.0
    for i0, i1 in T.grid({-(-n // f)}, {-(-f // g)}):
        for i2 in T.{inner}({g}):
            with T.block("C"):
                vi = T.spatial({n}, i0 * {f} + (i1 * {g} + i2))
                T.where(i0 * {f} + (i1 * {g} + i2) < {n})
                T.where(i1 * {g} + i2 < {f})
                C[vi] = C[vi] + A[vi]
    """))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "f", "chunk"), [(128, 6, 8), (50, 12, 4), (13, 4, 3), (24, 6, 3), (5, 8, 2)])
def test_tiles_in_chunks(n: int, f: int, chunk: int, kind: str) -> None:
    """Neither tiles nor chunks of tiles divide: there are tiles beyond the tail."""
    tiles = -(-n // f)
    check(kernel(f"A[{n}] -> C[{n}]", f"""
    for i00 in T.parallel({-(-tiles // chunk)}):
        for i01 in range({chunk}):
            for i1 in T.{kind}({f}):
                with T.block("C"):
                    vi = T.spatial({n}, (i00 * {chunk} + i01) * {f} + i1)
                    T.where((i00 * {chunk} + i01) * {f} + i1 < {n})
                    T.where(i00 * {chunk} + i01 < {tiles})
                    C[vi] = A[vi] * 2.0 + A[{n - 1} - vi]
    """))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "pad", "f"), [(20, 2, 4), (20, 5, 4), (7, 3, 16), (40, 9, 8)])
def test_tiles_of_a_padded_axis(n: int, pad: int, f: int, kind: str) -> None:
    """Only what is inside counts: the first tiles are cut at their beginning."""
    inside = f"i0 * 3 + i1 + r >= {pad} and i0 * 3 + i1 + r < {n + pad}"
    check(kernel(f"A[{n}] -> C[{n + 2 * pad}]", f"""
    for i in range({n + 2 * pad}):
        C[i] = 0.0
    for i0 in range({-(-(n + pad) // 3)}):
        for r in range(3):
            for i1 in T.{kind}({f}):
                if {inside}:
                    C[i0 * 3 + i1 + r] = C[i0 * 3 + i1 + r] + A[i0 * 3 + i1 + r - {pad}]
    """))  # fmt: skip


MATMUL_TILE = """
for i0, j0 in T.grid({ni}, {nj}):
    for i1 in T.unrolled({fi}):
        for j1 in T.vectorized({fj}):
            with T.block("init"):
                vi = T.spatial({n}, i0 * {fi} + i1)
                vj = T.spatial({m}, j0 * {fj} + j1)
                T.where(i0 * {fi} + i1 < {n})
                T.where(j0 * {fj} + j1 < {m})
                C[vi, vj] = 0.0
    for k in range({k}):
        for i1 in T.unrolled({fi}):
            for j1 in T.vectorized({fj}):
                with T.block("update"):
                    vi = T.spatial({n}, i0 * {fi} + i1)
                    vj = T.spatial({m}, j0 * {fj} + j1)
                    vk = T.reduce({k}, k)
                    T.where(i0 * {fi} + i1 < {n})
                    T.where(j0 * {fj} + j1 < {m})
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def tiled_matmul(n: int, m: int, k: int, fi: int, fj: int) -> Program:
    body = MATMUL_TILE.format(n=n, m=m, k=k, fi=fi, fj=fj, ni=-(-n // fi), nj=-(-m // fj))
    return kernel(f"A[{n}, {k}], B[{k}, {m}] -> C[{n}, {m}]", body)


@pytest.mark.parametrize(
    ("n", "m", "k", "fi", "fj"),
    [(13, 37, 5, 6, 16), (12, 32, 4, 6, 16), (6, 17, 3, 6, 16), (5, 7, 9, 6, 16), (7, 55, 3, 4, 8)],
)
def test_register_tile_with_two_tails(n: int, m: int, k: int, fi: int, fj: int) -> None:
    check(tiled_matmul(n, m, k, fi, fj))


def test_full_tiles_have_no_tests() -> None:
    """Two tails are four versions, chosen above the reduction; the full one has no condition left."""
    versioned = dict(steps(tiled_matmul(13, 37, 5, 6, 16)))["version_loops"]
    loops = [s for s in walk(versioned) if isinstance(s, For) and s.var.name == "k"]
    assert len(loops) == 4
    assert not any(isinstance(s, If) for s in walk(loops[0]))


def test_one_version_for_all_tails() -> None:
    text = """
    for i0, j0 in T.grid(3, 5):
        for i1 in T.unrolled(6):
            for j1 in T.vectorized(8):
                with T.block("C"):
                    vi = T.spatial(13, i0 * 6 + i1)
                    vj = T.spatial(37, j0 * 8 + j1)
                    T.where(i0 * 6 + i1 < 13 and j0 * 8 + j1 < 37)
                    C[vi, vj] = A[vi, vj] * 2.0
    """
    (fused, annotated) = ("for ij in T.parallel(15{}):", ', annotations={"one_tail": 1}')
    text = text.replace("for i0, j0 in T.grid(3, 5):", fused).replace("i0", "ij // 5").replace("j0", "ij % 5")
    program = kernel("A[13, 37] -> C[13, 37]", text.format(annotated))
    check(program)
    assert [copies(p) for p in (program, kernel("A[13, 37] -> C[13, 37]", text.format("")))] == [2, 4]


def copies(program: Program) -> int:
    versioned = dict(steps(program))["version_loops"]
    return sum(isinstance(s, For) and s.kind == "vectorized" for s in walk(versioned))


@pytest.mark.parametrize("kind", ["unrolled", "vectorized", "serial"])
def test_tail_of_a_reduction(kind: str) -> None:
    check(kernel("A[6, 29] -> C[6]", f"""
    for i in T.parallel(6):
        for k0 in range(4):
            for k1 in T.{kind}(8):
                with T.block("sum"):
                    vi = T.spatial(6, i)
                    vk = T.reduce(29, k0 * 8 + k1)
                    T.where(k0 * 8 + k1 < 29)
                    with T.init():
                        C[vi] = 0.0
                    C[vi] = C[vi] + A[vi, vk]
    """))  # fmt: skip


@pytest.mark.parametrize("kind", ["unrolled", "vectorized"])
def test_tail_of_a_fused_loop(kind: str) -> None:
    """A fused loop has no contiguous main part; the same tail comes back in every row."""
    check(kernel("A[5, 23] -> C[5, 23]", f"""
    for f in T.parallel(15):
        for j in T.{kind}(8):
            with T.block("C"):
                vi = T.spatial(5, f // 3)
                vj = T.spatial(23, f % 3 * 8 + j)
                T.where(f % 3 * 8 + j < 23)
                C[vi, vj] = A[vi, vj] + 1.0
    """))  # fmt: skip


def test_padded_tail() -> None:
    """Operands packed with zeros, the whole tile computed privately, the write-back guarded."""
    check(kernel("A[13, 21], B[21, 19] -> C[13, 19]", """
    for i0, j0 in T.grid(3, 2):
        with T.block("tile"):
            ti = T.spatial(3, i0)
            tj = T.spatial(2, j0)
            P = T.alloc((21, 6), "float32")
            Q = T.alloc((21, 16), "float32")
            L = T.alloc((6, 16), "float32")
            for k in range(21):
                for r in range(6):
                    with T.block("P"):
                        vk = T.spatial(21, k)
                        vr = T.spatial(6, r)
                        vi = T.spatial(18, ti * 6 + r)
                        P[vk, vr] = T.select(vi < 13, A[vi, vk], 0.0)
                for c in T.vectorized(16):
                    with T.block("Q"):
                        vk = T.spatial(21, k)
                        vc = T.spatial(16, c)
                        vj = T.spatial(32, tj * 16 + c)
                        Q[vk, vc] = T.select(vj < 19, B[vk, vj], 0.0)
            for r in T.unrolled(6):
                for c in T.vectorized(16):
                    with T.block("zero"):
                        vr = T.spatial(6, r)
                        vc = T.spatial(16, c)
                        L[vr, vc] = 0.0
            for k in range(21):
                for r in T.unrolled(6):
                    for c in T.vectorized(16):
                        with T.block("update"):
                            vr = T.spatial(6, r)
                            vc = T.spatial(16, c)
                            vk = T.reduce(21, k)
                            L[vr, vc] = L[vr, vc] + P[vk, vr] * Q[vk, vc]
            for r in T.unrolled(6):
                for c in T.vectorized(16):
                    with T.block("C"):
                        vr = T.spatial(6, r)
                        vc = T.spatial(16, c)
                        vi = T.spatial(13, ti * 6 + r)
                        vj = T.spatial(19, tj * 16 + c)
                        T.where(ti * 6 + r < 13)
                        T.where(tj * 16 + c < 19)
                        C[vi, vj] = L[vr, vc]
    """))  # fmt: skip


def test_masked_tail_uses_masked_vectors() -> None:
    program = kernel("A[13], N:int64[1] -> C[13]", """
    for i in range(13):
        C[i] = 0.0
    for i0 in range(2):
        for v in T.vectorized(8):
            if i0 * 8 + v < N[0]:
                C[i0 * 8 + v] = A[i0 * 8 + v]
    """)  # fmt: skip
    for n in (0, 3, 8, 9, 13):
        check(program, np.arange(13, dtype="f"), np.array([n]))
    text = build(program).source("llvm")
    assert "llvm.masked.load" in text
    assert "llvm.masked.store" in text


def test_branches_where_lanes_agree() -> None:
    """Of a condition that differs between lanes, only that part is a mask which does."""
    program = kernel("A[5, 16], N:int64[2] -> C[5, 16]", """
    for i, j in T.grid(5, 16):
        C[i, j] = 0.0
    for i in range(5):
        for v in T.vectorized(16):
            if A[i, v] > 0.0 and i * 3 != 9 and v != N[0]:
                C[i, v] = A[i, v]
    """)  # fmt: skip
    for n in (0, 7, 99):
        check(program, np.arange(-8, 72, dtype="f").reshape(5, 16), np.array([n, 0]))
    text = build(program).source("llvm")
    assert re.search(r"icmp ne i64 %\S+, 3\n +br i1", text)
