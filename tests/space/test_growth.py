"""Programs of many blocks: what is made of them is bounded, and right."""

from __future__ import annotations

import random

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import blocks, expressions
from metaschedule.space import default
from metaschedule.space.partial import FEWEST_SKETCHES, MOST_SKETCHES, Partial, thin
from metaschedule.space.pieces import MOST_BLOCKS, pieces
from metaschedule.space.untuned import schedule_untuned

TARGET = "x86-64-v3,cores=2"


def mixed(stages: int, rows: int = 6, columns: int = 20) -> ms.Program:
    """Each pair of stages subtracts the mean of the rows."""
    x = te.placeholder((rows, columns), name="x")
    y = x
    for _ in range(stages // 2):
        k = te.reduce_axis(columns)
        mean = te.compute((rows,), lambda i, y=y, k=k: te.sum(y[i, k], axis=k), name="mean")
        y = te.compute(
            (rows, columns), lambda i, j, y=y, m=mean: y[i, j] - m[i] * (0.5 / columns), name="centred"
        )
    return te.program([x], [y])


def diamonds(stages: int) -> ms.Program:
    """Each three stages read what was before twice."""
    x = te.placeholder((4, 9), name="x")
    y = x
    for _ in range(stages // 3):
        a = te.compute((4, 9), lambda i, j, y=y: y[i, j] + 1.0, name="a")
        b = te.compute((4, 9), lambda i, j, y=y: y[i, j] * 0.5, name="b")
        y = te.compute((4, 9), lambda i, j, a=a, b=b: (a[i, j] + b[i, j]) * 0.5, name="y")
    return te.program([x], [y])


def chain(stages: int) -> ms.Program:
    x = te.placeholder((4, 9), name="x")
    y = x
    for n in range(stages):
        y = te.compute((4, 9), lambda i, j, y=y, n=n: y[i, j] * 0.5 + float(n), name="s")
    return te.program([x], [y])


@pytest.mark.parametrize("stages", [8, 40])
def test_sketches_are_bounded_as_they_are_made(stages: int) -> None:
    assert 1 <= len(default(TARGET).sketches(mixed(stages))) <= MOST_SKETCHES


def test_a_space_that_forks_everywhere_is_bounded() -> None:
    """Three options for each of many blocks: the sketches that take one option everywhere are among those
    that are kept, and every option of every block is."""

    def options(sch: ms.Schedule, block: object, target: object) -> list[ms.Schedule]:
        made = [sch.fork() for _ in range(3)]
        for n, each in enumerate(made):
            each.annotate(block, "option", n)  # pyright: ignore[reportArgumentType]
        return made

    sketches = ms.space.Space([options]).sketches(chain(12))
    steps = [[i.primitive for i in sketch.instructions] for sketch in sketches]
    picked = [[p.operands()[2] for p in each if p.op == "annotate"] for each in steps]
    assert len(sketches) == MOST_SKETCHES
    assert [[n] * 12 in picked for n in range(3)] == [True] * 3
    assert all({picks[at] for picks in picked} == {0, 1, 2} for at in range(12))


def test_thinning_keeps_few_as_they_are() -> None:
    families = [[Partial(ms.Schedule(chain(1)))], []]
    assert thin(families, 1, random.Random(0)) == families


@pytest.mark.parametrize("make", [mixed, diamonds, chain])
def test_pieces_hold_every_block_once(make: object) -> None:
    program = make(100)  # pyright: ignore[reportCallIssue]
    parts = pieces(program)
    assert len(parts) > 1
    assert [b.name for p in parts for b in blocks(p)] == [b.name for b in blocks(program)]
    assert all(len(blocks(p)) <= MOST_BLOCKS for p in parts)
    assert pieces(parts[0]) == [parts[0]]


@pytest.mark.parametrize("make", [mixed, diamonds, chain])
def test_large_programs_are_built_piece_by_piece(make: object) -> None:
    program = make(70)  # pyright: ignore[reportCallIssue]
    data = np.random.default_rng(0).standard_normal(program.inputs[0].shape).astype("float32")
    wanted = ms.interpret(program, data)
    np.testing.assert_allclose(ms.build(program)(data), wanted, rtol=1e-4, atol=1e-4)


def test_sketches_of_pieces_replay_on_the_whole_program() -> None:
    program = mixed(40)
    space = default(TARGET)
    sketches = space.sketches(program)
    assert 1 <= len(sketches) <= 2 * FEWEST_SKETCHES
    data = np.random.default_rng(0).standard_normal((6, 20)).astype("float32")
    wanted = ms.interpret(program, data)
    for sketch in sketches[:3]:
        sch = sketch.apply(program, rng=1)
        np.testing.assert_allclose(ms.interpret(sch.program, data), wanted, rtol=1e-4, atol=1e-4)
    stored = ms.Trace.from_json(sketches[0].to_json())
    assert ms.structural_equal(stored.apply(program).program, sketches[0].apply(program).program)


def test_the_trace_of_a_large_program_replays_whatever_its_blocks_are_called() -> None:
    sch = schedule_untuned(mixed(40), default(TARGET).target)
    renamed = ms.parse(str(mixed(40)).replace("centred", "c").replace("mean", "m"))
    assert ms.structural_equal(sch.trace.apply(renamed).program, sch.program)


@pytest.mark.parametrize(("make", "stages"), [(diamonds, 30), (chain, 32), (chain, 320)])
def test_inlining_does_not_blow_up(make: object, stages: int) -> None:
    program = make(stages)  # pyright: ignore[reportCallIssue]
    sch = schedule_untuned(program, default(TARGET).target)
    before, after = (sum(1 for _ in expressions(p)) for p in (program, sch.program))
    assert after <= 8 * before
