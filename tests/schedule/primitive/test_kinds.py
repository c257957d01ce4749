"""parallel, vectorize, unroll, bind, annotate, unannotate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import ScheduleError, ir, te
from metaschedule.schedule import LoopRV, Schedule
from tests.schedule.checks import assert_same_results, check, check_round_trip
from tests.schedule.refusals import refusal
from tests.te.random_expressions import RandomExpression, random_expressions


def scale(n: int = 13) -> ir.Program:
    a = te.placeholder((n,), name="A")
    return te.program([a], [te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="scale")


def matmul(b: int = 1, n: int = 5, m: int = 6, k: int = 7) -> ir.Program:
    return ms.workloads.create("GMM", b=b, n=n, m=m, k=k)


def loops_of(sch: Schedule, name: str) -> list[LoopRV]:
    return sch.get_loops(sch.get_block(name))


def body_of(sch: Schedule) -> str:
    """The printed program from its first loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    for")) :])


# Every iteration computes the part of B that it reads; the parts overlap in `rows - 2` elements.
def halo(rows: int = 3) -> ir.Program:
    return ms.parse(f"""
@ms.program
def halo(A: T.Tensor((9,), "float32"), C: T.Output((8,), "float32")):
    B = T.alloc((9,), "float32")
    for i in range(4):
        for ax in range({rows}):
            with T.block("B"):
                v = T.spatial(9, i * 2 + ax)
                T.where(i * 2 + ax < 9)
                B[v] = A[v] * 2.0
        for j in range(2):
            with T.block("C"):
                v = T.spatial(8, i * 2 + j)
                C[v] = B[v] + B[v + 1]
""")


# Every iteration packs the whole of B for itself.
PACKED = ms.parse("""
@ms.program
def packed(A: T.Tensor((4, 6), "float32"), B: T.Tensor((6,), "float32"), C: T.Output((4,), "float32")):
    P = T.alloc((6,), "float32")
    for i in range(4):
        for p0, p1 in T.grid(2, 4):
            with T.block("P"):
                v = T.spatial(6, p0 * 4 + p1)
                T.where(p0 * 4 + p1 < 6)
                P[v] = B[v] * 2.0
        for k in range(6):
            with T.block("C"):
                vi = T.spatial(4, i)
                vk = T.reduce(6, k)
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk] * P[vk]
""")

SCAN = ms.parse("""
@ms.program
def scan(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = A[v] + T.select(v > 0, B[v - 1], 0.0)
""")

SUBTRACT = ms.parse("""
@ms.program
def subtract(A: T.Tensor((4, 8), "float32"), B: T.Output((4,), "float32")):
    for i, k in T.grid(4, 8):
        with T.block("B"):
            vi = T.spatial(4, i)
            vk = T.reduce(8, k)
            with T.init():
                B[vi] = 0.0
            B[vi] = A[vi, vk] - B[vi]
""")

BARE = ms.parse("""
@ms.program
def bare(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
    for i in range(8):
        B[i] = A[i] + 1.0
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = B[v] * 2.0
""")

TRIANGLE = ms.parse("""
@ms.program
def triangle(A: T.Tensor((6, 6), "float32"), B: T.Output((6, 6), "float32")):
    for i, j in T.grid(6, 6):
        with T.block("zero"):
            vi = T.spatial(6, i)
            vj = T.spatial(6, j)
            B[vi, vj] = 0.0
    for i in range(6):
        for j in range(i + 1):
            with T.block("B"):
                vi = T.spatial(6, i)
                vj = T.spatial(6, j)
                B[vi, vj] = A[vi, vj] * 2.0
""")


# --- parallel -------------------------------------------------------------------------------------


def test_parallel_golden() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    assert body_of(sch).splitlines()[0] == "    for i in range(13):"
    sch.parallel(i)
    assert body_of(sch) == (
        "    for i in T.parallel(13):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(13, i)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A[v_i] * 2.0"
    )


def test_parallel_refuses_a_loop_that_has_a_kind() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.vectorize(i)
    assert refusal(sch.parallel, i) == "the loop over i is vectorized already"


def test_parallel_refuses_a_reduction_loop() -> None:
    sch = Schedule(matmul(1, 2, 2, 2))
    assert (
        refusal(sch.parallel, loops_of(sch, "matmul")[3])
        == "iterations of the loop over k may depend on each other: block 'matmul' reduces over it"
    )


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_parallel_refuses_parts_of_a_reduction(factor: int) -> None:
    sch = Schedule(matmul())
    k0, k1 = sch.split(loops_of(sch, "matmul")[3], [None, factor])
    assert "'matmul' reduces over it" in refusal(sch.parallel, k0)
    if factor > 1:
        assert "'matmul' reduces over it" in refusal(sch.parallel, k1)


def test_parallel_refuses_a_fused_spatial_and_reduction_loop() -> None:
    sch = Schedule(matmul())
    *_, j, k = loops_of(sch, "matmul")
    assert "'matmul' reduces over it" in refusal(sch.parallel, sch.fuse(j, k))


def test_parallel_refuses_a_recurrence() -> None:
    sch = Schedule(SCAN)
    assert "may read or write the same element of B" in refusal(sch.parallel, *loops_of(sch, "B"))


def test_parallel_refuses_reading_what_the_next_iteration_writes() -> None:
    sch = Schedule(halo(rows=2))
    i = loops_of(sch, "C")[0]
    assert "may read or write the same element of B" in refusal(sch.parallel, i)


def test_parallel_refuses_a_statement_outside_of_blocks() -> None:
    sch = Schedule(BARE)
    assert "there is a statement outside of any block" in refusal(sch.parallel, *loops_of(sch, "B"))


def test_parallel_refuses_an_intermediate_that_is_used_outside() -> None:
    text = str(PACKED).replace("C: T.Output", 'P: T.Output((6,), "float32"), C: T.Output')
    sch = Schedule(ms.parse(text.replace('    P = T.alloc((6,), "float32")\n', "")))
    assert "may read or write the same element of P" in refusal(sch.parallel, loops_of(sch, "C")[0])


def test_parallel_refuses_a_loop_that_is_gone() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.split(i, [None, 4])
    assert refusal(sch.parallel, i) == "the loop of l1 is gone"


@pytest.mark.parametrize("n", [1, 12, 13])
def test_parallel_same_fused_and_split(n: int) -> None:
    program = matmul(2, 3, n)
    sch = Schedule(program)
    b, i, j, _ = loops_of(sch, "matmul")
    outer, _ = sch.split(sch.fuse(b, i, j), [None, 5])
    sch.parallel(outer)
    check(sch, program)


def test_parallel_same_fused_tiles_with_tails() -> None:
    program = matmul(2, 5, 7)
    sch = Schedule(program)
    b, i, j, k = loops_of(sch, "matmul")
    (i0, i1), (j0, j1) = sch.split(i, [None, 2]), sch.split(j, [None, 4])
    sch.reorder(b, i0, j0, k, i1, j1)
    sch.parallel(sch.fuse(b, i0, j0))
    sch.unroll(i1)
    sch.vectorize(j1)
    check(sch, program)


def test_parallel_same_an_inner_digit_outside() -> None:
    program = scale()
    sch = Schedule(program)
    i0, i1 = sch.split(loops_of(sch, "B")[0], [None, 4])
    sch.reorder(i1, i0)
    sch.parallel(i1)
    check(sch, program)


@pytest.mark.parametrize("program", [halo(), halo(4), PACKED], ids=["halo", "wide halo", "packed"])
def test_parallel_same_intermediates_of_an_iteration(program: ir.Program) -> None:
    sch = Schedule(program)
    sch.parallel(loops_of(sch, "C")[0])
    check(sch, program)


def test_parallel_same_packed_and_written_back() -> None:
    # Tiles of i that are not those of j pack the same part of Y: each has its own.
    program = matmul(1, 13, 20, 9)
    sch = Schedule(program)
    block = sch.get_block("matmul")
    back, packed = sch.cache_write(block, 0, "local"), sch.cache_read(block, 1, "global")
    b, i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1) = sch.split(i, [None, 6]), sch.split(j, [None, 8])
    sch.reorder(b, i0, j0, k, i1, j1)
    sch.reverse_compute_at(back, j0)
    sch.compute_at(packed, j0)
    sch.parallel(sch.fuse(b, i0, j0))
    sch.vectorize(j1)
    check(sch, program)
    check_any_order(sch, program)


def test_parallel_same_triangle() -> None:
    sch = Schedule(TRIANGLE)
    for loop in loops_of(sch, "B"):
        sch.parallel(loop)
    check(sch, TRIANGLE)


# --- vectorize ------------------------------------------------------------------------------------


def test_vectorize_golden() -> None:
    sch = Schedule(scale())
    _, inner = sch.split(loops_of(sch, "B")[0], [None, 8])
    assert body_of(sch).splitlines()[0] == "    for i_0, i_1 in T.grid(2, 8):"
    sch.vectorize(inner)
    assert body_of(sch) == (
        "    for i_0 in range(2):\n"
        "        for i_1 in T.vectorized(8):\n"
        '            with T.block("B"):\n'
        "                v_i = T.spatial(13, i_0 * 8 + i_1)\n"
        "                T.where(i_0 * 8 + i_1 < 13)\n"
        "                T.reads(A[v_i])\n"
        "                T.writes(B[v_i])\n"
        "                B[v_i] = A[v_i] * 2.0"
    )


def test_vectorize_refuses_an_extent_that_is_not_constant() -> None:
    sch = Schedule(TRIANGLE)
    _, j = loops_of(sch, "B")
    assert refusal(sch.vectorize, j) == "the extent of the loop over j is not a constant"


def test_vectorize_refuses_a_loop_that_has_a_kind() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.unroll(i)
    assert refusal(sch.vectorize, i) == "the loop over i is unrolled already"


def test_vectorize_refuses_a_reduction_that_does_not_commute() -> None:
    sch = Schedule(SUBTRACT)
    assert refusal(sch.vectorize, loops_of(sch, "B")[1]) == (
        "iterations of the loop over k may depend on each other: "
        "block 'B' reduces over it by an operation that is not known to commute"
    )


def test_vectorize_refuses_a_recurrence() -> None:
    sch = Schedule(SCAN)
    assert "may read or write the same element of B" in refusal(sch.vectorize, *loops_of(sch, "B"))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_vectorize_same_each_loop(axis: int) -> None:
    program = matmul(2, 3, 5, 11)
    sch = Schedule(program)
    loop = loops_of(sch, "matmul")[axis]
    sch.vectorize(loop)
    check(sch, program)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_vectorize_same_inner_parts(axis: int) -> None:
    program = matmul(1, 5, 6, 13)
    sch = Schedule(program)
    outer, inner = sch.split(loops_of(sch, "matmul")[axis], [None, 4])
    sch.vectorize(inner)
    if axis < 3:
        sch.parallel(outer)
    check(sch, program)


def test_vectorize_same_a_piece_of_a_reduction_without_its_init() -> None:
    program = matmul(1, 3, 4, 13)
    sch = Schedule(program)
    _, rest = sch.loop_partition(loops_of(sch, "matmul")[3], [3, None])
    sch.vectorize(rest)
    check(sch, program)


# --- unroll ---------------------------------------------------------------------------------------


def test_unroll_golden() -> None:
    sch = Schedule(scale(4))
    assert body_of(sch).splitlines()[0] == "    for i in range(4):"
    sch.unroll(*loops_of(sch, "B"))
    assert body_of(sch).splitlines()[0] == "    for i in T.unrolled(4):"


def test_unroll_refuses_too_many_iterations() -> None:
    sch = Schedule(scale(1025))
    assert refusal(sch.unroll, *loops_of(sch, "B")) == "1025 iterations are too many to write out"


def test_unroll_refuses_an_extent_that_is_not_constant() -> None:
    sch = Schedule(TRIANGLE)
    assert "is not a constant" in refusal(sch.unroll, loops_of(sch, "B")[1])


def test_unroll_refuses_a_loop_that_has_a_kind() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.parallel(i)
    assert refusal(sch.unroll, i) == "the loop over i is parallel already"


@pytest.mark.parametrize("program", [SCAN, SUBTRACT, BARE, matmul()], ids=["scan", "subtract", "bare", "GMM"])
def test_unroll_same_whatever_depends(program: ir.Program) -> None:
    sch = Schedule(program)
    for loop in loops_of(sch, "matmul" if program.name == "GMM" else "B"):
        sch.unroll(loop)
    check(sch, program)


# --- bind -----------------------------------------------------------------------------------------


def test_bind_golden() -> None:
    sch = Schedule(scale())
    outer, inner = sch.split(loops_of(sch, "B")[0], [None, 4])
    assert body_of(sch).splitlines()[0] == "    for i_0, i_1 in T.grid(4, 4):"
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    assert body_of(sch).splitlines()[:2] == [
        '    for i_0 in T.bind(4, "blockIdx.x"):',
        '        for i_1 in T.bind(4, "threadIdx.x"):',
    ]


def test_bind_refuses_an_unknown_axis() -> None:
    sch = Schedule(scale())
    assert refusal(sch.bind, *loops_of(sch, "B"), "threadIdx.w") == "unknown axis 'threadIdx.w'"


def test_bind_refuses_a_loop_that_has_a_kind() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.bind(i, "blockIdx.x")
    assert refusal(sch.bind, i, "blockIdx.y") == "the loop over i is blockIdx.x already"


def test_bind_refuses_an_axis_twice_in_a_nest() -> None:
    for first, second in ((0, 1), (1, 0)):
        sch = Schedule(scale())
        parts = sch.split(loops_of(sch, "B")[0], [None, 4])
        sch.bind(parts[first], "threadIdx.x")
        message = refusal(sch.bind, parts[second], "threadIdx.x")
        assert message == "threadIdx.x is bound twice in one nest of loops"


def test_bind_refuses_two_extents_in_a_nest() -> None:
    sch = Schedule(halo())
    i, ax = loops_of(sch, "B")
    _, j = loops_of(sch, "C")
    sch.bind(i, "blockIdx.x")
    sch.bind(ax, "threadIdx.x")
    assert refusal(sch.bind, j, "threadIdx.x") == "threadIdx.x would have two extents in one nest: 3 and 2"


def test_bind_refuses_a_reduction() -> None:
    sch = Schedule(matmul())
    assert "reduces over it" in refusal(sch.bind, loops_of(sch, "matmul")[3], "blockIdx.x")


def test_bind_same_terms_on_threads() -> None:
    program = matmul(2, 5, 7)
    sch = Schedule(program)
    sch.bind(loops_of(sch, "matmul")[3], "threadIdx.x")
    check(sch, program, compiled=False)


def test_bind_same_tiles_of_a_reduction() -> None:
    program = matmul(2, 5, 7)
    sch = Schedule(program)
    b, i, j, _ = loops_of(sch, "matmul")
    j0, j1 = sch.split(j, [None, 4])
    sch.bind(sch.fuse(b, i), "blockIdx.x")
    sch.bind(j0, "vthread.x")
    sch.bind(j1, "threadIdx.x")
    check(sch, program, compiled=False)


# --- annotate, unannotate -------------------------------------------------------------------------


def test_annotate_golden() -> None:
    sch = Schedule(scale())
    block = sch.get_block("B")
    (i,) = sch.get_loops(block)
    sch.annotate(i, "tail", "mask")
    sch.annotate(block, "tile", [4, ("x", None, True, 1.5)])
    assert body_of(sch) == (
        '    for i in T.serial(13, annotations={"tail": "mask"}):\n'
        '        with T.block("B"):\n'
        "            v_i = T.spatial(13, i)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        '            T.annotate({"tile": (4, ("x", None, True, 1.5))})\n'
        "            B[v_i] = A[v_i] * 2.0"
    )


def test_unannotate_golden() -> None:
    sch = Schedule(scale())
    before = body_of(sch)
    block = sch.get_block("B")
    (i,) = sch.get_loops(block)
    for target in (i, block):
        sch.annotate(target, "a", 1)
        sch.annotate(target, "b", 2)
        sch.unannotate(target, "a")
        sch.unannotate(target, "never there")
    assert 'T.serial(13, annotations={"b": 2})' in body_of(sch)
    assert 'T.annotate({"b": 2})' in body_of(sch)
    for target in (i, block):
        sch.unannotate(target, "b")
    assert body_of(sch) == before


def test_annotate_refuses_another_value() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.annotate(i, "tail", "mask")
    sch.annotate(i, "tail", "mask")
    assert refusal(sch.annotate, i, "tail", "pad") == "'tail' is noted already, as 'mask'"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**63])
def test_annotate_refuses_what_is_not_plain(value: Any) -> None:
    sch = Schedule(scale())
    assert "an annotation cannot hold" in refusal(sch.annotate, sch.get_block("B"), "key", value)


@pytest.mark.parametrize(("key", "value"), [("unroll", "many"), ("unroll", True), ("module", 1)])
def test_annotate_refuses_a_known_key_with_a_value_of_another_type(key: str, value: Any) -> None:
    sch = Schedule(scale())
    assert refusal(sch.annotate, sch.get_block("B"), key, value).startswith(f"{key!r} is a")


def test_annotate_refuses_a_key_that_is_no_name() -> None:
    sch = Schedule(scale())
    assert refusal(sch.annotate, sch.get_block("B"), "", 1) == "the key of an annotation is empty"


def test_annotate_same_with_a_drawn_value() -> None:
    program = matmul()
    sch = Schedule(program)
    block = sch.get_block("matmul")
    loops = sch.get_loops(block)
    first, second = sch.sample_perfect_tile(loops[2], 2)
    sch.annotate(block, "tile", [first, second])
    sch.annotate(loops[0], "jobs", np.int64(4))
    first_size, second_size = sch.get(first), sch.get(second)
    assert sch.get(block).annotations == {"tile": (first_size, second_size)}
    check(sch, program)


def test_unannotate_same() -> None:
    program = matmul()
    sch = Schedule(program)
    block = sch.get_block("matmul")
    sch.annotate(block, "x", 1)
    sch.unannotate(block, "x")
    check(sch, program)


# --- random ---------------------------------------------------------------------------------------


class _Backwards(ir.Rewriter):
    """Parallel loops run from the end to the start. (Vectorised ones may reduce and begin at 0.)"""

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For) and s.kind == "parallel":
            s = ir.replace_fields(s, body=ir.Substitute({s.var: s.extent - 1 - s.var}).body(s.body))
        return super().stmt(s)


def check_any_order(sch: Schedule, program: ir.Program, inputs: Any = None) -> None:
    """A race may not show when the program runs, a dependence on the order does here."""
    assert_same_results(program, _Backwards().program(sch.program), compiled=False, inputs=inputs)


AFFINE = st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2))


@st.composite
def affine_programs(draw: st.DrawFn) -> ir.Program:
    """Two blocks in shared and own loops, reading and writing a buffer at random places."""

    def index(names: tuple[str, str, str]) -> str:
        factors = draw(AFFINE)
        text = " + ".join(f"{name} * {c}" for name, c in zip(names, factors, strict=True))
        low = sum(min(c * 2, 0) for c in factors)
        return f"{text} + {draw(st.integers(0, 2)) - low}"

    def value(names: tuple[str, str, str]) -> str:
        return " + ".join(f"{draw(st.sampled_from('AB'))}[{index(names)}]" for _ in range(2))

    own = draw(st.sampled_from(["range(3)", "range(2)", "range(i + 1)", "range(j + 1)"]))
    where = draw(st.sampled_from(["if i < 2:", "if i + j < 3:", "if True:"]))
    first, second = ("vi", "vj", "vk"), ("wi", "wj", "wk")
    kind = draw(st.sampled_from(["spatial", "reduce"]))
    return ms.parse(f"""
@ms.program
def affine(A: T.Tensor((20,), "int32"), C: T.Output((20,), "int32")):
    B = T.alloc((20,), "int32")
    for z in range(20):
        with T.block("Z"):
            v = T.spatial(20, z)
            B[v] = A[v]
    for i, j in T.grid(3, 3):
        for k in {own}:
            with T.block("F"):
                vi = T.spatial(3, i)
                vj = T.spatial(3, j)
                vk = T.{kind}(3, k)
                B[{index(first)}] = {value(first)}
        {where}
            for k in range(3):
                with T.block("S"):
                    wi = T.spatial(3, i)
                    wj = T.spatial(3, j)
                    wk = T.spatial(3, k)
                    B[{index(second)}] = {value(second)}
    for z in range(20):
        with T.block("C"):
            v = T.spatial(20, z)
            C[v] = B[v]
""")


@given(st.data(), affine_programs())
def test_kinds_same_in_any_order(data: st.DataObject, program: ir.Program) -> None:
    sch = Schedule(program)
    random_steps(sch, data, (*STEPS, "parallel", "parallel"))
    check_any_order(sch, program)


SMALL = {
    "GMM": {"b": 2, "n": 3, "m": 4, "k": 5},
    "C2D": {"n": 1, "h": 5, "w": 5, "ci": 2, "co": 3, "k": 3, "s": 1, "p": 1},
    "SFM": {"shape": (3, 5)},
    "NRM": {"m": 3, "n": 4},
}
STEPS = ("split", "fuse", "reorder", "parallel", "vectorize", "unroll")


def random_steps(sch: Schedule, data: st.DataObject, steps: tuple[str, ...], most: int = 7) -> int:
    """Up to `most` random steps, of which the legal ones are taken; gives how many."""
    taken = 0
    for _ in range(data.draw(st.integers(1, most), label="steps")):
        names = [k for k in sch.state.nodes if isinstance(k, str)]
        block = sch.get_block(data.draw(st.sampled_from(names), label="block"))
        loops = sch.get_loops(block)
        if not loops:
            continue
        loop = data.draw(st.sampled_from(loops), label="loop")
        step = data.draw(st.sampled_from(steps), label="step")
        at = loops.index(loop)
        try:
            if step == "split":
                sch.split(loop, [None, data.draw(st.integers(1, 4))])
            elif step == "fuse":
                sch.fuse(*loops[at : at + 2])
            elif step == "reorder":
                sch.reorder(*data.draw(st.permutations(loops[at : at + 3])))
            elif step == "loop_partition":
                sch.loop_partition(loop, [data.draw(st.integers(1, 3)), None])
            elif step == "merge":
                others = [sch.get_loops(sch.get_block(name)) for name in names]
                others = [found[: at + 1][-1] for found in others if found]
                sch.merge(loop, data.draw(st.sampled_from(others)))
            else:
                getattr(sch, step)(loop)
            taken += 1
        except ScheduleError as error:
            str(error)  # must not fail
    return taken


@given(st.data(), st.sampled_from(sorted(SMALL)))
def test_kinds_same_on_workloads(data: st.DataObject, name: str) -> None:
    program = ms.workloads.create(name, **SMALL[name])
    sch = Schedule(program)
    random_steps(sch, data, STEPS)
    check(sch, program)
    check_any_order(sch, program)


@given(st.data(), random_expressions())
def test_kinds_same_on_random_expressions(data: st.DataObject, case: RandomExpression) -> None:
    sch = Schedule(case.program)
    random_steps(sch, data, STEPS)
    ms.verify(sch.program)
    check_round_trip(sch, case.program)
    check_any_order(sch, case.program, case.inputs)
    assert_same_results(case.program, sch.program, inputs=case.inputs)


@given(st.data(), st.sampled_from([halo(), PACKED, SCAN, SUBTRACT, TRIANGLE]))
def test_kinds_same_on_scripts(data: st.DataObject, program: ir.Program) -> None:
    sch = Schedule(program)
    random_steps(sch, data, STEPS)
    check(sch, program)
    check_any_order(sch, program)
