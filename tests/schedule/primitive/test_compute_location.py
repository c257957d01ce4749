"""sample_compute_location."""

from __future__ import annotations

import random

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule, Trace
from metaschedule.schedule.primitive.compute_location import ComputeLocation
from tests.schedule.checks import assert_same_results, check
from tests.schedule.refusals import refusal


def fused_convolution() -> Program:
    return ms.workloads.create("CBR", n=1, h=5, w=4, ci=2, co=3, k=3, s=1, p=1)


def moved(program: Program, seed: int) -> Schedule:
    """Every stage but the last is computed somewhere."""
    sch = Schedule(program, seed=seed)
    for name in ("bn", "bias_add", "conv", "pad"):
        block = sch.get_block(name)
        sch.compute_at(block, sch.sample_compute_location(block))
    return sch


@pytest.mark.parametrize("seed", range(6))
def test_sample_compute_location_same_results(seed: int) -> None:
    program = fused_convolution()
    check(moved(program, seed), program)


def test_sample_compute_location_same_with_every_decision() -> None:
    program = fused_convolution()
    sch = Schedule(program)
    block = sch.get_block("pad")
    distribution = ComputeLocation(block).at(sch.state)
    assert list(distribution.enumerate()) == [-1, 0, 1, 2, 3, 4, 5, 6]
    assert distribution.count() == 8
    nodes, children = dict(sch.state.nodes), dict(sch.state.children)
    sch.compute_at(block, sch.sample_compute_location(block, decision=-1))
    assert (sch.state.nodes, sch.state.children) == (nodes, children)  # it stays where it is
    for decision in distribution.enumerate():
        other = sch.trace.apply(program, decisions={1: decision})
        assert_same_results(program, other.program, compiled=False)
        assert other.trace.decisions == {1: decision}
        # Whatever was drawn, the instructions are the same.
        assert [i.primitive.op for i in other.trace.instructions] == [
            i.primitive.op for i in sch.trace.instructions
        ]


def test_sample_compute_location_same_when_drawn_again() -> None:
    program = fused_convolution()
    trace = Trace.from_json(moved(program, 0).trace.to_json())
    drawn = set()
    for seed in range(6):
        sch = trace.apply(program, rng=random.Random(seed))
        drawn.add(str(sch.trace.decisions))
        assert_same_results(program, sch.program, compiled=False)
    assert len(drawn) > 1


def test_neighbours_are_legal() -> None:
    sch = Schedule(fused_convolution())
    at = ComputeLocation(sch.get_block("conv")).at(sch.state)
    support = list(at.support())
    for decision in support:
        near = at.neighbour(decision, random.Random(1))
        assert near in support
        assert abs(support.index(near) - support.index(decision)) == 1


def test_only_loops_around_all_consumers_are_drawn() -> None:
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] * 2.0, name="C")
    program = te.program([a], [te.compute((4, 6), lambda i, j: c[i, j] - b[i, j], name="D")])
    sch = Schedule(program)
    block = sch.get_block("B")
    assert ComputeLocation(block).at(sch.state).support() == [-1]  # two nests read it
    sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("D"))[0])
    assert ComputeLocation(block).at(sch.state).support() == [-1, 0]
    location = sch.sample_compute_location(block, decision=0)
    sch.compute_at(block, location)
    check(sch, program)


def test_an_output_stays() -> None:
    sch = Schedule(fused_convolution())
    block = sch.get_block("relu")
    assert ComputeLocation(block).at(sch.state).support() == [-1]
    nodes, children = dict(sch.state.nodes), dict(sch.state.children)
    sch.compute_at(block, sch.sample_compute_location(block))
    sch.reverse_compute_at(block, sch.sample_compute_location(block))
    assert (sch.state.nodes, sch.state.children) == (nodes, children)


def test_a_block_that_moves_does_not_stay() -> None:
    program = fused_convolution()
    sch = Schedule(program)
    block = sch.get_block("pad")
    distribution = ComputeLocation(block, outermost=3, moves=True).at(sch.state)
    assert distribution.support() == [0, 1, 2]
    sch.compute_at(block, sch.sample_compute_location(block, 3, moves=True))
    check(sch, program)


def test_sample_compute_location_refuses_an_output_that_is_to_move() -> None:
    sch = Schedule(fused_convolution())
    block = sch.get_block("relu")
    message = refusal(sch.sample_compute_location, block, moves=True)
    assert "block 'relu' can be computed at no loop of its consumers" in message


def test_sample_compute_location_refuses_decisions_that_are_illegal() -> None:
    sch = Schedule(fused_convolution())
    block = sch.get_block("pad")
    for decision in (-2, 7):
        assert "is no decision of sample_compute_location" in refusal(
            sch.sample_compute_location, block, decision=decision
        )
    message = refusal(sch.sample_compute_location, sch.get_block("relu"), decision=0)
    assert message == "0 is no decision of sample_compute_location(block=b1, outermost=0, moves=False)"


def test_sample_compute_location_refuses_a_block_that_is_gone() -> None:
    sch = Schedule(fused_convolution())
    block = sch.get_block("bn")
    sch.compute_inline(block)
    assert "is gone" in refusal(sch.sample_compute_location, block)


def test_a_location_that_stays_is_no_loop() -> None:
    sch = Schedule(fused_convolution())
    location = sch.sample_compute_location(sch.get_block("pad"), decision=-1)
    with pytest.raises(ms.ScheduleError, match="is gone"):
        sch.split(location, [None, 2])
