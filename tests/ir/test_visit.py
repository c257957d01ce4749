"""Walking in program order; rewriting shares what did not change."""

from __future__ import annotations

from hypothesis import given

from metaschedule import ir
from metaschedule.script import parse
from tests.script.random_programs import programs

TEXT = """
def f(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
    for i in range(4):
        with T.block("b"):
            vi = T.spatial(4, i)
            T.reads(A[vi])
            T.writes(B[vi])
            B[vi] = A[vi] * 2.0
    for i in range(4):
        while B[i] < 3.0:
            B[i] = B[i] + 1.0
"""


def test_walk_is_in_program_order() -> None:
    kinds = [type(s).__name__ for s in ir.walk(parse(TEXT))]
    assert kinds == ["For", "Block", "Store", "For", "While", "Store"]
    assert [b.name for b in ir.blocks(parse(TEXT))] == ["b"]


def test_expressions_are_those_evaluated() -> None:
    block = ir.blocks(parse(TEXT))[0]
    texts = [str(e) for e in ir.expressions(block)]
    assert texts == ["i", "4", "vi", "A[vi] * 2.0", "A[vi]", "vi", "2.0"]


def test_free_variables_come_once_in_order() -> None:
    i, j = ir.Var("i"), ir.Var("j")
    assert [v.name for v in ir.free_vars(j * 2 + i * j)] == ["j", "i"]


@given(programs())
def test_a_rewriter_that_changes_nothing_shares_everything(program: ir.Program) -> None:
    assert ir.Rewriter().program(program) is program


class Double(ir.Rewriter):
    def expr(self, e: ir.Expr) -> ir.Expr:
        return ir.const(4.0) if isinstance(e, ir.Const) and e.value == 2.0 else super().expr(e)


def test_a_rewriter_shares_unchanged_nodes() -> None:
    program = parse(TEXT)
    new = Double().program(program)
    assert new is not program
    assert new.body[0] is not program.body[0]
    assert new.body[1] is program.body[1]
    assert new.inputs is program.inputs
    old_block, new_block = ir.blocks(program)[0], ir.blocks(new)[0]
    assert new_block.reads is old_block.reads
    assert new_block.iters is old_block.iters
    assert "A[vi] * 4.0" in str(new)


class Drop(ir.Rewriter):
    """Removes loops, keeping their bodies, and repeats stores."""

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            return self.body(s.body)
        return (s, s) if isinstance(s, ir.Store) else super().stmt(s)


def test_statements_can_be_spliced() -> None:
    kinds = [type(s).__name__ for s in ir.walk(Drop().program(parse(TEXT)))]
    assert kinds == ["Block", "Store", "Store", "While", "Store", "Store"]


def test_substitution() -> None:
    i, j = ir.Var("i"), ir.Var("j")
    a, b = ir.Buffer("A", (8,)), ir.Buffer("B", (8,))
    e = a[i + 1]
    assert str(ir.substitute(e, {i: j * 2})) == "A[j * 2 + 1]"
    assert ir.substitute(e, {j: i}) is e
    moved = ir.Substitute({i: j}, {a: b}).expr(e)
    assert isinstance(moved, ir.Load)
    assert moved.buffer is b
    assert str(moved) == "B[j + 1]"


def test_changed_keeps_the_node() -> None:
    loop = ir.For(ir.Var("i"), ir.const(4), ())
    assert ir.replace_fields(loop, extent=loop.extent) is loop
    assert ir.replace_fields(loop, kind="parallel").kind == "parallel"
