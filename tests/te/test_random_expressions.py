"""Random tensor expressions mean what NumPy says."""

from __future__ import annotations

from hypothesis import given

from metaschedule.interpreter import interpret
from tests.te.random_expressions import RandomExpression, random_expressions


@given(random_expressions())
def test_interpreted_like_numpy(case: RandomExpression) -> None:
    case.check(interpret(case.program, *case.inputs))
