"""winograd along several dimensions: one primitive for each."""

from __future__ import annotations

from typing import Any

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.ir.annotations import ROUNDING
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.refusals import refusal

CONV: dict[str, Any] = {"h": 9, "w": 10, "ci": 2, "co": 3, "k": 3, "s": 1, "p": 1}


def started(**config: Any) -> tuple[Program, Schedule, Any, list[Any]]:
    program = ms.workloads.create("C2D", **CONV | config)
    sch = Schedule(program)
    conv = sch.get_block("conv")
    return program, sch, conv, sch.get_loops(conv)


@pytest.mark.parametrize("tile", [2, 4, (2, 4), (4, 2)])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_same_along_two_loops(order: tuple[int, int], tile: Any) -> None:
    program, sch, conv, loops = started()
    sch.winograd(conv, [loops[n] for n in order], tile)
    assert [i.primitive.op for i in sch.trace.instructions].count("winograd") == 2
    check(sch, program, rounding=1e-5)


def test_sizes_are_those_of_the_loops() -> None:
    _, sch, conv, loops = started()
    products = sch.get(sch.winograd(conv, [loops[2], loops[1]], [4, 2])[2])
    sizes = {it.var.name: it.extent for it in products.iters if "tile" in it.var.name}
    assert {name: str(size) for name, size in sizes.items()} == {"v_h_tile": "5", "v_w_tile": "3"}


def test_rounding_errors_multiply() -> None:
    _, sch, conv, loops = started()
    once = sch.fork()
    single = once.get(once.winograd(conv, loops[2], 4)[2]).annotations[ROUNDING.key]
    both = sch.get(sch.winograd(conv, loops[1:3], 4)[2]).annotations[ROUNDING.key]
    assert both == single**2


def test_same_along_three_loops() -> None:
    program = ms.workloads.create("C3D", d=5, h=5, w=6, ci=2, co=3, k=3, s=1, p=1)
    sch = Schedule(program)
    conv = sch.get_block("conv")
    sch.winograd(conv, sch.get_loops(conv)[1:4], 2)
    check(sch, program, rounding=1e-5)


def test_one_loop_is_the_primitive() -> None:
    _, sch, conv, loops = started()
    sch.winograd(conv, [loops[2]], [4])
    _, other, conv, loops = started()
    other.winograd(conv, loops[2], 4)
    assert str(sch.trace) == str(other.trace)


def test_nothing_is_left_of_what_is_refused() -> None:
    program, sch, conv, loops = started()
    trace = str(sch.trace)
    with pytest.raises(ms.ScheduleError, match="tile is 7"):
        sch.winograd(conv, loops[1:3], [7, 4])
    assert str(sch.trace) == trace
    assert ms.structural_equal(sch.program, program)
    sch.winograd(conv, loops[1:3], 2)


def test_winograd_refuses_other_numbers_of_tiles() -> None:
    _, sch, conv, loops = started()
    assert "2 loops and 1 sizes" in refusal(sch.winograd, conv, loops[1:3], [4])
    assert "0 loops" in refusal(sch.winograd, conv, [], 4)


def test_winograd_refuses_one_loop_twice() -> None:
    _, sch, conv, loops = started()
    assert "different iterators" in refusal(sch.winograd, conv, [loops[1], loops[1]], 4)


def test_winograd_refuses_a_second_loop_that_is_no_filter() -> None:
    a, w = te.placeholder((9, 6), name="A"), te.placeholder((3, 6), name="W")
    k = te.reduce_axis(3, name="k")
    y = te.compute((7, 6), lambda i, j: te.sum(a[i + k, j] * w[k, j], axis=k), name="Y")
    sch = Schedule(te.program([a, w], [y], name="depthwise"))
    block = sch.get_block("Y")
    assert "must be an index of one factor" in refusal(sch.winograd, block, sch.get_loops(block)[:2], 2)
