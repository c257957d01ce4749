"""Random tensor expressions mean what NumPy says."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from metaschedule.interpreter import interpret
from metaschedule.ir import structural_equal, structural_hash
from metaschedule.script import parse
from tests.te.random_expressions import RandomExpression, random_expressions


@given(random_expressions())
def test_interpreted_like_numpy(case: RandomExpression) -> None:
    case.check(interpret(case.program, *case.inputs))


@given(random_expressions())
def test_printed_and_parsed(case: RandomExpression) -> None:
    again = parse(str(case.program))
    assert structural_equal(again, case.program)
    assert structural_hash(again) == structural_hash(case.program)


@given(random_expressions())
def test_the_reference_is_a_function_of_the_inputs(case: RandomExpression) -> None:
    for first, second in zip(case.reference(*case.inputs), case.expected, strict=True):
        np.testing.assert_array_equal(first, second)
