"""The programs of CASES.md on an OpenCL device: right, or refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.errors import ScheduleError
from tests.cases.programs import CASES
from tests.codegen.gpu.schedules import opencl

QUICK = ("18424", "18383", "18423", "12907", "16288", "15911")


def run_case(number: str) -> None:
    opencl()
    case = CASES[number]
    program = case.make() if case.build_only else case.small_program()
    try:
        exe = ms.build(program, target="opencl")
    except ScheduleError as error:
        pytest.skip(f"refused: {error.message}")
    if not case.build_only:
        inputs = case.inputs(program, np.random.default_rng(0))
        case.check(program, exe(*inputs), inputs)


@pytest.mark.parametrize("number", QUICK)
def test_right_or_refused(number: str) -> None:
    run_case(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in CASES if number not in QUICK])
def test_all_are_right_or_refused(number: str) -> None:
    run_case(number)
