"""Random programs on an OpenCL device: what NumPy or the interpreter says, of all types and extents."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import metaschedule as ms
from tests.codegen.gpu.schedules import opencl
from tests.conftest import LONG
from tests.degenerate_programs import Example, degenerate_programs
from tests.schedule.checks import as_tuple
from tests.te.random_expressions import RandomExpression, random_expressions

FEW = settings(max_examples=300 if LONG["long"] else 4)


@FEW
@given(random_expressions())
def test_random_expressions(case: RandomExpression) -> None:
    opencl()
    case.check(ms.build(case.program, target="opencl")(*case.inputs))


@FEW
@given(degenerate_programs())
def test_extents_of_0_and_1(example: Example) -> None:
    opencl()
    program, inputs = example.program, example.inputs()
    found, wanted = ms.build(program, target="opencl")(*inputs), ms.interpret(program, *inputs)
    for got, want in zip(as_tuple(found), as_tuple(wanted), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=str(program))
