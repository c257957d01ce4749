"""The primitives that look."""

from __future__ import annotations

import metaschedule as ms
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.refusals import refusal


def softmax() -> Schedule:
    return Schedule(ms.workloads.create("SFM", shape=(3, 5)))


def names(sch: Schedule, handles: object) -> list[str]:
    return [sch.get(h).name for h in handles]  # pyright: ignore


def test_get_block_golden() -> None:
    sch = softmax()
    block = sch.get(sch.get_block("exp"))
    assert block.name == "exp"


def test_get_block_refuses_unknown_names() -> None:
    assert "there is no block 'nothing'" in refusal(softmax().get_block, "nothing")


def test_get_block_same_by_place_under_another_name() -> None:
    def double(name: str) -> ms.Program:
        x = ms.te.placeholder((6,), name="x")
        return ms.te.program([x], [ms.te.compute((6,), lambda i: x[i] + x[i], name=name)])

    sch = Schedule(double("first"))
    sch.split(sch.get_loops(sch.get_block("first"))[0], [None, 4])
    check(sch, double("first"))
    other = sch.trace.apply(double("second"))
    assert ms.structural_equal(other.program, sch.program)


def test_get_loops_golden() -> None:
    sch = softmax()
    assert [sch.get(loop).var.name for loop in sch.get_loops(sch.get_block("exp"))] == ["i0", "j"]


def test_get_loops_refuses_more_than_there_are() -> None:
    sch = softmax()
    message = refusal(sch.get_loops, sch.get_block("exp"), innermost=3)
    assert message == "there are 2 loops around the block, not 3"


def test_get_extent_golden() -> None:
    sch = softmax()
    row, column = sch.get_loops(sch.get_block("exp"))
    assert sch.get(sch.get_extent(column)) == 5
    assert sch.get(sch.get_extent(row)) == 3


def test_get_extent_refuses_an_expression() -> None:
    program = ms.parse(
        """
def f(n: T.Tensor((1,), "int64"), B: T.Output((8,))):
    for i in range(n[0]):
        with T.block("B"):
            v = T.spatial(8, i)
            B[v] = 1.0
"""
    )
    sch = Schedule(program)
    (i,) = sch.get_loops(sch.get_block("B"))
    assert refusal(sch.get_extent, i) == "the extent of the loop over i is not a constant"


def test_get_extent_same_split_by_another_loop() -> None:
    program = ms.workloads.create("SFM", shape=(3, 5))
    sch = Schedule(program)
    first = sch.get_loops(sch.get_block("max"))[0]
    sch.split(sch.get_loops(sch.get_block("exp"))[1], [None, sch.get_extent(first)])
    check(sch, program)


def test_get_producers_golden() -> None:
    sch = softmax()
    assert names(sch, sch.get_producers(sch.get_block("exp"))) == ["max"]


def test_get_consumers_golden() -> None:
    sch = softmax()
    assert names(sch, sch.get_consumers(sch.get_block("exp"))) == ["sum", "softmax"]


def test_get_child_blocks_golden() -> None:
    sch = softmax()
    loop, _ = sch.get_loops(sch.get_block("exp"))
    assert names(sch, sch.get_child_blocks(loop)) == ["exp"]


def looked_at() -> Schedule:
    sch = softmax()
    exp = sch.get_block("exp")
    sch.get_producers(exp)
    sch.get_consumers(exp)
    sch.get_child_blocks(sch.get_loops(exp)[0])
    return sch


def test_get_loops_same_program_and_trace() -> None:
    check(looked_at(), ms.workloads.create("SFM", shape=(3, 5)))


def test_get_producers_same_program() -> None:
    assert ms.structural_equal(looked_at().program, softmax().program)


def test_get_consumers_same_handles_in_a_fork() -> None:
    sch = softmax()
    exp = sch.get_block("exp")
    fork = sch.fork()
    assert names(fork, fork.get_consumers(exp)) == ["sum", "softmax"]
    assert len(sch.trace) == 1


def test_get_child_blocks_same_after_a_split() -> None:
    sch = softmax()
    loop, _ = sch.get_loops(sch.get_block("exp"))
    outer, _ = sch.split(loop, [None, 2])
    assert names(sch, sch.get_child_blocks(outer)) == ["exp"]
