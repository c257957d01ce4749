"""split, fuse, reorder, add_unit_loop."""

from __future__ import annotations

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.cases.programs import CASES
from tests.schedule.checks import check
from tests.schedule.refusals import refusal


def scale(n: int = 13) -> Program:
    a = te.placeholder((n,), name="A")
    return te.program([a], [te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="scale")


def matmul(n: int = 5, m: int = 6, k: int = 7) -> Program:
    return ms.workloads.create("GMM", b=1, n=n, m=m, k=k)


def loops_of(sch: Schedule, name: str):
    return sch.get_loops(sch.get_block(name))


def body_of(sch: Schedule) -> str:
    """The printed program from its first loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    for")) :])


def test_split_golden_with_a_tail() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.split(i, [None, 4])
    assert body_of(sch) == (
        "    for i_0, i_1 in T.grid(4, 4):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(13, i_0 * 4 + i_1)\n"
        "            T.where(i_0 * 4 + i_1 < 13)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A[v_i] * 2.0"
    )


def test_split_golden_that_divides_has_no_test() -> None:
    sch = Schedule(scale(12))
    (i,) = loops_of(sch, "B")
    sch.split(i, [3, None])
    assert "T.where" not in str(sch.program)
    assert "for i_0, i_1 in T.grid(3, 4):" in str(sch.program)


def test_split_of_a_split_keeps_rows_apart() -> None:
    # Splitting the inner 6 by 4 makes rows 6 and 7, which belong to the next tile: both tests are needed.
    program = scale(128)
    sch = Schedule(program)
    (i,) = loops_of(sch, "B")
    _, inner = sch.split(i, [None, 6])
    sch.split(inner, [None, 4])
    assert str(sch.program).count("T.where") == 2
    check(sch, program)


@pytest.mark.parametrize(
    "factors", [[None, 1], [13, 1], [1, 13], [None, 13], [None, 100], [2, None, 3], [None]]
)
def test_split_same_results(factors: list[int | None]) -> None:
    program = scale()
    sch = Schedule(program)
    (i,) = loops_of(sch, "B")
    sch.split(i, factors)
    check(sch, program)


def test_split_same_results_in_a_reduction() -> None:
    program = matmul()
    sch = Schedule(program)
    for loop, factor in zip(loops_of(sch, "matmul"), (1, 2, 4, 3), strict=True):
        sch.split(loop, [None, factor])
    check(sch, program)


def test_split_refuses_factors_that_do_not_cover() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    assert refusal(sch.split, i, [3, 4]) == "the factors cover 12 of 13 iterations"


@pytest.mark.parametrize(
    ("factors", "message"),
    [([None, None], "more than one factor is None"), ([0, None], "must be positive"), ([], "at least one")],
)
def test_split_refuses_bad_factors(factors: list[int | None], message: str) -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    assert message in refusal(sch.split, i, factors)


def test_split_refuses_a_loop_that_is_gone() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.split(i, [None, 4])
    assert refusal(sch.split, i, [None, 4]) == "the loop of l1 is gone"
    sch = Schedule(matmul())
    *_, j, k = loops_of(sch, "matmul")
    sch.fuse(j, k)
    assert refusal(sch.split, j, [None, 4]) == "the loop of l3 is gone"


def test_fuse_refuses_no_loops_and_reorder_the_same() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    assert refusal(sch.fuse) == "fuse needs at least one loop"
    assert refusal(sch.reorder, i, i) == "reorder needs different loops, at least one"


def test_split_refuses_tails_around_extents_that_read_memory() -> None:
    sch = Schedule(CASES["12929"].small_program())
    outer = loops_of(sch, "product")[0]
    assert "reads memory at i, also past its end" in refusal(sch.split, outer, [None, 2])


def test_fuse_golden() -> None:
    program = matmul()
    sch = Schedule(program)
    b, i, j, _ = loops_of(sch, "matmul")
    sch.fuse(b, i, j)
    text = str(sch.program)
    assert "for b_i_j, k in T.grid(30, 7):" in text
    assert "v_i = T.spatial(5, b_i_j // 6)" in text
    assert "v_j = T.spatial(6, b_i_j % 6)" in text


def test_fuse_same_results_and_split_again() -> None:
    program = matmul()
    sch = Schedule(program)
    b, i, j, k = loops_of(sch, "matmul")
    fused = sch.fuse(b, i, j)
    sch.split(fused, [None, 4])
    sch.split(k, [None, 2])
    check(sch, program)


def test_fuse_refuses_imperfect_nests() -> None:
    sch = Schedule(matmul())
    b, i, j, _ = loops_of(sch, "matmul")
    assert "not perfectly nested" in refusal(sch.fuse, b, j)


def test_fuse_refuses_dependent_extents() -> None:
    program = ms.parse("""
@ms.program
def triangle(A: T.Tensor((5, 5), "float32"), B: T.Output((5, 5), "float32")):
    for i in range(5):
        for j in range(5):
            with T.block("fill"):
                v = T.spatial(5, i)
                w = T.spatial(5, j)
                B[v, w] = 0.0
    for i in range(5):
        for j in range(i + 1):
            with T.block("copy"):
                v = T.spatial(5, i)
                w = T.spatial(5, j)
                B[v, w] = A[v, w]
""")
    sch = Schedule(program)
    i, j = loops_of(sch, "copy")
    assert "the extent depends on a loop that is to be fused" in refusal(sch.fuse, i, j)
    assert "which would be inside of it" in refusal(sch.reorder, j, i)
    sch.split(j, [None, 2])
    check(sch, program)


def test_reorder_golden() -> None:
    sch = Schedule(matmul())
    b, i, j, k = loops_of(sch, "matmul")
    sch.reorder(k, j, b)
    assert "for k, i, j, b in T.grid(7, 5, 6, 1):" in str(sch.program)


def test_reorder_same_results() -> None:
    program = matmul()
    sch = Schedule(program)
    b, i, j, k = loops_of(sch, "matmul")
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 3])
    sch.reorder(k1, j, i1, k0, i0)
    check(sch, program)


def test_reorder_refuses_an_order_that_matters() -> None:
    program = ms.parse("""
@ms.program
def scan(A: T.Tensor((4, 5), "float32"), B: T.Output((5, 5), "float32")):
    for j in range(5):
        with T.block("start"):
            w = T.spatial(5, j)
            B[0, w] = 0.0
    for i, j in T.grid(4, 5):
        with T.block("scan"):
            v = T.spatial(4, i)
            w = T.spatial(5, j)
            B[v + 1, w] = B[v, w] + A[v, w]
""")
    sch = Schedule(program)
    i, j = loops_of(sch, "scan")
    assert "reads elements of B that other instances store" in refusal(sch.reorder, j, i)


def test_reorder_refuses_reductions_that_do_not_commute() -> None:
    program = ms.parse("""
@ms.program
def last(A: T.Tensor((3, 4), "float32"), B: T.Output((1,), "float32")):
    for i, j in T.grid(3, 4):
        with T.block("last"):
            v = T.reduce(3, i)
            w = T.reduce(4, j)
            with T.init():
                B[0] = 0.0
            B[0] = A[v, w]
""")
    sch = Schedule(program)
    i, j = loops_of(sch, "last")
    assert "not reduce by an operation that is known to commute" in refusal(sch.reorder, j, i)


def test_reorder_refuses_values_passed_between_iterations() -> None:
    program = ms.parse("""
@ms.program
def diagonal(A: T.Tensor((4, 4), "float32"), C: T.Output((4, 4), "float32")):
    S = T.alloc((4, 4), "float32")
    for i, j in T.grid(4, 4):
        with T.block("S"):
            v = T.spatial(4, i)
            w = T.spatial(4, j)
            S[v, w] = A[v, w] * 2.0
        with T.block("C"):
            v = T.spatial(4, i)
            w = T.spatial(4, j)
            C[v, w] = S[T.max(v - 1, 0), T.min(w + T.min(v, 1), 3)]
""")
    sch = Schedule(program)
    i, j = loops_of(sch, "S")
    assert "may pass values between iterations of" in refusal(sch.reorder, j, i)


def test_reorder_refuses_loops_of_different_nests() -> None:
    sch = Schedule(ms.workloads.create("NRM", b=2, m=3, n=4))
    names = [k for k in sch.state.nodes if isinstance(k, str)]
    first, second = (loops_of(sch, name)[0] for name in names[:2])
    assert "not nested in each other" in refusal(sch.reorder, first, second)


def test_add_unit_loop_golden() -> None:
    program = scale()
    sch = Schedule(program)
    (i,) = loops_of(sch, "B")
    sch.add_unit_loop(i)
    sch.add_unit_loop(sch.get_block("B"))
    assert "for u, i, u_1 in T.grid(1, 13, 1):" in str(sch.program)


def test_add_unit_loop_same_results() -> None:
    program = matmul()
    sch = Schedule(program)
    unit = sch.add_unit_loop(sch.get_block("matmul"))
    b, i, j, k, _ = loops_of(sch, "matmul")
    sch.reorder(unit, k)
    check(sch, program)


def test_add_unit_loop_refuses_a_block_that_is_gone() -> None:
    sch = Schedule(scale())
    (i,) = loops_of(sch, "B")
    sch.split(i, [None, 2])
    assert "is gone" in refusal(sch.add_unit_loop, i)
