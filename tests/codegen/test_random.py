"""Random tensor expressions compiled: as written, and with random loops."""

from __future__ import annotations

from hypothesis import given, note
from hypothesis import strategies as st

from metaschedule.interpreter import interpret
from tests.codegen.compiled import build, outputs, run
from tests.codegen.variants import random_variant
from tests.te.random_expressions import RandomExpression, random_expressions


@given(random_expressions())
def test_compiled_like_numpy(case: RandomExpression) -> None:
    case.check(tuple(run(build(case.program), *case.inputs)))


@given(random_expressions(max_stages=3), st.data())
def test_random_loops(case: RandomExpression, data: st.DataObject) -> None:
    variant = random_variant(data.draw, case.program)
    note(str(variant))
    case.check(tuple(outputs(interpret(variant, *case.inputs))))
    case.check(tuple(run(build(variant), *case.inputs)))
