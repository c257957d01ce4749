"""The programs of CASES.md can be written, printed, parsed, hashed and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule.interpreter import InterpreterError, interpret
from metaschedule.ir import structural_equal, structural_hash
from metaschedule.script import parse
from metaschedule.verifier import verify
from tests.cases.programs import CASES, REFUSED

NUMBERS = """
17960 17973 17934 18380 18423 18424 18383 18387 17936 12907 14137 15987 13203 8991 12929 18224 16288
15198 15201 15203 15205 15209 17799 15911 20401 17465
"""


def test_all_cases_are_there() -> None:
    assert {*NUMBERS.split(), "Halide 8256", "Halide 8308", "18383, second"} == {*CASES, *REFUSED}


@pytest.mark.parametrize("number", CASES)
def test_printed_and_parsed(number: str) -> None:
    for program in (CASES[number].make(), CASES[number].small_program()):
        verify(program)
        again = parse(str(program))
        assert structural_equal(again, program)
        assert structural_hash(again) == structural_hash(program)
        assert str(again) == str(program)


@pytest.mark.parametrize("number", [n for n, case in CASES.items() if not case.build_only])
@pytest.mark.parametrize("seed", [0, 1])
def test_interpreted_like_numpy(number: str, seed: int) -> None:
    case = CASES[number]
    program = case.small_program()
    inputs = case.inputs(program, np.random.default_rng(seed))
    case.check(program, interpret(program, *inputs), inputs)


@pytest.mark.parametrize("number", REFUSED)
def test_refused(number: str) -> None:
    make, error, words = REFUSED[number]
    with pytest.raises(error, match=words):
        make()


def test_refused_from_a_script_as_well() -> None:
    text = """
@ms.program
def out_of_bounds(B: T.Output((1,), "float32")):
    A = T.table([1.0, 2.0, 3.0], (3,), "float32")
    for i, k in T.grid(1, 64):
        with T.block("sum"):
            v_i = T.spatial(1, i)
            v_k = T.reduce(64, k)
            T.reads(A[v_k])
            T.writes(B[v_i])
            with T.init():
                B[v_i] = 0.0
            B[v_i] = B[v_i] + A[v_k]
"""
    with pytest.raises(ValueError, match="out of bounds"):
        parse(text)


def test_the_assertion_is_checked() -> None:
    with pytest.raises(InterpreterError, match="the root of a negative number"):
        interpret(CASES["18387"].make(), np.full(16, -1, np.float32))
