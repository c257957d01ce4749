"""Expressions and nests that steps make deeper and larger each time."""

from __future__ import annotations

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
