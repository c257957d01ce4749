"""compute_at and reverse_compute_at where indices are more than one iterator per dimension: layouts, strides,
tests that move along, tails of partial results, producers in different tiles."""

from __future__ import annotations

import metaschedule as ms
from metaschedule import te
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.primitive.test_location import body_of, loops_of
from tests.schedule.primitive.test_rare_refusals import COPY, HEAD


def extents_of(sch: Schedule, name: str) -> list[int | None]:
    return [sch.state.fixed_extent(sch.get(loop).var) for loop in loops_of(sch, name)]


def test_compute_at_inverts_a_flat_store() -> None:
    program = ms.parse(
        HEAD
        + """
    for i, j in T.grid(2, 4):
        with T.block("B"):
            v = T.spatial(2, i)
            u = T.spatial(4, j)
            B[v * 4 + u] = A[v * 4 + u]"""
        + COPY
    )
    sch = Schedule(program)
    i0, _ = sch.split(loops_of(sch, "Y")[0], [2, 4])
    sch.compute_at(sch.get_block("B"), i0)
    assert extents_of(sch, "B") == [2, 1, 4]  # one row of B for each iteration
    check(sch, program)


def test_compute_at_computes_tiles_of_a_changed_layout() -> None:
    a = te.placeholder((30, 8), name="A")
    b = te.compute((30, 8), lambda i, j: a[i, j] * 2.0, name="B")
    program = te.program([a], [te.compute((30, 8), lambda i, j: b[i, j] + 1.0, name="C")])
    sch = Schedule(program)
    sch.transform_layout(sch.get_block("B"), 0, "write", lambda i, j: (i // 2, j, i % 2))
    i0, _ = sch.split(loops_of(sch, "C")[0], [None, 8])
    sch.compute_at(sch.get_block("B"), i0)
    assert extents_of(sch, "B") == [4, 8, 8]
    check(sch, program)


def test_compute_at_takes_the_group_that_two_reads_share() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda g: a[g] * 2.0, name="B")
    c = te.compute((4,), lambda g: a[g] + 1.0, name="C")
    program = te.program([a], [te.compute((12,), lambda i: b[i // 3] * b[i // 3] + c[i // 3], name="D")])
    sch = Schedule(program)
    sch.compute_at(sch.get_block("B"), loops_of(sch, "D")[0])
    assert extents_of(sch, "B") == [12, 1]
    check(sch, program)


def test_compute_at_takes_conditions_along() -> None:
    program = ms.parse(
        """@ms.program
def f(A: T.Tensor((8,), "int32"), Y: T.Output((4,), "int32")):
    C = T.alloc((8,), "int32")
    for i in range(8):
        with T.block("C"):
            v = T.spatial(8, i)
            T.where(i % 2 == 0)
            C[v] = A[v] + 1
    for i in range(4):
        with T.block("Y"):
            v = T.spatial(4, i)
            Y[v] = C[v * 2]
"""
    )
    sch = Schedule(program)
    i0, _ = sch.split(loops_of(sch, "Y")[0], [2, 2])
    sch.compute_at(sch.get_block("C"), i0)
    assert "% 2 == 0" in body_of(sch)
    assert extents_of(sch, "C") == [2, 3]
    check(sch, program)


def test_compute_at_same_tail_of_partial_results() -> None:
    """Of k = k0 * 3 + k1 < 7, the iterators are k0 and k1: the test leaves some of them out."""
    x, k = te.placeholder((4, 7), name="X"), te.reduce_axis(7, name="k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="T")
    program = te.program([x], [te.compute((4,), lambda i: total[i] + 1.0, name="Y")])
    sch = Schedule(program)
    _, k = loops_of(sch, "T")
    k0, _ = sch.split(k, [3, 3])
    partial = sch.rfactor(k0)
    sch.compute_at(partial, loops_of(sch, "T")[0])
    assert "< 7)" in body_of(sch)
    check(sch, program)


def test_compute_at_same_after_a_copied_fused_loop() -> None:
    x, k = te.placeholder((4, 5, 6), name="X"), te.reduce_axis(6, name="k")
    total = te.compute((4, 5), lambda i, j: te.sum(x[i, j, k], axis=k), name="T")
    program = te.program([x], [te.compute((4, 5), lambda i, j: total[i, j] + 1.0, name="Y")])
    sch = Schedule(program)
    i, j, k = loops_of(sch, "T")
    sch.fuse(i, j)
    sch.rfactor(loops_of(sch, "T")[1])
    sch.reverse_compute_at(sch.get_block("Y"), loops_of(sch, "T")[0])
    sch.parallel(loops_of(sch, "T")[0])
    check(sch, program)


def test_reverse_compute_at_follows_strides_and_digits() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    program = te.program([a], [te.compute((2, 3), lambda i, j: b[i * 6 + j * 2 + 1], name="C")])
    sch = Schedule(program)
    i0, _ = sch.split(loops_of(sch, "B")[0], [None, 5])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    check(sch, program)


def test_reverse_compute_at_follows_quotients() -> None:
    program = ms.parse(
        HEAD
        + """
    C = T.alloc((2, 4), "int32")
    for i in range(8):
        with T.block("P"):
            v = T.spatial(2, i // 4)
            w = T.spatial(4, i % 4)
            C[v, w] = A[w]
    for i, j in T.grid(2, 4):
        with T.block("Y"):
            v = T.spatial(2, i)
            w = T.spatial(4, j)
            Y[v * 4 + w] = C[v, w]
"""
    )
    sch = Schedule(program)
    sch.reverse_compute_at(sch.get_block("Y"), loops_of(sch, "P")[0])
    check(sch, program)


def test_reverse_compute_at_same_behind_a_changed_layout() -> None:
    a = te.placeholder((30, 6), name="A")
    b = te.compute((30, 6), lambda i, j: a[i, j] * 2.0, name="B")
    program = te.program([a], [te.compute((6, 30), lambda i, j: b[j, i] + 1.0, name="C")])
    for factor in (4, 8):
        sch = Schedule(program)
        i0, _ = sch.split(loops_of(sch, "B")[0], [None, factor])
        sch.transform_layout(sch.get_block("B"), 0, "write", lambda i, j: (i // 2, j, i % 2))
        sch.reverse_compute_at(sch.get_block("C"), i0)
        check(sch, program)


def test_reverse_compute_at_same_producers_in_different_tiles() -> None:
    a = te.placeholder((22,), name="A")
    b = te.compute((22,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((22,), lambda i: b[i] + 1.0, name="C")
    program = te.program([a], [te.compute((22,), lambda i: b[i] - c[i], name="D")])
    sch = Schedule(program)
    i0, _ = sch.split(loops_of(sch, "B")[0], [None, 8])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    sch.split(loops_of(sch, "C")[1], [None, 3])
    sch.reverse_compute_at(sch.get_block("D"), i0)
    assert extents_of(sch, "D") == [3, 8]
    check(sch, program)
