"""decompose_reduction, rfactor, fuse_reduction_epilogue."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.cases.programs import CASES
from tests.schedule.checks import check
from tests.schedule.refusals import refusal


def gmm(n: int = 5, m: int = 7, k: int = 6) -> Program:
    return ms.workloads.create("GMM", b=1, n=n, m=m, k=k)


def row_sums(n: int = 3, m: int = 10, dtype: str = "float32") -> Program:
    a, k = te.placeholder((n, m), dtype, name="A"), te.reduce_axis(m, name="k")
    return te.program([a], [te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")], name="row_sums")


def reduced(combine: te.reduction.Reducer, dtype: str = "int32", n: int = 3, m: int = 7) -> Program:
    a, k = te.placeholder((n, m), dtype, name="A"), te.reduce_axis(m, name="k")
    return te.program([a], [te.compute((n,), lambda i: combine(a[i, k], axis=k), name="B")])


def position(kind: str, dtype: str = "float32") -> Program:
    a = te.placeholder((4, 5, 6), dtype, name="A")
    j, k = te.reduce_axis(5, name="j"), te.reduce_axis(6, name="k")
    find = te.argmax if kind == "argmax" else te.argmin
    return te.program([a], [te.compute((4,), lambda i: find(a[i, j, k], axis=[j, k]), name="P")])


def biased(op: str = "sum", n: int = 4, m: int = 5) -> Program:
    a, b = te.placeholder((n, m), name="A"), te.placeholder((n,), name="bias")
    k = te.reduce_axis(m, name="k")
    total = te.compute((n,), lambda i: getattr(te, op)(a[i, k], axis=k), name="total")
    join = {"sum": lambda x, y: x + y, "prod": lambda x, y: y * x, "max": te.maximum, "min": te.minimum}[op]
    return te.program([a, b], [te.compute((n,), lambda i: join(total[i], b[i]), name="C")], name="biased")


def loops_of(sch: Schedule, name: str):
    return sch.get_loops(sch.get_block(name))


def body_of(sch: Schedule) -> str:
    """The printed program from its first loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    for")) :])


# --- decompose_reduction ----------------------------------------------------------------------------------


def test_decompose_reduction_golden() -> None:
    program = row_sums()
    sch = Schedule(program)
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, k0, i1, k1)
    init = sch.decompose_reduction(block, k0)
    assert sch.get(init).name == "B_init"
    assert body_of(sch) == (
        "    for i_0 in range(2):\n"
        "        for i_1 in range(2):\n"
        '            with T.block("B_init"):\n'
        "                v_i = T.spatial(3, i_0 * 2 + i_1)\n"
        "                T.where(i_0 * 2 + i_1 < 3)\n"
        "                T.reads()\n"
        "                T.writes(B[v_i])\n"
        "                B[v_i] = 0.0\n"
        "        for k_0, i_1, k_1 in T.grid(3, 2, 4):\n"
        '            with T.block("B"):\n'
        "                v_i = T.spatial(3, i_0 * 2 + i_1)\n"
        "                v_k = T.reduce(10, k_0 * 4 + k_1)\n"
        "                T.where(i_0 * 2 + i_1 < 3)\n"
        "                T.where(k_0 * 4 + k_1 < 10)\n"
        "                T.reads(B[v_i], A[v_i, v_k])\n"
        "                T.writes(B[v_i])\n"
        "                B[v_i] = B[v_i] + A[v_i, v_k]"
    )
    check(sch, program)


def test_decompose_reduction_refuses_an_outer_reduction_loop() -> None:
    sch = Schedule(row_sums(3, 8))
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    sch.reorder(k, i)
    assert (
        refusal(sch.decompose_reduction, block, i)
        == "the reduction loop over k is outside of the loop over i"
    )


def test_decompose_reduction_refuses_what_has_no_init() -> None:
    sch = Schedule(row_sums())
    block = sch.get_block("B")
    i, _ = sch.get_loops(block)
    sch.decompose_reduction(block, i)
    assert "block 'B' has no init" in refusal(sch.decompose_reduction, block, i)


def test_decompose_reduction_refuses_loops_elsewhere() -> None:
    sch = Schedule(ms.workloads.create("SFM", shape=(3, 5)))
    text = refusal(sch.decompose_reduction, sch.get_block("sum"), loops_of(sch, "max")[0])
    assert "the loop over i0 is not around block 'sum'" in text


def test_decompose_reduction_refuses_fused_kinds() -> None:
    sch = Schedule(row_sums())
    fused = sch.fuse(*loops_of(sch, "B"))
    text = refusal(sch.decompose_reduction, sch.get_block("B"), fused)
    assert "the loop over i_k drives spatial and reduction iterators of block 'B'" in text


def test_decompose_reduction_refuses_repeated_instances() -> None:
    sch = Schedule(
        ms.parse("""
@ms.program
def again(A: T.Tensor((3, 4), "float32"), B: T.Output((3,), "float32")):
    for r, i, k in T.grid(2, 3, 4):
        with T.block("B"):
            v_i = T.spatial(3, i)
            v_k = T.reduce(4, k)
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_i, v_k]
""")
    )
    block = sch.get_block("B")
    r, i, _ = sch.get_loops(block)
    assert "block 'B' may run more than once in its loops" in refusal(sch.decompose_reduction, block, r)
    sch.decompose_reduction(block, i)  # each time around, the init runs again
    check(sch, sch.state.original)


def test_decompose_reduction_refuses_loops_that_may_be_empty() -> None:
    sch = Schedule(
        ms.parse("""
@ms.program
def ragged(A: T.Tensor((3, 4), "float32"), n: T.Tensor((3,), "int32"), B: T.Output((3,), "float32")):
    for i in range(3):
        for k in range(n[i]):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(4, k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
""")
    )
    text = refusal(sch.decompose_reduction, sch.get_block("B"), loops_of(sch, "B")[0])
    assert "the loop over k may be empty, and the init would not run" in text


def test_decompose_reduction_refuses_a_reduction_that_runs_backwards() -> None:
    sch = Schedule(
        ms.parse("""
@ms.program
def backwards(A: T.Tensor((3, 4), "float32"), B: T.Output((3,), "float32")):
    for i, k in T.grid(3, 4):
        with T.block("B"):
            v_i = T.spatial(3, i)
            v_k = T.reduce(4, 3 - k)
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_i, v_k]
""")
    )
    text = refusal(sch.decompose_reduction, sch.get_block("B"), loops_of(sch, "B")[0])
    assert "v_k of block 'B' starts at 3: its init may not run first" in text


def test_decompose_reduction_refuses_instances_that_share_elements() -> None:
    sch = Schedule(
        ms.parse("""
@ms.program
def shared(A: T.Tensor((3, 4), "float32"), B: T.Output((1,), "float32")):
    for i, k in T.grid(3, 4):
        with T.block("B"):
            v_i = T.spatial(3, i)
            v_k = T.reduce(4, k)
            with T.init():
                B[0] = 0.0
            B[0] = B[0] + A[v_i, v_k]
""")
    )
    text = refusal(sch.decompose_reduction, sch.get_block("B"), loops_of(sch, "B")[0])
    assert "instances of block 'B' may depend on each other" in text


def test_decompose_reduction_refuses_a_loop_that_uses_the_result() -> None:
    sch = Schedule(
        ms.parse("""
@ms.program
def used(A: T.Tensor((3, 4), "float32"), C: T.Output((3,), "float32")):
    B = T.alloc((3,), "float32")
    for i in range(3):
        for k in range(4):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(4, k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
        with T.block("C"):
            v_i = T.spatial(3, i)
            C[v_i] = B[v_i] * 2.0
""")
    )
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    text = refusal(sch.decompose_reduction, block, i)
    assert "the result of block 'B' is used by block 'C' in the same loop" in text
    sch.decompose_reduction(block, k)
    check(sch, sch.state.original)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_decompose_reduction_same_on_gmm(at: int) -> None:
    program = gmm()
    sch = Schedule(program)
    block = sch.get_block("matmul")
    loops = sch.get_loops(block)
    sch.decompose_reduction(block, loops[at])
    check(sch, program)


def test_decompose_reduction_same_on_tiles_with_tails() -> None:
    program = ms.workloads.create("C2D", n=1, h=7, w=6, ci=3, co=5, k=3, s=1, p=1)
    sch = Schedule(program)
    block = sch.get_block("conv")
    _, h, w, co, rh, _, rc = sch.get_loops(block)
    h0, h1 = sch.split(h, [None, 4])
    rc0, rc1 = sch.split(rc, [None, 2])
    co0, co1 = sch.split(co, [None, 3])
    sch.reorder(h0, co0, rh, rc0, h1, rc1, co1)
    wide = sch.fuse(co0, w)
    for loop in (rh, wide, h0):
        forked = sch.fork()
        forked.decompose_reduction(block, loop)
        check(forked, program)


def test_decompose_reduction_same_on_argmax_and_tuples() -> None:
    for program in (position("argmax"), position("argmin", "int32")):
        sch = Schedule(program)
        block = sch.get_block("P")
        sch.decompose_reduction(block, sch.get_loops(block)[0])
        check(sch, program)


def test_decompose_reduction_same_where_a_tail_leaves_elements_out() -> None:
    """Part 3 of the tail has nothing in it: the init of the block does not run there, and does not after."""
    program = row_sums()
    sch = Schedule(program)
    k0, k1 = sch.split(loops_of(sch, "B")[1], [4, 4])
    partial = sch.rfactor(k0, 0)
    for loop in (k1, k0):
        forked = sch.fork()
        init = forked.decompose_reduction(partial, loop)
        assert "T.where(k_0 < 3)" in body_of(forked).split(forked.get(init).name)[1]
        check(forked, program)
    sch.blockize(k1)
    check(sch, program)


def test_decompose_reduction_same_on_triangles() -> None:
    program = ms.parse("""
@ms.program
def triangle(A: T.Tensor((5, 5), "float32"), B: T.Output((5,), "float32")):
    for i, k in T.grid(5, 5):
        with T.block("B"):
            v_i = T.spatial(5, i)
            v_k = T.reduce(5, k)
            T.where(k <= i)
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_i, v_k]
""")
    sch = Schedule(program)
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    forked = sch.fork()
    sch.decompose_reduction(block, i)
    check(sch, program)
    forked.split(k, [None, 2])
    forked.rfactor(forked.get_loops(block)[2], 0)
    check(forked, program)


def test_decompose_reduction_then_reduction_loops_reorder() -> None:
    program = gmm()
    sch = Schedule(program)
    block = sch.get_block("matmul")
    _, i, j, k = sch.get_loops(block)
    k0, k1 = sch.split(k, [None, 4])
    sch.decompose_reduction(block, i)
    sch.reorder(k1, k0, i, j)
    check(sch, program)


# --- rfactor ----------------------------------------------------------------------------------------------


def test_rfactor_golden_with_a_tail() -> None:
    program = row_sums()
    sch = Schedule(program)
    block = sch.get_block("B")
    _, k = sch.get_loops(block)
    _, k1 = sch.split(k, [5, 4])
    partial = sch.rfactor(k1, 0)
    assert sch.get(partial).name == "B_rf"
    assert str(sch.program) == (
        "@ms.program\n"
        'def row_sums(A: T.Tensor((3, 10), "float32"), B: T.Output((3,), "float32")):\n'
        '    B_rf = T.alloc((4, 3), "float32")\n'
        "    for i, k_0, k_1 in T.grid(3, 5, 4):\n"
        '        with T.block("B_rf"):\n'
        "            v_i = T.spatial(3, i)\n"
        "            v_k_1 = T.spatial(4, k_1)\n"
        "            v_k_0 = T.reduce(5, k_0)\n"
        "            T.where(k_0 * 4 + k_1 < 10)\n"
        "            T.reads(A[v_i, v_k_0 * 4 + v_k_1])\n"
        "            T.writes(B_rf[v_k_1, v_i])\n"
        "            with T.init():\n"
        "                B_rf[v_k_1, v_i] = 0.0\n"
        "            B_rf[v_k_1, v_i] = B_rf[v_k_1, v_i] + A[v_i, v_k_0 * 4 + v_k_1]\n"
        "    for i, k_1 in T.grid(3, 4):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(3, i)\n"
        "            v_k_1 = T.reduce(4, k_1)\n"
        "            T.reads(B_rf[v_k_1, v_i])\n"
        "            T.writes(B[v_i])\n"
        "            with T.init():\n"
        "                B[v_i] = 0.0\n"
        "            B[v_i] = B[v_i] + B_rf[v_k_1, v_i]"
    )
    check(sch, program)


def test_rfactor_golden_tail_parts_are_not_read() -> None:
    program = row_sums()
    sch = Schedule(program)
    _, k = loops_of(sch, "B")
    k0, _ = sch.split(k, [5, 4])  # parts 3 and 4 have nothing in them
    sch.rfactor(k0, -1)
    final = body_of(sch).split('T.block("B"):')[1]
    assert "T.where(k_0 < 3)" in final
    check(sch, program)


def test_rfactor_golden_of_one_loop_stores_the_terms() -> None:
    program = row_sums()
    sch = Schedule(program)
    sch.rfactor(loops_of(sch, "B")[1], 1)
    assert body_of(sch).startswith(
        "    for i, k in T.grid(3, 10):\n"
        '        with T.block("B_rf"):\n'
        "            v_i = T.spatial(3, i)\n"
        "            v_k = T.spatial(10, k)\n"
        "            T.reads(A[v_i, v_k])\n"
        "            T.writes(B_rf[v_i, v_k])\n"
        "            B_rf[v_i, v_k] = A[v_i, v_k]\n"
    )
    check(sch, program)


def test_rfactor_refuses_case_15209() -> None:
    sch = Schedule(CASES["15209"].make())
    _, k = loops_of(sch, "difference")
    assert refusal(sch.rfactor, k, 0) == (
        "block 'difference' has no init, or does not combine by an operation that is known to be associative "
        "and commutative"
    )


def test_rfactor_refuses_unknown_combiners() -> None:
    unknown = te.reducer(lambda a, b: a * 2 + b, lambda dtype: 0, name="horner")
    sch = Schedule(reduced(unknown))
    assert "known to be associative and commutative" in refusal(sch.rfactor, loops_of(sch, "B")[1], 0)


def test_rfactor_refuses_first_of_equals_without_positions() -> None:
    """The first maximum by the order of the loops: which of two equal ones is first depends on the order."""
    sch = Schedule(
        ms.parse("""
@ms.program
def first(A: T.Tensor((8,), "float32"), V: T.Output((1,), "float32"), P: T.Output((1,), "int64")):
    for i, k in T.grid(1, 8):
        with T.block("B"):
            v_i = T.spatial(1, i)
            v_k = T.reduce(8, k)
            with T.init():
                V[v_i] = T.float32("-inf")
                P[v_i] = 0
            V[v_i], P[v_i] = T.max(V[v_i], A[v_k]), T.select(V[v_i] >= A[v_k], P[v_i], v_k)
""")
    )
    assert "known to be associative and commutative" in refusal(sch.rfactor, loops_of(sch, "B")[1], 0)


def test_rfactor_refuses_spatial_loops() -> None:
    sch = Schedule(gmm())
    text = refusal(sch.rfactor, loops_of(sch, "matmul")[1], 0)
    assert "the loop over i is not a reduction loop of block 'matmul'" in text


def test_rfactor_refuses_fused_kinds() -> None:
    sch = Schedule(gmm())
    _, _, j, k = loops_of(sch, "matmul")
    assert "drives spatial and reduction iterators" in refusal(sch.rfactor, sch.fuse(j, k), 0)


def test_rfactor_refuses_axes_that_are_not_there() -> None:
    sch = Schedule(row_sums())
    for axis in (2, -3):
        text = refusal(sch.rfactor, loops_of(sch, "B")[1], axis)
        assert f"factor_axis {axis} is no dimension of the parts of B" in text


def test_rfactor_refuses_loops_with_more_in_them() -> None:
    source = """
@ms.program
def two(A: T.Tensor((3, 4), "float32"), B: T.Output((3,), "float32"), C: T.Output((4,), "float32")):
    for k in range(4):
        with T.block("C"):
            v_k = T.spatial(4, k)
            C[v_k] = A[0, v_k]
        for i in range(3):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(4, k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
"""
    sch = Schedule(ms.parse(source))
    assert "there are 2 blocks in the loop over k" in refusal(sch.rfactor, loops_of(sch, "C")[0], 0)


def test_rfactor_refuses_partly_shared_reductions() -> None:
    source = """
@ms.program
def two(A: T.Tensor((3, 8), "float32"), B: T.Output((3,), "float32"), C: T.Output((4,), "float32")):
    for k in range(4):
        with T.block("C"):
            v_k = T.spatial(4, k)
            C[v_k] = A[0, v_k]
        for i, l in T.grid(3, 2):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(8, k * 2 + l)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
"""
    sch = Schedule(ms.parse(source))
    text = refusal(sch.rfactor, loops_of(sch, "B")[2], 0)
    assert "block 'B' is not alone in its reduction loop over k" in text


def test_rfactor_refuses_extents_that_are_loaded() -> None:
    source = """
@ms.program
def ragged(A: T.Tensor((3, 4), "float32"), n: T.Tensor((3,), "int32"), B: T.Output((3,), "float32")):
    for i in range(3):
        for k in range(n[i]):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(4, k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
"""
    sch = Schedule(ms.parse(source))
    text = refusal(sch.rfactor, loops_of(sch, "B")[1], 0)
    assert "the extent of the reduction loop over k is not a constant" in text


def test_rfactor_refuses_parts_updated_without_a_start() -> None:
    source = """
@ms.program
def odd(A: T.Tensor((3, 8), "float32"), B: T.Output((3,), "float32")):
    for i, k, l in T.grid(3, 4, 2):
        with T.block("B"):
            v_i = T.spatial(3, i)
            v_k = T.reduce(8, k * 2 + l)
            T.where(k + l != 1)
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_i, v_k]
"""
    program = ms.parse(source)
    sch = Schedule(program)
    text = refusal(sch.rfactor, loops_of(sch, "B")[1], 0)
    assert "a partial result may be updated without being started: it is updated where k + l != 1" in text


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -4])
@pytest.mark.parametrize("which", [0, 1])
def test_rfactor_same_on_gmm(axis: int, which: int) -> None:
    program = gmm(3, 4, 7)
    sch = Schedule(program)
    _, i, j, k = loops_of(sch, "matmul")
    parts = sch.split(k, [None, 3])
    sch.reorder(parts[1], i, parts[0], j)
    sch.rfactor(parts[which], axis)
    check(sch, program)


@pytest.mark.parametrize("factors", [[3, None], [None, 5], [4, 7], [2, 2, None]])
def test_rfactor_same_on_fused_and_split_reductions(factors: list[int | None]) -> None:
    program = ms.workloads.create("NRM", b=2, m=5, n=4)
    for which in range(len(factors)):
        sch = Schedule(program)
        _, i, j = loops_of(sch, "squares")
        parts = sch.split(sch.fuse(i, j), factors)
        partial = sch.rfactor(parts[which], 0)
        sch.decompose_reduction(partial, sch.get_loops(partial)[0]) if len(factors) > 1 else None
        check(sch, program)


def test_rfactor_same_on_softmax_twice() -> None:
    program = ms.workloads.create("SFM", shape=(3, 11))
    sch = Schedule(program)
    for name in ("max", "sum"):
        _, k = loops_of(sch, name)
        k0, _ = sch.split(k, [None, 4])
        sch.rfactor(k0, 0)
    check(sch, program)


def test_rfactor_same_of_an_rfactor() -> None:
    program = row_sums(2, 30)
    sch = Schedule(program)
    _, k = loops_of(sch, "B")
    _, _, k2 = sch.split(k, [None, 4, 3])
    partial = sch.rfactor(k2, 0)
    _, k0, _, _ = sch.get_loops(partial)
    sch.rfactor(k0, 1)
    sch.rfactor(loops_of(sch, "B")[1], 0)
    check(sch, program)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_rfactor_same_on_positions(kind: str, dtype: str) -> None:
    """Small integers have many ties, NaNs come first."""
    program = position(kind, dtype)
    values = np.random.default_rng(1).integers(-2, 3, (4, 5, 6)).astype(dtype)
    if dtype == "float32":
        values[1, 3, 2:4] = np.nan
        values[2] = -np.inf
    for which in (0, 1):
        sch = Schedule(program)
        _, j, k = loops_of(sch, "P")
        sch.reorder(k, j)
        sch.rfactor((j, k)[which], 1)
        check(sch, program, inputs=[values])


@pytest.mark.parametrize(
    ("dtype", "combine"),
    [
        ("int32", te.reducer(lambda a, b: a ^ b, lambda dtype: 0, name="xor")),
        ("int8", te.reducer(lambda a, b: a & b, lambda dtype: -1, name="all_bits")),
        ("uint8", te.reducer(lambda a, b: a & b, lambda dtype: 255, name="all_bits")),
        ("uint8", te.reducer(lambda a, b: a | b, lambda dtype: 0, name="any_bit")),
        ("bool", te.reducer(lambda a, b: a & b, lambda dtype: True, name="all")),
        ("bool", te.reducer(lambda a, b: a | b, lambda dtype: False, name="any")),
        ("int32", te.reducer(lambda a, b: a * b, lambda dtype: 1, name="product")),
        ("uint8", te.reducer(te.minimum, lambda dtype: 255, name="least")),
        ("int32", te.reducer(lambda a, b: a + b, lambda dtype: 7, name="from_seven")),
    ],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_rfactor_same_on_reducers_of_users(dtype: str, combine: te.reduction.Reducer) -> None:
    """Also one that starts from another value than its identity: parts start from the identity."""
    program = reduced(combine, dtype)
    sch = Schedule(program)
    _, k1 = sch.split(loops_of(sch, "B")[1], [None, 3])
    sch.rfactor(k1, 0)
    check(sch, program)


def test_rfactor_same_on_tuples() -> None:
    a, k = te.placeholder((3, 9), name="A"), te.reduce_axis(9, name="k")
    both = te.reducer(
        lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1])), lambda *_: (0, -np.inf), name="both"
    )
    results = te.compute((3,), lambda i: both((a[i, k], a[i, k] * a[i, k]), axis=k), name="B")
    program = te.program([a], list(results))
    sch = Schedule(program)
    k0, _ = sch.split(loops_of(sch, "B")[1], [None, 2])
    sch.rfactor(k0, 0)
    check(sch, program)


def test_rfactor_same_inside_shared_loops() -> None:
    source = """
@ms.program
def shared(A: T.Tensor((3, 8), "float32"), C: T.Output((3,), "float32")):
    B = T.alloc((3,), "float32")
    for i in range(3):
        for k in range(8):
            with T.block("B"):
                v_i = T.spatial(3, i)
                v_k = T.reduce(8, k)
                with T.init():
                    B[v_i] = 0.0
                B[v_i] = B[v_i] + A[v_i, v_k]
        with T.block("C"):
            v_i = T.spatial(3, i)
            C[v_i] = B[v_i] * 2.0
"""
    program = ms.parse(source)
    sch = Schedule(program)
    _, k1 = sch.split(loops_of(sch, "B")[1], [None, 3])
    sch.rfactor(k1, 0)
    check(sch, program)


def test_rfactor_same_structure_for_other_decisions() -> None:
    program = row_sums(3, 10)
    sch = Schedule(program)
    _, k = loops_of(sch, "B")
    k0, _ = sch.split(k, sch.sample_tile(k, 2, 5))
    sch.rfactor(k0, 0)
    shapes: set[str] = set()
    for seed in range(8):
        again = sch.trace.apply(program, rng=random.Random(seed))
        check(again, program, compiled=False)
        shapes.add(str([type(n).__name__ for n in again.state.nodes.values()]))
        predicates = [len(n.predicate) for n in again.state.nodes.values() if hasattr(n, "predicate")]
        assert predicates == [1, 1]
    assert len(shapes) == 1


# --- fuse_reduction_epilogue ------------------------------------------------------------------------------


def test_fuse_reduction_epilogue_golden() -> None:
    program = biased()
    sch = Schedule(program)
    sch.fuse_reduction_epilogue(sch.get_block("total"), sch.get_block("C"))
    assert str(sch.program) == (
        "@ms.program\n"
        "def biased(\n"
        '    A: T.Tensor((4, 5), "float32"),\n'
        '    bias: T.Tensor((4,), "float32"),\n'
        '    C: T.Output((4,), "float32"),\n'
        "):\n"
        "    for i, k in T.grid(4, 5):\n"
        '        with T.block("total"):\n'
        "            v_i = T.spatial(4, i)\n"
        "            v_k = T.reduce(5, k)\n"
        "            T.reads(bias[v_i], A[v_i, v_k])\n"
        "            T.writes(C[v_i])\n"
        "            with T.init():\n"
        "                C[v_i] = bias[v_i]\n"
        "            C[v_i] = C[v_i] + A[v_i, v_k]"
    )
    check(sch, program)


def test_fuse_reduction_epilogue_refuses_other_operations() -> None:
    program = ms.workloads.create("NRM", b=1, m=3, n=2)
    sch = Schedule(program)
    assert refusal(sch.fuse_reduction_epilogue, sch.get_block("squares"), sch.get_block("norm")) == (
        "block 'norm' does not combine squares by '+', as the reduction does"
    )


def epilogue(text: str, more: str = "") -> Schedule:
    """A sum of rows with an epilogue `text` of its element `S[v_i]`, and more statements after it."""
    return Schedule(
        ms.parse(f"""
@ms.program
def main(A: T.Tensor((4, 5), "float32"), b: T.Tensor((4,), "float32"), C: T.Output((4,), "float32"),
         D: T.Output((4, 4), "float32")):
    S = T.alloc((4,), "float32")
    for i, k in T.grid(4, 5):
        with T.block("S"):
            v_i = T.spatial(4, i)
            v_k = T.reduce(5, k)
            with T.init():
                S[v_i] = 0.0
            S[v_i] = S[v_i] + A[v_i, v_k]
    for i in range(4):
        with T.block("C"):
            v_i = T.spatial(4, i)
            {text}
    for i, j in T.grid(4, 4):
        with T.block("D"):
            v_i = T.spatial(4, i)
            v_j = T.spatial(4, j)
            D[v_i, v_j] = {more or "1.0"}
""")
    )


def fuse(sch: Schedule, reduction: str = "S", last: str = "C") -> None:
    sch.fuse_reduction_epilogue(sch.get_block(reduction), sch.get_block(last))


def test_fuse_reduction_epilogue_refuses_what_is_no_reduction() -> None:
    text = refusal(fuse, epilogue("C[v_i] = S[v_i] + b[v_i]"), "D")
    assert "block 'D' has no init, or does not reduce one value by a known operation" in text


def test_fuse_reduction_epilogue_refuses_shared_results() -> None:
    text = refusal(fuse, epilogue("C[v_i] = S[v_i] + b[v_i]", "S[v_i]"))
    assert "S is used, or C written, by others than the two blocks" in text


def test_fuse_reduction_epilogue_refuses_outputs() -> None:
    program = row_sums()
    sch = Schedule(program)
    text = refusal(fuse, sch, "B", "B")
    assert "block 'B' is not one element-wise store" in text
    source = str(epilogue("C[v_i] = S[v_i] + b[v_i]").program)
    made = source.replace('    S = T.alloc((4,), "float32")\n', "").replace(
        "D: T.Output((4, 4)", 'S: T.Output((4,), "float32"),\n    D: T.Output((4, 4)'
    )
    assert "S is not an intermediate buffer" in refusal(fuse, Schedule(ms.parse(made)))


def test_fuse_reduction_epilogue_refuses_other_elements() -> None:
    text = refusal(fuse, epilogue("C[v_i] = S[3 - v_i] + b[v_i]"))
    assert "3 - v_i of the epilogue and v_i of the reduction are not the same dimension" in text


def test_fuse_reduction_epilogue_refuses_broadcasts() -> None:
    sch = epilogue("C[v_i] = 1.0", "S[v_i] + A[v_j, v_i]")
    assert "v_j is no dimension of S" in refusal(fuse, sch, "S", "D")


def test_fuse_reduction_epilogue_refuses_its_own_result() -> None:
    assert "does not combine S by '+'" in refusal(fuse, epilogue("C[v_i] = S[v_i] + S[v_i]"))


def test_fuse_reduction_epilogue_refuses_parts() -> None:
    sch = epilogue("C[v_i] = S[v_i] + b[v_i]")
    source = str(sch.program).replace(
        '    for i in range(4):\n        with T.block("C"):\n            v_i = T.spatial(4, i)\n',
        '    for i in range(4):\n        with T.block("C"):\n            v_i = T.spatial(4, i)\n'
        "            T.where(i < 3)\n",
    )
    assert "T.where" in source
    text = refusal(fuse, Schedule(ms.parse(source)))
    assert "block 'C' is not known to run exactly once for each element of S" in text


def test_fuse_reduction_epilogue_refuses_late_operands() -> None:
    source = """
@ms.program
def late(A: T.Tensor((4, 5), "float32"), C: T.Output((4,), "float32")):
    S = T.alloc((4,), "float32")
    b = T.alloc((4,), "float32")
    for i, k in T.grid(4, 5):
        with T.block("S"):
            v_i = T.spatial(4, i)
            v_k = T.reduce(5, k)
            with T.init():
                S[v_i] = 0.0
            S[v_i] = S[v_i] + A[v_i, v_k]
    for i in range(4):
        with T.block("b"):
            v_i = T.spatial(4, i)
            b[v_i] = A[v_i, 0]
    for i in range(4):
        with T.block("C"):
            v_i = T.spatial(4, i)
            C[v_i] = S[v_i] + b[v_i]
"""
    text = refusal(fuse, Schedule(ms.parse(source)))
    assert "what the epilogue reads may be written after the reduction starts" in text


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_fuse_reduction_epilogue_same_for_each_operation(op: str) -> None:
    program = biased(op)
    sch = Schedule(program)
    _, k = loops_of(sch, "total")
    k0, _ = sch.split(k, [None, 2])
    sch.split(loops_of(sch, "C")[0], [None, 3])
    fuse(sch, "total", "C")
    check(sch, program)
    sch.rfactor(k0, 0)
    check(sch, program)


def test_fuse_reduction_epilogue_same_on_dense_and_convolution() -> None:
    dense = ms.workloads.create("FDENSE", m=3, n=5, k=4)
    sch = Schedule(dense)
    fuse(sch, "dense", "bias_add")
    check(sch, dense)
    conv = ms.workloads.create("CBR", n=1, h=5, w=4, ci=2, co=3, k=3, s=1, p=1)
    sch = Schedule(conv)
    fuse(sch, "conv", "bias_add")
    block = sch.get_block("conv")
    sch.decompose_reduction(block, sch.get_loops(block)[4])
    check(sch, conv)


# --- reorder, where it meets reductions -------------------------------------------------------------------


def test_reorder_of_loops_of_both_kinds_keeps_the_init_first() -> None:
    sch = Schedule(row_sums(4, 5))
    parts = sch.split(sch.fuse(*loops_of(sch, "B")), [None, 2])
    with pytest.raises(ScheduleError, match="or its init would not be first"):
        sch.reorder(parts[1], parts[0])


def test_reorder_refuses_reductions_that_are_repeated() -> None:
    source = """
@ms.program
def again(A: T.Tensor((3, 4), "float32"), B: T.Output((3,), "float32")):
    for r, i, k in T.grid(2, 3, 4):
        with T.block("B"):
            v_i = T.spatial(3, i)
            v_k = T.reduce(4, k)
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_i, v_k]
"""
    program = ms.parse(source)
    sch = Schedule(program)
    r, i, k = loops_of(sch, "B")
    assert "may run more than once" in refusal(sch.reorder, k, r)
    sch.reorder(k, i)
    check(sch, program)


# --- anything goes ----------------------------------------------------------------------------------------

PROGRAMS = [
    lambda: gmm(3, 4, 5),
    lambda: ms.workloads.create("NRM", b=2, m=3, n=4),
    lambda: ms.workloads.create("SFM", shape=(3, 7)),
    lambda: ms.workloads.create("C2D", n=1, h=4, w=3, ci=2, co=3, k=2, s=1, p=1),
    lambda: ms.workloads.create("T2D", n=1, h=2, w=2, ci=2, co=2, k=2, s=2, p=0),
    lambda: ms.workloads.create("TBG", b=1, s=3, h=2, d=4),
    lambda: position("argmax"),
    lambda: position("argmin", "int32"),
    lambda: biased(),
    lambda: biased("max"),
    lambda: reduced(te.reducer(lambda a, b: a ^ b, lambda dtype: 0)),
    lambda: CASES["17799"].small_program(),
]


def random_step(sch: Schedule, rng: random.Random) -> None:
    blocks = [n.name for k, n in sch.state.nodes.items() if isinstance(k, str)]
    block = sch.get_block(rng.choice(blocks))
    loops = sch.get_loops(block)
    what = rng.choice(["split", "fuse", "reorder", "decompose", "rfactor", "rfactor", "epilogue", "blockize"])
    if what == "epilogue":
        sch.fuse_reduction_epilogue(block, sch.get_block(rng.choice(blocks)))
    if not loops:
        return
    loop = rng.choice(loops)
    if what == "split":
        sch.split(loop, rng.choice([[None, 2], [2, None], [None, 3], [3, 4], [None, 2, 2]]))
    elif what == "fuse":
        at = rng.randrange(len(loops))
        sch.fuse(*loops[at : at + 2])
    elif what == "reorder":
        sch.reorder(*rng.sample(loops, min(len(loops), 3)))
    elif what == "decompose":
        sch.decompose_reduction(block, loop)
    elif what == "rfactor":
        sch.rfactor(loop, rng.randrange(-2, 3))
    elif what == "blockize":
        sch.blockize(loop)


@given(st.integers(0, len(PROGRAMS) - 1), st.integers(0, 2**32))
def test_accepted_steps_keep_the_results(which: int, seed: int) -> None:
    rng = random.Random(seed)
    program = PROGRAMS[which]()
    sch = Schedule(program)
    for _ in range(8):
        try:
            random_step(sch, rng)
        except ScheduleError as error:
            str(error)
    check(sch, program, compiled=seed % 4 == 0)
