"""What compute_at and reverse_compute_at refuse, and with which words."""

from __future__ import annotations

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.primitive.test_location import (
    body_of,
    diamond,
    epilogue,
    loops_of,
    stencil,
    sums,
)
from tests.schedule.refusals import refusal

HEAD = """@ms.program
def f(A: T.Tensor((8,), "int32"), Y: T.Output((8,), "int32")):
    B = T.alloc((8,), "int32")
"""


def parsed(body: str) -> Schedule:
    return Schedule(ms.parse(HEAD + body))


COPY = """
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = B[v]
"""


def test_compute_at_refuses_an_output() -> None:
    sch = Schedule(stencil())
    assert (
        refusal(sch.compute_at, sch.get_block("C"), loops_of(sch, "B")[0])
        == "block 'C' stores to C, which is an output"
    )


SHARED = """
    for i, j in T.grid(2, 8):
        with T.block("B"):
            v = T.spatial(2, i)
            r = T.reduce(8, j)
            {store}"""
NEITHER = "block 'B' is neither complete nor a reduction: "
BLOCKS = [
    (
        "block 'B' has no iterators",
        """
    with T.block("B"):
        for i in range(8):
            B[i] = A[i]""",
    ),
    (
        "block 'B' has blocks inside",
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            with T.block("inner"):
                u = T.spatial(8, v)
                B[u] = A[u]""",
    ),
    (
        NEITHER + "it may stop the program",
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            assert A[v] > -100, "too small"
            B[v] = A[v]""",
    ),
    (
        NEITHER + "it stores to several elements of B",
        """
    for i in range(7):
        with T.block("B"):
            v = T.spatial(7, i)
            B[v] = A[v]
            B[v + 1] = A[v]""",
    ),
    (
        NEITHER + "several instances store to the same element of B",
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[0] = A[v]""",
    ),
    (
        # The last one wins: which that is depends on the order of the loops.
        NEITHER + "several instances store to the same element of B",
        """
    for i, j in T.grid(4, 4):
        with T.block("B"):
            v = T.spatial(4, i)
            u = T.spatial(4, j)
            B[v + u] = A[v]""",
    ),
    (
        NEITHER + "it reads what it stores, B, without starting it",
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = B[v] + A[v]""",
    ),
    (
        NEITHER + "where it stores to B depends on what it reads",
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[A[v]] = A[v]""",
    ),
    (NEITHER + "it stores nothing", SHARED.format(store="pass")),
    (
        NEITHER + "where it stores to B depends on more than its spatial iterators",
        SHARED.format(store="B[r] = A[r]"),
    ),
    (
        "an iterator of block 'B' has an extent that is not a constant",
        """
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                v = T.spatial(8, i)
                r = T.reduce(v + 1, j)
                with T.init():
                    B[v] = 0
                B[v] = B[v] + A[r]""",
    ),
    (
        "the reduction of block 'B' is not over loops of its own",
        """
    for i, k in T.grid(8, 8):
        with T.block("B"):
            v = T.spatial(8, i)
            r = T.reduce(8, (k + i) % 8)
            with T.init():
                B[v] = 0
            B[v] = B[v] + A[r]""",
    ),
]


@pytest.mark.parametrize(("message", "block"), BLOCKS)
def test_compute_at_refuses_blocks(message: str, block: str) -> None:
    sch = parsed(block + COPY)
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == message


def test_compute_at_refuses_a_buffer_with_two_writers() -> None:
    sch = parsed(
        """
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = A[v]
    for i in range(4):
        with T.block("again"):
            v = T.spatial(4, i)
            B[v] = A[v + 4]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "block 'B' is not the only one that stores to B"
    )


def test_compute_at_refuses_places() -> None:
    sch = Schedule(diamond())
    where = loops_of(sch, "D")[0]
    assert refusal(sch.compute_at, sch.get_block("C"), where) == (
        "not everything that reads what block 'C' stores is in a block below the loop over i"
    )
    assert refusal(sch.compute_at, sch.get_block("E"), where) == (
        "no block below the loop over i reads what block 'E' stores"
    )
    sch.compute_at(sch.get_block("D"), loops_of(sch, "E")[0])
    assert refusal(sch.compute_at, sch.get_block("D"), loops_of(sch, "E")[0]) == (
        "block 'D' is inside of the loop over i already"
    )
    sch = Schedule(diamond(16))
    (i,) = loops_of(sch, "E")
    _, i1 = sch.split(i, [None, 4])
    sch.vectorize(i1)
    assert refusal(sch.compute_at, sch.get_block("D"), i1) == "the loop over i_1 is vectorized"


def test_compute_at_refuses_what_runs_later() -> None:
    sch = parsed("""
    for t in range(8):
        for i in range(8):
            with T.block("Y"):
                v = T.spatial(8, i)
                Y[v] = B[v]
        for i in range(8):
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = A[v]
""")
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[1]) == (
        "block 'B' runs after the loop over i"
    )


def test_compute_at_refuses_inputs_that_change() -> None:
    body = """
    C = T.alloc((8,), "int32")
    for i in range(8):
        with T.block("C"):
            v = T.spatial(8, i)
            C[v] = A[v]
    for i in range(8):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = C[v]
    for i in range(8):
        with T.block("C_again"):
            v = T.spatial(8, i)
            C[v] = 0"""
    sch = parsed(body + COPY)
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "what block 'B' reads may be different at the loop over i: C is written again by block 'C_again'"
    )


PREFIX_SUMS = """
    for k in range(8):
        for i in range(1):
            with T.block("B"):
                v = T.spatial(1, i)
                r = T.reduce(8, k)
                with T.init():
                    B[v] = 0
                B[v] = B[v] + A[r]
        for i in range(1):
            with T.block("Y"):
                v = T.spatial(8, k)
                Y[v] = B[0]
"""


def test_compute_at_refuses_a_reduction_that_is_read_before_its_end() -> None:
    sch = parsed(PREFIX_SUMS)
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[1]) == (
        "the reduction of block 'B' goes on around both places"
    )


def test_compute_at_refuses_a_reduction_whose_order_matters() -> None:
    sch = parsed(
        """
    for k1, i, k0 in T.grid(2, 8, 2):
        with T.block("B"):
            v = T.spatial(8, i)
            r0 = T.reduce(2, k0)
            r1 = T.reduce(2, k1)
            with T.init():
                B[v] = 1
            B[v] = A[v] - B[v]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "block 'B' does not reduce by an operation that is known to commute"
    )


def test_compute_at_refuses_terms_that_come_more_than_once() -> None:
    sch = parsed(
        """
    for i, k, again in T.grid(8, 4, 2):
        with T.block("B"):
            v = T.spatial(8, i)
            r = T.reduce(4, k)
            with T.init():
                B[v] = 0
            B[v] = B[v] + A[r]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "the loop over again repeats terms of the reduction of block 'B'"
    )


def test_compute_at_refuses_a_condition() -> None:
    sch = parsed(
        """
    for i, j in T.grid(8, 2):
        with T.block("B"):
            v = T.spatial(8, i)
            T.where(i + j < 8)
            B[v] = A[v]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "block 'B' runs under a condition that cannot be moved: i + j < 8"
    )
    sch = parsed(
        """
    for i in range(8):
        if i < 5:
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = A[v]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "block 'B' is under a condition that is not around the loop over i"
    )


# --- refusals of reverse_compute_at ---------------------------------------------------------------


def test_reverse_compute_at_refuses_a_reduction_loop() -> None:
    sch = Schedule(epilogue())
    _, k = loops_of(sch, "B")
    assert (
        refusal(sch.reverse_compute_at, sch.get_block("C"), k)
        == "the reduction of block 'B' is not done in one iteration of that loop"
    )


def test_reverse_compute_at_refuses_places() -> None:
    sch = Schedule(diamond())
    (where,) = loops_of(sch, "D")
    assert refusal(sch.reverse_compute_at, sch.get_block("C"), where) == (
        "block 'C' runs before the loop over i"
    )
    assert refusal(sch.reverse_compute_at, sch.get_block("D"), where) == (
        "block 'D' is inside of the loop over i already"
    )
    assert refusal(sch.reverse_compute_at, sch.get_block("F"), where) == (
        "block 'E' stores what block 'F' reads, and is not done by the loop over i"
    )
    sch = Schedule(sums())
    assert refusal(sch.reverse_compute_at, sch.get_block("D"), loops_of(sch, "B")[0]) == (
        "block 'C' stores what block 'D' reads, and is not done by the loop over i"
    )
    a, b = te.placeholder((5,), name="A"), te.placeholder((5,), name="B")
    c = te.compute((5,), lambda i: a[i] * 2.0, name="C")
    d = te.compute((5,), lambda i: b[i] * 2.0, name="D")
    sch = Schedule(te.program([a, b], [te.compute((5,), lambda i: c[i], name="E"), d]))
    assert refusal(sch.reverse_compute_at, sch.get_block("D"), loops_of(sch, "C")[0]) == (
        "no block below the loop over i stores what block 'D' reads"
    )


def test_reverse_compute_at_refuses_neighbours() -> None:
    sch = Schedule(stencil())
    assert refusal(sch.reverse_compute_at, sch.get_block("C"), loops_of(sch, "B")[0]) == (
        "block 'C' reads elements of B that other iterations of that loop store"
    )


def test_reverse_compute_at_refuses_a_diagonal() -> None:
    a = te.placeholder((5, 5), name="A")
    b = te.compute((5, 5), lambda i, j: a[i, j] * 2.0, name="B")
    program = te.program([a], [te.compute((5,), lambda i: b[i, i], name="C")])
    sch = Schedule(program)
    i, j = loops_of(sch, "B")
    assert refusal(sch.reverse_compute_at, sch.get_block("C"), j) == (
        "block 'C' reads a diagonal of what block 'B' stores"
    )
    sch.reverse_compute_at(sch.get_block("C"), i)
    check(sch, program)


def test_reverse_compute_at_refuses_to_leave_elements_out() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda i: te.select(te.all_of([i >= 1, i < 9]), b[i - 1], 0.0), name="C")
    sch = Schedule(te.program([a], [c]))
    assert refusal(sch.reverse_compute_at, sch.get_block("C"), loops_of(sch, "B")[0]) == (
        "block 'B' does not store all that block 'C' reads"
    )
    sch = parsed(
        """
    for i in range(5):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = A[v]"""
        + COPY
    )
    assert refusal(sch.reverse_compute_at, sch.get_block("Y"), loops_of(sch, "B")[0]) == (
        "block 'B' is not known to run for all values of its iterators"
    )


def test_reverse_compute_at_takes_a_slice() -> None:
    a = te.placeholder((13,), name="A")
    b = te.compute((13,), lambda i: a[i] * 2.0, name="B")
    program = te.program([a], [te.compute((8,), lambda i: b[i + 3], name="C")])
    sch = Schedule(program)
    i0, _ = sch.split(loops_of(sch, "B")[0], [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    assert "T.where(i_0 * 4 + ax0 - 3 >= 0)" in body_of(sch) or "T.where(i_0 * 4 + ax0 >= 3)" in body_of(sch)
    check(sch, program)


def test_reverse_compute_at_refuses_readers_in_between() -> None:
    sch = parsed(PREFIX_SUMS)
    assert "the reduction of block 'B' is not done" in refusal(
        sch.reverse_compute_at, sch.get_block("Y"), loops_of(sch, "B")[1]
    )
    sch = parsed("""
    C = T.alloc((8,), "int32")
    for t in range(2):
        for i in range(8):
            with T.block("P"):
                v = T.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("look"):
                v = T.spatial(8, i)
                Y[v] = C[v]
        for i in range(8):
            with T.block("C"):
                v = T.spatial(8, i)
                C[v] = B[v]
""")
    assert refusal(sch.reverse_compute_at, sch.get_block("C"), loops_of(sch, "P")[1]) == (
        "block 'look' reads what block 'C' stores, and runs before it"
    )


def test_reverse_compute_at_refuses_producers_that_are_not_there_yet() -> None:
    sch = Schedule(diamond())
    i0, _ = sch.split(loops_of(sch, "C")[0], [None, 4])
    sch.reverse_compute_at(sch.get_block("D"), i0)
    sch.reverse_compute_at(sch.get_block("E"), loops_of(sch, "D")[1])
    assert refusal(sch.reverse_compute_at, sch.get_block("F"), loops_of(sch, "C")[1]) == (
        "block 'E' stores what block 'F' reads, and runs after the loop over i_1"
    )
    sch.reverse_compute_at(sch.get_block("F"), i0)
    check(sch, diamond())


def test_reverse_compute_at_refuses_the_same_elements_in_parallel() -> None:
    # Each iteration of `again` stores all of B: the sums over B would be taken by several threads at once.
    sch = parsed(
        """
    for again in T.parallel(4):
        for i in range(8):
            with T.block("B"):
                v = T.spatial(8, i)
                B[v] = A[v]"""
        + COPY
    )
    message = refusal(sch.reverse_compute_at, sch.get_block("Y"), loops_of(sch, "B")[0])
    assert message == "iterations of the parallel loop over again may store the same elements"


def test_reverse_compute_at_refuses_terms_in_the_wrong_order() -> None:
    program = sums()
    sch = Schedule(program)
    _, j = loops_of(sch, "B")
    j0, _ = sch.split(j, [None, 4])
    sch.parallel(j0)
    message = refusal(sch.reverse_compute_at, sch.get_block("C"), j0)
    assert message == "iterations of the parallel loop over j_0 may store the same elements"


def test_reverse_compute_at_refuses_what_another_producer_stores_later() -> None:
    a = te.placeholder((12,), "int32", name="A")
    b = te.compute((12,), lambda i: a[i] + 1, name="B")
    c = te.compute((12,), lambda i: b[i] * 2, name="C")
    sch = Schedule(te.program([a], [te.compute((12,), lambda i: c[i] - b[11 - i], name="D")]))
    i0, _ = sch.split(loops_of(sch, "B")[0], [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), i0)
    assert refusal(sch.reverse_compute_at, sch.get_block("D"), i0) == (
        "block 'B' has not stored all that block 'D' reads by then"
    )


def test_compute_at_refuses_a_loop_in_another_block() -> None:
    sch = Schedule(epilogue())
    i, _ = loops_of(sch, "B")
    _, i1 = sch.split(loops_of(sch, "C")[0], [None, 2])
    sch.blockize(i1)
    inner = loops_of(sch, "C")[0]
    assert refusal(sch.compute_at, sch.get_block("B"), inner).startswith(
        "block 'B' and the loop over i_1 are not in the same block"
    )
    assert "are not in the same block" in refusal(sch.reverse_compute_at, sch.get_block("C"), i)


def test_compute_at_refuses_a_loop_whose_extent_is_not_a_constant() -> None:
    sch = parsed(
        """
    for i in range(8):
        for j in range(i + 1):
            with T.block("B"):
                v = T.spatial(8, j)
                B[v] = A[v]"""
        + COPY
    )
    assert refusal(sch.compute_at, sch.get_block("B"), loops_of(sch, "Y")[0]) == (
        "block 'B' is in a loop whose extent is not a constant"
    )
