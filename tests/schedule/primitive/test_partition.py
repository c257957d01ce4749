"""loop_partition and merge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import ScheduleError, te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.schedule.checks import assert_same_results, check, check_round_trip
from tests.schedule.primitive.test_kinds import (
    PACKED,
    SCAN,
    SMALL,
    SUBTRACT,
    TRIANGLE,
    affine_programs,
    body_of,
    check_any_order,
    halo,
    loops_of,
    matmul,
    random_steps,
    scale,
)
from tests.schedule.refusals import refusal
from tests.te.random_expressions import RandomExpression, random_expressions


def chain(n: int = 6, m: int = 4) -> Program:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    return te.program([a], [te.compute((n, m), lambda i, j: b[i, j] * 2.0, name="C")], name="chain")


def stencil(reads: str, extent: int = 6) -> Program:
    """C[i] of elements of B around i."""
    return ms.parse(f"""
@ms.program
def stencil(A: T.Tensor((8,), "float32"), C: T.Output(({extent},), "float32")):
    B = T.alloc((8,), "float32")
    for z in range(8):
        with T.block("Z"):
            v = T.spatial(8, z)
            B[v] = 0.0
    for i in range(6):
        with T.block("B"):
            v = T.spatial(6, i)
            B[v + 1] = A[v + 1] * 2.0
    for j in range({extent}):
        with T.block("C"):
            v = T.spatial({extent}, j)
            C[v] = {reads}
""")


NESTED = ms.parse("""
@ms.program
def nested(A: T.Tensor((6, 4), "float32"), B: T.Output((6, 4), "float32")):
    for i in range(6):
        with T.block("outer"):
            vi = T.spatial(6, i)
            S = T.alloc((4,), "float32")
            for j in range(4):
                with T.block("copy"):
                    wi = T.spatial(6, vi)
                    vj = T.spatial(4, j)
                    S[vj] = A[wi, vj] * 2.0
            for j in range(4):
                with T.block("inner"):
                    wi = T.spatial(6, vi)
                    vj = T.spatial(4, j)
                    B[wi, vj] = S[3 - vj]
""")

GUARDED = ms.parse("""
@ms.program
def guarded(A: T.Tensor((6,), "float32"), B: T.Output((6,), "float32")):
    for i in range(6):
        with T.block("zero"):
            v = T.spatial(6, i)
            B[v] = 0.0
    for i in range(6):
        if i < 4:
            with T.block("B"):
                v = T.spatial(6, i)
                B[v] = A[v] * 2.0
        for j in range(i):
            with T.block("C"):
                v = T.spatial(6, i)
                w = T.reduce(6, j)
                B[v] = B[v] + A[w]
""")

ASSERTED = ms.parse("""
@ms.program
def asserted(A: T.Tensor((6,), "int64"), B: T.Tensor((6,), "float32"), C: T.Output((6,), "float32")):
    D = T.alloc((6,), "int64")
    for i in range(6):
        with T.block("D"):
            v = T.spatial(6, i)
            assert A[v] < 6, "out of range"
            D[v] = A[v]
    for i in range(6):
        with T.block("C"):
            v = T.spatial(6, i)
            C[v] = B[v] * 2.0
""")

SCRIPTS = [NESTED, GUARDED, TRIANGLE, SCAN, SUBTRACT, PACKED, halo()]


# --- loop_partition -------------------------------------------------------------------------------


def test_loop_partition_golden() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    assert body_of(sch).splitlines()[0] == "    for i in range(13):"
    sch.loop_partition(i, [4, None])
    assert body_of(sch) == (
        "    for i_0 in range(4):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(13, i_0)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A[v_i] * 2.0\n"
        "    for i_1 in range(9):\n"
        '        with T.block("B_1"):\n'
        "            v_i = T.spatial(13, i_1 + 4)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A[v_i] * 2.0"
    )


def test_loop_partition_golden_of_a_reduction_begins_once() -> None:
    sch = Schedule(matmul(1, 2, 2, 5))
    k = loops_of(sch, "matmul")[3]
    sch.loop_partition(k, [2, None])
    assert body_of(sch) == (
        "    for b, i, j in T.grid(1, 2, 2):\n"
        "        for k_0 in range(2):\n"
        '            with T.block("matmul"):\n'
        "                v_b = T.spatial(1, 0)\n"
        "                v_i = T.spatial(2, i)\n"
        "                v_j = T.spatial(2, j)\n"
        "                v_k = T.reduce(5, k_0)\n"
        "                T.reads(X[v_b, v_i, v_k], Y[v_b, v_k, v_j])\n"
        "                T.writes(matmul[v_b, v_i, v_j])\n"
        "                with T.init():\n"
        "                    matmul[v_b, v_i, v_j] = 0.0\n"
        "                matmul[v_b, v_i, v_j] = matmul[v_b, v_i, v_j] + "
        "X[v_b, v_i, v_k] * Y[v_b, v_k, v_j]\n"
        "        for k_1 in range(3):\n"
        '            with T.block("matmul_1"):\n'
        "                v_b = T.spatial(1, 0)\n"
        "                v_i = T.spatial(2, i)\n"
        "                v_j = T.spatial(2, j)\n"
        "                v_k = T.reduce(5, k_1 + 2)\n"
        "                T.reads(matmul[v_b, v_i, v_j], X[v_b, v_i, v_k], Y[v_b, v_k, v_j])\n"
        "                T.writes(matmul[v_b, v_i, v_j])\n"
        "                matmul[v_b, v_i, v_j] = matmul[v_b, v_i, v_j] + X[v_b, v_i, v_k] * Y[v_b, v_k, v_j]"
    )


def test_loop_partition_keeps_handles_of_the_first_piece() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("matmul")
    _, i, j, _ = sch.get_loops(block)
    first, second = sch.loop_partition(i, [2, None])
    assert sch.get(block).name == "matmul"
    sch.vectorize(j)
    (other,) = sch.get_child_blocks(second)
    assert sch.get(other).name == "matmul_1"
    assert [sch.get(h).kind for h in sch.get_loops(other)] == ["serial"] * 4
    with pytest.raises(ms.ScheduleError, match="the loop of l2 is gone"):
        sch.unroll(i)
    assert sch.get(first).fixed_extent == 2


def test_loop_partition_refuses_what_does_not_sum_up() -> None:
    sch = Schedule(scale())
    assert refusal(sch.loop_partition, *loops_of(sch, "B"), [4, 5]) == "the factors sum up to 9, not to 13"


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([], "loop_partition needs at least one factor"),
        ([None, 3, None], "more than one factor is None"),
        ([0, None], "factors must be positive, got [0, None]"),
        ([-1, 14], "factors must be positive, got [-1, 14]"),
        ([13, None], "the factors sum up to 13 and leave nothing of 13 for the other piece"),
        ([9, 9, None], "the factors sum up to 18 and leave nothing of 13 for the other piece"),
    ],
)
def test_loop_partition_refuses_factors(factors: list[int | None], message: str) -> None:
    sch = Schedule(scale())
    assert refusal(sch.loop_partition, *loops_of(sch, "B"), factors) == message


def test_loop_partition_refuses_an_extent_that_is_not_constant() -> None:
    sch = Schedule(TRIANGLE)
    message = refusal(sch.loop_partition, loops_of(sch, "B")[1], [1, None])
    assert message == "the extent of the loop is not a constant"


def test_loop_partition_refuses_a_loop_with_a_kind_or_notes() -> None:
    sch = Schedule(matmul())
    _, i, j, _ = loops_of(sch, "matmul")
    sch.parallel(i)
    sch.annotate(j, "x", 1)
    assert refusal(sch.loop_partition, i, [1, None]) == "the loop over i is parallel already"
    assert refusal(sch.loop_partition, j, [1, None]) == "the loop over j has annotations"


@pytest.mark.parametrize("factors", [[13], [None], [1, 12], [5, None, 3], [1, 1, 1, None]])
def test_loop_partition_same_results(factors: list[int | None]) -> None:
    program = scale()
    sch = Schedule(program)
    pieces = sch.loop_partition(loops_of(sch, "B")[0], factors)
    for piece in pieces:
        sch.parallel(piece)
    check(sch, program)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, 5])
def test_loop_partition_same_in_tiles(axis: int) -> None:
    # Variables that were split and fused, within the cut loop and across it.
    program = matmul(2, 5, 7, 6)
    sch = Schedule(program)
    b, i, j, k = loops_of(sch, "matmul")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(x, [None, 4]) for x in (i, j, k))
    sch.reorder(b, i0, j0, k0, i1, k1, j1)
    loops = [sch.fuse(b, i0), j0, k0, sch.fuse(i1, k1), j1]
    if axis == 5:
        loops.append(sch.split(loops[3], [None, 5])[1])
    sch.loop_partition(loops[axis], [1, None])
    check(sch, program)


@pytest.mark.parametrize("program", SCRIPTS, ids=lambda p: p.name)
def test_loop_partition_same_on_scripts(program: Program) -> None:
    sch = Schedule(program)
    name = sch.program.name
    block = {"nested": "outer", "packed": "C", "halo": "C"}.get(name, "B")
    _, second = sch.loop_partition(loops_of(sch, block)[0], [2, None])
    check(sch, program)
    sch.loop_partition(second, [1, None])
    check(sch, program)


def test_loop_partition_same_inside_a_block() -> None:
    sch = Schedule(NESTED)
    sch.split(loops_of(sch, "inner")[0], [None, 3])
    sch.loop_partition(loops_of(sch, "copy")[0], [1, None])
    sch.loop_partition(loops_of(sch, "outer")[0], [4, None])
    check(sch, NESTED)


def test_loop_partition_same_with_drawn_sizes() -> None:
    program = matmul(1, 12, 5, 4)
    sch = Schedule(program, seed=3)
    _, i, *_ = loops_of(sch, "matmul")
    size, _ = sch.sample_perfect_tile(i, 2, max_innermost_factor=6)
    sch.loop_partition(i, [size, None] if sch.get(size) < 12 else [12])
    check(sch, program)


# --- merge ----------------------------------------------------------------------------------------


def test_merge_golden() -> None:
    sch = Schedule(chain(4, 4))
    (i, _), (p, _) = loops_of(sch, "B"), loops_of(sch, "C")
    before = body_of(sch)
    assert before.count("for i, j in T.grid(4, 4):") == 2
    sch.merge(i, p)
    assert body_of(sch) == (
        "    for i_i in range(4):\n"
        "        for j in range(4):\n"
        '            with T.block("B"):\n'
        "                v_i = T.spatial(4, i_i)\n"
        "                v_j = T.spatial(4, j)\n"
        "                T.reads(A[v_i, v_j])\n"
        "                T.writes(B[v_i, v_j])\n"
        "                B[v_i, v_j] = A[v_i, v_j] + 1.0\n"
        "        for j in range(4):\n"
        '            with T.block("C"):\n'
        "                v_i = T.spatial(4, i_i)\n"
        "                v_j = T.spatial(4, j)\n"
        "                T.reads(B[v_i, v_j])\n"
        "                T.writes(C[v_i, v_j])\n"
        "                C[v_i, v_j] = B[v_i, v_j] * 2.0"
    )


def test_merge_refuses_what_comes_from_a_later_iteration() -> None:
    program = stencil("B[v + 2]")
    sch = Schedule(program)
    (i,), (j,) = loops_of(sch, "B"), loops_of(sch, "C")
    assert refusal(sch.merge, i, j) == (
        "the loops cannot run side by side: "
        "block 'C' may touch elements of B that block 'B' touches in a later iteration"
    )


@pytest.mark.parametrize(
    "reads", ["B[v] + B[v + 1] + B[v + 2]", "B[6 - v]", "B[3]", "B[T.cast(A[v], 'int64')]"]
)
def test_merge_refuses_dependences(reads: str) -> None:
    sch = Schedule(stencil(reads))
    (i,), (j,) = loops_of(sch, "B"), loops_of(sch, "C")
    assert "may touch elements of B" in refusal(sch.merge, i, j)


def test_merge_refuses_a_reduction_over_the_loop() -> None:
    program = ms.workloads.create("SFM", shape=(4, 4))
    sch = Schedule(program)
    (i, _), (p, _) = loops_of(sch, "max"), loops_of(sch, "exp")
    merged = sch.merge(i, p)
    (_, k), (_, j) = loops_of(sch, "max"), loops_of(sch, "exp")
    assert "may touch elements of max" in refusal(sch.merge, k, j)
    assert sch.get(merged).fixed_extent == 4


def test_merge_refuses_loops_that_are_not_neighbours() -> None:
    sch = Schedule(stencil("B[v]"))
    (z,), (i,), (j,) = (loops_of(sch, name) for name in ("Z", "B", "C"))
    for pair in ((z, j), (j, i), (i, z)):
        assert refusal(sch.merge, *pair) == "the loops do not follow one another"
    assert refusal(sch.merge, i) == "merge needs at least two loops"
    assert refusal(sch.merge, i, i) == "a loop is named twice"
    nest = Schedule(matmul())
    _, outer, inner, _ = loops_of(nest, "matmul")
    assert refusal(nest.merge, outer, inner) == "the loops do not follow one another"


def test_merge_refuses_different_extents() -> None:
    sch = Schedule(stencil("B[v]", extent=5))
    (i,), (j,) = loops_of(sch, "B"), loops_of(sch, "C")
    assert refusal(sch.merge, i, j) == "the extents differ: 6 and 5"


def test_merge_refuses_a_loop_with_a_kind_or_notes() -> None:
    sch = Schedule(stencil("B[v]"))
    (i,), (j,) = loops_of(sch, "B"), loops_of(sch, "C")
    sch.parallel(j)
    assert refusal(sch.merge, i, j) == "the loop over j is parallel already"


def test_merge_refuses_assertions() -> None:
    sch = Schedule(ASSERTED)
    (i,), (j,) = loops_of(sch, "D"), loops_of(sch, "C")
    assert refusal(sch.merge, i, j) == "block 'D' checks an assertion, which others may rely on"


@pytest.mark.parametrize("reads", ["B[v]", "B[v + 1]", "B[v] + B[v + 1]", "A[v]"])
def test_merge_same_with_what_came_before(reads: str) -> None:
    program = stencil(reads)
    sch = Schedule(program)
    (i,), (j,) = loops_of(sch, "B"), loops_of(sch, "C")
    sch.merge(i, j)
    check(sch, program)


def test_merge_same_of_many_then_parallel() -> None:
    program = ms.workloads.create("SFM", shape=(5, 4))
    sch = Schedule(program)
    loops = [loops_of(sch, name)[0] for name in ("max", "exp", "sum", "softmax")]
    merged = sch.merge(*loops)
    outer, _ = sch.split(merged, [None, 2])
    sch.parallel(outer)
    check(sch, program)


def test_merge_same_of_fused_loops() -> None:
    program = chain(4, 4)
    sch = Schedule(program)
    first, second = sch.fuse(*loops_of(sch, "B")), sch.fuse(*loops_of(sch, "C"))
    merged = sch.merge(first, second)
    sch.parallel(merged)
    check(sch, program)


def test_merge_same_of_unit_loops() -> None:
    program = chain(1, 4)
    sch = Schedule(program)
    sch.merge(loops_of(sch, "B")[0], loops_of(sch, "C")[0])
    check(sch, program)


def test_merge_same_of_tiles() -> None:
    program = chain(5, 7)
    sch = Schedule(program)
    outer = []
    for name in ("B", "C"):
        i, j = loops_of(sch, name)
        (i0, i1), (j0, j1) = sch.split(i, [None, 2]), sch.split(j, [None, 4])
        sch.reorder(i0, j0, i1, j1)
        outer.append(sch.fuse(i0, j0))
    sch.vectorize(loops_of(sch, "C")[-1])
    sch.parallel(sch.merge(*outer))
    check(sch, program)


def test_merge_same_after_loop_partition() -> None:
    program = scale(12)
    sch = Schedule(program)
    first, second, third = sch.loop_partition(loops_of(sch, "B")[0], [4, 4, 4])
    sch.parallel(sch.merge(first, second, third))
    check(sch, program)


# --- random ---------------------------------------------------------------------------------------

STEPS = (
    "split",
    "fuse",
    "reorder",
    "loop_partition",
    "loop_partition",
    "merge",
    "merge",
    "parallel",
    "vectorize",
)


@given(st.data(), st.sampled_from(sorted(SMALL)))
def test_partition_same_on_workloads(data: st.DataObject, name: str) -> None:
    program = ms.workloads.create(name, **SMALL[name])
    sch = Schedule(program)
    random_steps(sch, data, STEPS)
    check(sch, program)
    check_any_order(sch, program)


@given(st.data(), random_expressions())
def test_partition_same_on_random_expressions(data: st.DataObject, case: RandomExpression) -> None:
    sch = Schedule(case.program)
    random_steps(sch, data, STEPS)
    ms.verify(sch.program)
    check_round_trip(sch, case.program)
    check_any_order(sch, case.program, case.inputs)
    assert_same_results(case.program, sch.program, inputs=case.inputs)


@given(st.data(), st.sampled_from([*SCRIPTS, chain(), stencil("B[v] + B[v + 1]")]))
def test_partition_same_on_scripts(data: st.DataObject, program: Program) -> None:
    sch = Schedule(program)
    random_steps(sch, data, STEPS)
    check(sch, program)
    check_any_order(sch, program)


@given(st.data(), affine_programs())
def test_partition_same_in_any_order(data: st.DataObject, program: Program) -> None:
    sch = Schedule(program)
    random_steps(sch, data, STEPS)
    ms.verify(sch.program)
    check_any_order(sch, program)


@st.composite
def neighbours(draw: st.DrawFn) -> Program:
    """Two loops over blocks that read and write a buffer at random places."""

    def index(a: str, b: str) -> str:
        c, d = draw(st.sampled_from([-3, -1, 0, 1, 2, 3, 3])), draw(st.sampled_from([-1, 0, 0, 1, 2, 4]))
        low = min(c * 3, 0) + min(d * 2, 0)
        return f"{a} * {c} + {b} * {d} + {draw(st.integers(0, 3)) - low}"

    first, second = ("vi", "vk"), ("wi", "wk")
    target = draw(st.sampled_from("BD"))
    return ms.parse(f"""
@ms.program
def neighbours(A: T.Tensor((32,), "int32"), C: T.Output((32,), "int32")):
    B = T.alloc((32,), "int32")
    D = T.alloc((32,), "int32")
    for z in range(32):
        with T.block("Z"):
            v = T.spatial(32, z)
            B[v] = A[v]
            D[v] = A[v] * 3
    for i, k in T.grid(4, 3):
        with T.block("F"):
            vi = T.spatial(4, i)
            vk = T.spatial(3, k)
            B[{index(*first)}] = A[{index(*first)}] + D[{index(*first)}]
    for i, k in T.grid(4, 3):
        with T.block("S"):
            wi = T.spatial(4, i)
            wk = T.spatial(3, k)
            {target}[{index(*second)}] = A[{index(*second)}] * 2 + B[{index(*second)}]
    for z in range(32):
        with T.block("C"):
            v = T.spatial(32, z)
            C[v] = B[v] * 5 + D[v]
""")


@given(neighbours(), st.sampled_from(["loops", "fused", "split"]))
def test_merge_same_when_accepted(program: Program, how: str) -> None:
    sch = Schedule(program)
    found = [loops_of(sch, "F"), loops_of(sch, "S")]
    if how == "fused":
        found = [[sch.fuse(*loops)] for loops in found]
    elif how == "split":
        found = [sch.split(loops[0], [None, 3]) for loops in found]
    for step in (
        lambda: sch.parallel(sch.merge(found[0][0], found[1][0])),
        lambda: sch.parallel(found[1][-1]),
    ):
        try:
            step()
        except ScheduleError as error:
            str(error)  # must not fail
    check_any_order(sch, program)
