"""print then parse gives the same program, for every program."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given

from metaschedule import ir
from metaschedule.arith import block_signature
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


SIGNATURE = re.compile(r"(?<=    )T\.(reads|writes)\(.*\)$", re.MULTILINE)


class Forget(ir.Rewriter):
    """Drops the signatures of all blocks and infers them again, innermost first."""

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        new = super().stmt(s)
        if isinstance(new, ir.Block):
            new = ir.replace_fields(new, reads=(), writes=())
            reads, writes = block_signature(new)
            new = ir.replace_fields(new, reads=reads, writes=writes)
        return new


@pytest.mark.slow
@given(programs())
def test_inferred_signatures_are_accepted(program: ir.Program) -> None:
    inferred = Forget().program(program)
    verify(inferred)
    again = parse(SIGNATURE.sub("pass", str(program)))
    assert ir.structural_equal(again, inferred)


@given(programs())
def test_the_script_is_valid_python(program: ir.Program) -> None:
    compile(ast.parse(str(program)), "<script>", "exec")


@given(programs())
def test_an_untouched_program_is_the_same_object_after_a_rewrite(program: ir.Program) -> None:
    assert ir.Rewriter().program(program) is program
