"""The same program whatever things are called; another program as soon as anything counts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

from metaschedule import ir
from metaschedule.ir import Buffer, structural_equal, structural_hash
from metaschedule.script import parse
from tests.script.random_programs import programs

TEXT = """
@ms.program
def f(A: T.Tensor((4, 8), "float32", constant=True), B: T.Output((4,), "float32")):
    T.annotate({"note": 1})
    W = T.table([1.0, 2.0], (2,), "float32")
    L = T.alloc((4,), "float32", scope="local")
    Z = T.alloc((4,), "int32")
    for i in T.parallel(4, annotations={"jobs": 2}):
        for k in range(8):
            with T.block("sum"):
                vi = T.spatial(4, i)
                vk = T.reduce(8, k)
                T.where(i < 3)
                T.reads(A[vi, vk])
                T.writes(L[vi])
                with T.init():
                    L[vi] = 0.0
                L[vi] = L[vi] + A[vi, vk]
    for i in range(4):
        assert L[i] > 1.5, "positive"
        if L[i] < 3.0:
            B[i], L[i] = L[i] * W[1], T.exp(L[i])
        else:
            B[i] = -T.cast(T.cast(L[i], "int8"), "float32")
"""

CHANGES = {
    "shape": ("(4, 8)", "(4, 9)"),
    "dtype": ('"int32"', '"int64"'),
    "flag": (", constant=True", ""),
    "program annotation": ('"note": 1', '"note": 2'),
    "annotation type": ('"note": 1', '"note": True'),
    "table value": ("[1.0, 2.0]", "[1.0, 2.5]"),
    "negative zero": ("= 0.0", "= -0.0"),
    "scope": ('"local"', '"shared"'),
    "loop kind": ("T.parallel", "T.unrolled"),
    "loop annotation": ('"jobs": 2', '"jobs": 3'),
    "extent": ("range(8)", "range(7)"),
    "iterator kind": ("T.spatial", "T.reduce"),
    "iterator extent": ("T.reduce(8", "T.reduce(9"),
    "binding": ("T.reduce(8, k)", "T.reduce(8, 7 - k)"),
    "predicate": ("i < 3)", "i < 2)"),
    "no predicate": ("                T.where(i < 3)\n", ""),
    "reads": ("T.reads(A[vi, vk])", "T.reads(A[vi, 0 : T.size(8)])"),
    "init": ("L[vi] = 0.0", "L[vi] = 1.0"),
    "operator": ("L[vi] + A", "L[vi] - A"),
    "operand order": ("L[vi] + A[vi, vk]", "A[vi, vk] + L[vi]"),
    "index": ("W[1]", "W[0]"),
    "function": ("T.exp", "T.sin"),
    "cast": ('"int8"', '"int16"'),
    "message": ('"positive"', '"negative"'),
    "condition": ("< 3.0", "<= 3.0"),
    "tuple store": ("B[i], L[i] = L[i] * W[1], T.exp(L[i])", "B[i] = L[i] * W[1]"),
    "else": ("else:", "if True:"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_changes_count(what: str) -> None:
    old, new = CHANGES[what]
    assert TEXT.count(old) == 1
    original, changed = parse(TEXT), parse(TEXT.replace(old, new, 1), check=False)
    assert not structural_equal(original, changed)
    assert structural_hash(original) != structural_hash(changed)


class Rename(ir.Rewriter):
    """Gives every variable, buffer and block a new identity and a new name."""

    def __init__(self) -> None:
        self.variables: dict[ir.Var, ir.Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def variable(self, v: ir.Var) -> ir.Var:
        return self.variables.setdefault(v, ir.Var(f"renamed{len(self.variables)}", v.dtype))

    def expr(self, e: ir.Expr) -> ir.Expr:
        return self.variable(e) if isinstance(e, ir.Var) else super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        new = Buffer(f"other{len(self.buffers)}", b.shape, b.dtype, b.scope, b.constant, b.data)
        return self.buffers.setdefault(b, new)

    def iter(self, it: ir.Iter) -> ir.Iter:
        return ir.Iter(self.variable(it.var), self.expr(it.extent), it.kind)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        new = super().stmt(s)
        if isinstance(new, ir.For):
            new = ir.replace_fields(new, var=self.variable(new.var))
        return ir.replace_fields(new, name="renamed") if isinstance(new, ir.Block) else new

    def program(self, p: ir.Program) -> ir.Program:
        return ir.replace_fields(super().program(p), name="renamed")


@given(programs())
def test_names_do_not_count(program: ir.Program) -> None:
    renamed = Rename().program(program)
    assert renamed is not program
    assert structural_equal(program, renamed)
    assert structural_hash(program) == structural_hash(renamed)


class Bump(ir.Rewriter):
    """Changes one constant: the n-th."""

    def __init__(self, at: int) -> None:
        self.at = at

    def expr(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Const):
            self.at -= 1
            if self.at == -1:
                return ir.Const((not e.value) if e.dtype == "bool" else 77 + (e.value == 77), e.dtype)
        return super().expr(e)


@given(programs())
def test_one_constant_counts(program: ir.Program) -> None:
    total = sum(isinstance(e, ir.Const) for e in ir.expressions(program))
    for at in {0, total // 2, total - 1} if total else ():
        assert structural_hash(Bump(at).program(program)) != structural_hash(program)


def test_which_variable_counts() -> None:
    i, j, a = ir.Var("i"), ir.Var("j"), Buffer("A", (4, 4))
    assert structural_equal(a[i, j], a[j, i])
    assert not structural_equal(a[i, j], a[i, i])
    assert not structural_equal(a[i, j], a[i, j] + 1)
    assert structural_equal(ir.const(float("nan")), ir.const(float("nan")))
    assert not structural_equal(ir.const(1), ir.const(1, "int32"))


def test_all_nans_of_a_table_are_one_value() -> None:
    def program(value: float) -> ir.Program:
        table = Buffer("W", (1,), "float32", data=np.array([value], "float32"))
        return ir.Program("f", (), (), (), (table,))

    assert structural_equal(program(np.nan), program(-np.nan))
    assert not structural_equal(program(0.0), program(-0.0))


def test_annotations_compare_as_data() -> None:
    def program(**notes: object) -> ir.Program:
        return ir.Program("f", (), (), (), (), notes)

    assert structural_equal(program(a=1, b=(1, 2)), program(b=[1, 2], a=1))
    assert not structural_equal(program(a=1), program(a=1.0))


HASH: Callable[[str], str] = lambda seed: subprocess.run(  # noqa: E731
    [
        sys.executable,
        "-c",
        "import sys; from metaschedule.script import parse; from metaschedule.ir import "
        "structural_hash; print(structural_hash(parse(sys.stdin.read())))",
    ],
    input=TEXT,
    env={**os.environ, "PYTHONHASHSEED": seed},
    capture_output=True,
    text=True,
    check=True,
).stdout.strip()


def test_the_hash_is_the_same_in_other_processes() -> None:
    here = structural_hash(parse(TEXT))
    assert HASH("1") == HASH("2") == here
    assert len(here) == 32


def test_the_hash_is_pinned() -> None:
    """Databases are keyed by it: a change of the encoding must be deliberate."""
    assert structural_hash(parse(TEXT)) == "c94cf4f68f7d518c51af883273855dd0"
