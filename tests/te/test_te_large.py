"""Expressions of thousands of steps."""

from __future__ import annotations

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import ir, te
from metaschedule.te.cut import MOST_DEPTH, MOST_NODES


@pytest.mark.parametrize("steps", [200, 2000])
def test_an_expression_of_many_steps_is_several_stages(steps: int) -> None:
    x = te.placeholder((3,), name="x")

    def value(i: ir.Var) -> ms.ir.Expr:
        e = x[i] * 1.0
        for _ in range(steps):
            e = e + 1.0
        return e

    program = te.program([x], [te.compute((3,), value, name="y")])
    assert len(ir.blocks(program)) > 1
    assert max(ir.height(e) for e in ir.expressions(program)) <= MOST_DEPTH
    data = np.arange(3, dtype="float32")
    np.testing.assert_array_equal(ms.interpret(program, data), data + steps)
    assert ms.structural_equal(ms.parse(str(program)), program)


def test_parts_that_are_used_twice_do_not_double() -> None:
    x = te.placeholder((3,), name="x")

    def value(i: ir.Var) -> ms.ir.Expr:
        e = x[i] * 1.0
        for _ in range(60):
            e = e * 0.5 + e * 0.5
        return e

    program = te.program([x], [te.compute((3,), value, name="y")])
    assert sum(1 for _ in ir.expressions(program)) < 60 * MOST_NODES
    data = np.arange(3, dtype="float32")
    np.testing.assert_array_equal(ms.interpret(program, data), data)


def test_what_is_large_under_conditions_is_refused() -> None:
    x = te.placeholder((3,), name="x")

    def value(i: ir.Var) -> ms.ir.Expr:
        e: ms.ir.Expr = x[i]
        for n in range(300):
            e = te.select(i < n, x[i] + float(n), e)
        return e

    with pytest.raises(ValueError, match="under a condition: compute parts of it as tensors first"):
        te.compute((3,), value, name="y")


def test_small_expressions_stay_as_they_are() -> None:
    x = te.placeholder((3,), name="x")
    program = te.program([x], [te.compute((3,), lambda i: x[i] * 2.0 + 1.0, name="y")])
    assert len(ir.blocks(program)) == 1
    assert sum(isinstance(e, ir.Load) for e in ir.expressions(program)) == 1
