"""Expressions and nests that steps make deeper and larger each time."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.schedule import Schedule
from metaschedule.schedule.primitive.inline import ComputeInline, ReverseComputeInline
from tests.schedule.refusals import refusal


def chain(stages: int, step: Callable[[Any], Any]) -> Schedule:
    x = y = te.placeholder((8,), name="x")
    for _ in range(stages):
        y = te.compute((8,), lambda i, y=y: step(y[i]), name="y")
    return Schedule(te.program([x], [y]))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda e: e * 0.5 + 1.0, "expressions would be more than 200 inside each other"),
        (lambda e: e + e, "the expressions would have more than 65536 parts"),
    ],
)
@pytest.mark.parametrize("inline", [ComputeInline, ReverseComputeInline])
def test_inlining_refuses_what_becomes_too_deep_or_too_large(step: Any, reason: str, inline: Any) -> None:
    sch = chain(120, step)
    blocks = [sch.get_block(name) for name in sch.state.nodes if isinstance(name, str) and name]
    steps = [inline(b) for b in (blocks[:-1] if inline is ComputeInline else blocks[1:])]
    while sch.can(steps[0]):
        sch.run(steps.pop(0))
    assert reason in refusal(sch.run, steps[0])
    assert ms.structural_hash(ms.parse(str(sch.program))) == ms.structural_hash(sch.program)


def test_loops_split_and_fused_again_and_again() -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    sch = Schedule(program)
    _, i, j, _ = sch.get_loops(sch.get_block("matmul"))
    fused = sch.fuse(i, j)
    for n in range(50):
        fused = sch.fuse(*sch.split(fused, [None, 2 + n % 2]))
    assert len(str(sch.program)) < 4000
    x, y = np.ones((1, 4, 4), "float32"), np.ones((1, 4, 4), "float32")
    np.testing.assert_array_equal(ms.build(sch)(x, y), ms.interpret(program, x, y))


def test_a_program_refuses_loops_that_were_split_a_thousand_times() -> None:
    sch = Schedule(ms.workloads.create("GMM", b=1, n=4, m=4, k=4))
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    for _ in range(1000):
        loop = sch.split(loop, [None, 1])[0]
    assert "too deeply" in refusal(ms.build, sch)


def count_calls(stages: int, steps: Callable[[Schedule, list[Any]], None]) -> int:
    """Python functions that steps at the end of a chain of row sums and differences call."""
    x = y = te.placeholder((4, 4), name="x")
    for _ in range(stages):
        k = te.reduce_axis(4)
        mean = te.compute((4,), lambda i, y=y, k=k: te.sum(y[i, k], axis=k), name="mean")
        y = te.compute((4, 4), lambda i, j, y=y, m=mean: y[i, j] - m[i], name="centred")
    sch = Schedule(te.program([x], [y]))
    blocks = [sch.get_block(name) for name in sch.state.nodes if isinstance(name, str) and name]
    sch.compute_inline(blocks[1])  # the first question looks at all nodes
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    steps(sch, blocks)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def inline(sch: Schedule, blocks: list[Any]) -> None:
    sch.compute_inline(blocks[-3])


def move_producer(sch: Schedule, blocks: list[Any]) -> None:
    sch.compute_at(blocks[-2], sch.get_loops(blocks[-1])[0])


def move_consumer(sch: Schedule, blocks: list[Any]) -> None:
    sch.reverse_compute_at(blocks[-1], sch.get_loops(blocks[-2])[0])


@pytest.mark.parametrize("steps", [inline, move_producer, move_consumer])
def test_a_step_costs_no_more_in_a_longer_program(steps: Any) -> None:
    count_calls(4, steps)  # what is known from then on
    short, long = count_calls(4, steps), count_calls(64, steps)
    assert long <= 1.1 * short
