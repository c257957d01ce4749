"""print then parse gives the same program, for every program."""

from __future__ import annotations

import ast

from hypothesis import given

from metaschedule import ir
from metaschedule.script import parse
from metaschedule.verifier import verify
from tests.script.random_programs import programs


@given(programs())
def test_printing_then_parsing_gives_the_same_program(program: ir.Program) -> None:
    text = str(program)
    again = parse(text)
    assert str(again) == text
    assert ir.structural_equal(again, program)
    assert ir.structural_hash(again) == ir.structural_hash(program)


@given(programs())
def test_the_verifier_accepts_well_formed_programs(program: ir.Program) -> None:
    verify(program)


@given(programs())
def test_the_script_is_valid_python(program: ir.Program) -> None:
    compile(ast.parse(str(program)), "<script>", "exec")


@given(programs())
def test_an_untouched_program_is_the_same_object_after_a_rewrite(program: ir.Program) -> None:
    assert ir.Rewriter().program(program) is program
