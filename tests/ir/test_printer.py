"""One printer: precedence, unique names, literals, marks and folding."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaschedule import ir
from metaschedule.ir.printer import quote

i, j = ir.Var("i"), ir.Var("j")
A = ir.Buffer("A", (8,), "float32")
B = ir.Buffer("B", (8,), "float32")
x, y, z = (ir.Buffer(name, (), "int64")[()] for name in "xyz")
p, q, r = (ir.Buffer(name, (), "bool")[()] for name in "pqr")


def op(sign: str, a: ir.Expr, b: ir.Expr) -> ir.Binary:
    return ir.typed_binary(sign, a, b)


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (op("+", op("+", i, j), i), "i + j + i"),
        (op("+", i, op("+", j, i)), "i + (j + i)"),
        (op("-", i, op("-", j, i)), "i - (j - i)"),
        (op("*", op("+", i, j), i), "(i + j) * i"),
        (op("+", op("*", i, j), i), "i * j + i"),
        (op("//", i, op("%", j, i)), "i // (j % i)"),
        (op("*", i, ir.const(-1)), "i * -1"),
        (op("-", i, ir.const(-1)), "i - -1"),
        (op("&", op("|", i, j), op("^", i, j)), "(i | j) & (i ^ j)"),
        (op("<<", op("+", i, j), op(">>", i, j)), "i + j << (i >> j)"),
        (op("<", i, op("+", j, i)), "i < j + i"),
        (op("==", op("<", i, j), op("<", j, i)), "(i < j) == (j < i)"),
        (op("and", op("or", p, q), op("and", q, r)), "(p[()] or q[()]) and (q[()] and r[()])"),
        (op("or", op("and", p, q), r), "p[()] and q[()] or r[()]"),
        (op("and", ir.Unary("not", p, "bool"), q), "not p[()] and q[()]"),
        (ir.Unary("not", op("and", p, q), "bool"), "not (p[()] and q[()])"),
        (op("==", ir.Unary("not", p, "bool"), q), "(not p[()]) == q[()]"),
        (ir.Unary("not", op("==", p, q), "bool"), "not p[()] == q[()]"),
        (ir.Unary("not", ir.Unary("not", ir.const(True), "bool"), "bool"), "not not True"),
        (ir.Unary("-", op("+", i, j), "int64"), "-(i + j)"),
        (ir.Unary("-", ir.Unary("-", i, "int64"), "int64"), "--i"),
        (op("*", ir.Unary("-", i, "int64"), j), "-i * j"),
        (ir.Unary("-", ir.const(1), "int64"), "T.neg(1)"),
        (ir.Unary("-", ir.const(-1.5), "float32"), "T.neg(-1.5)"),
        (ir.Unary("-", ir.const(1, "int8"), "int8"), "T.neg(T.int8(1))"),
        (ir.Unary("~", ir.const(-1), "int64"), "~-1"),
        (op("min", op("max", i, ir.const(3)), j), "T.min(T.max(i, 3), j)"),
        (ir.Select(p, i, ir.const(3), "int64"), "T.select(p[()], i, 3)"),
        (ir.Cast(op("+", i, j), "int8"), 'T.cast(i + j, "int8")'),
        (ir.Call("pow", (ir.const(2.0), A[0]), "float32"), "T.pow(2.0, A[0])"),
        (A[i + 1], "A[i + 1]"),
        (x, "x[()]"),
    ],
)  # fmt: skip
def test_precedence(e: ir.Expr, text: str) -> None:
    assert str(e) == text
    ast.parse(text)


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (ir.const(3), "3"), (ir.const(3, "int8"), "T.int8(3)"), (ir.const(True), "True"),
        (ir.const(1.0), "1.0"), (ir.const(1.0, "float64"), "T.float64(1.0)"),
        (ir.const(0.1), "0.1"), (ir.const(0.1, "float16"), "T.float16(0.1)"),
        (ir.const(0.1, "float64"), "T.float64(0.1)"), (ir.const(3.0, "bfloat16"), "T.bfloat16(3.0)"),
        (ir.const(1e30), "1e+30"), (ir.const(-0.0), "-0.0"), (ir.const(2**24), "16777216"),
        (ir.const(math.inf), 'T.float32("inf")'), (ir.const(-math.inf, "float16"), 'T.float16("-inf")'),
        (ir.const(math.nan, "float64"), 'T.float64("nan")'),
        (A[0] + 1, "A[0] + 1.0"), (ir.Buffer("H", (), "float16")[()] * 0.1, "H[()] * 0.1"),
        (ir.Buffer("N", (), "int8")[()] * 2, "N[()] * 2"),
        (ir.const(2, "int8") + ir.const(3, "int8"), "T.int8(5)"),
        (op("+", ir.const(2, "int8"), ir.const(3, "int8")), "T.int8(2) + T.int8(3)"),
        (A[ir.const(0, "int32")], "A[T.int32(0)]"),
    ],
)  # fmt: skip
def test_literals(e: ir.Expr, text: str) -> None:
    assert str(e) == text


@given(st.text())
def test_strings_read_back(text: str) -> None:
    assert quote(text)[0] == quote(text)[-1] == '"'
    assert "\n" not in quote(text)
    assert ast.literal_eval(quote(text)) == text


def test_names_are_unique_where_scopes_overlap() -> None:
    a, b, c = (ir.Buffer(name, (4,), "float32") for name in ("i", "T", "3 x"))
    outer, inner, later = ir.Var("i"), ir.Var("i"), ir.Var("i_1")
    nest = ir.For(
        outer, ir.const(4), (ir.For(inner, ir.const(2), (ir.Store(c, (inner,), a[outer]),), "parallel"),)
    )
    sibling = ir.For(later, ir.const(4), (ir.Store(c, (later,), b[later]),))
    assert str(ir.Program("for", (a, b), (c,), (nest, sibling))) == (
        "@ms.program\n"
        "def for_(\n"
        '    i: T.Tensor((4,), "float32"),\n'
        '    T_: T.Tensor((4,), "float32"),\n'
        '    _3_x: T.Output((4,), "float32"),\n'
        "):\n"
        "    for i_1 in range(4):\n"
        "        for i_2 in T.parallel(2):\n"
        "            _3_x[i_2] = i[i_1]\n"
        "    for i_1 in range(4):\n"
        "        _3_x[i_1] = T_[i_1]"
    )


def test_a_fragment_names_what_is_free() -> None:
    assert str(ir.Store(B, (i,), A[ir.Var("i")])) == "B[i] = A[i_1]"


def test_else_if_chains_stay_flat() -> None:
    chain = ir.If(i < 3, (), (ir.If(i < 2, (), (ir.If(i < 1, (), (ir.Store(B, (i,), A[i]),)),)),))
    assert str(chain) == (
        "if i < 3:\n    pass\nelif i < 2:\n    pass\nelif i < 1:\n    pass\nelse:\n    B[i] = A[i]"
    )


def nest(*, deep: int) -> tuple[ir.Program, list[ir.For], ir.Store]:
    store = ir.Store(B, (ir.const(0),), A[0])
    body: tuple[ir.Stmt, ...] = (store,)
    loops: list[ir.For] = []
    for n in range(deep):
        loops.insert(0, ir.For(ir.Var(f"i{n}"), ir.const(2), body))
        body = (loops[0],)
    return ir.Program("f", (A,), (B,), body), loops, store


def test_marked_loops_get_a_line_of_their_own() -> None:
    program, loops, store = nest(deep=3)
    assert "for i2, i1, i0 in T.grid(2, 2, 2):" in str(program)
    assert ir.underline(program, {loops[1]: "this loop", store: "this store", loops[0]: ""}) == (
        "@ms.program\n"
        'def f(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):\n'
        "    for i2 in range(2):\n"
        "        for i1 in range(2):\n"
        "        ^^^^^^^^^^^^^^^^^^^  this loop\n"
        "            for i0 in range(2):\n"
        "                B[0] = A[0]\n"
        "                ^^^^^^^^^^^  this store"
    )


def test_marked_parameters_iterators_and_predicates() -> None:
    v = ir.Var("v")
    it, condition = ir.Iter(v, ir.const(8)), i < 7
    block = ir.Block(
        "b",
        (it,),
        (i,),
        (A.region(v),),
        (B.region(v),),
        (ir.Store(B, (v,), A[v]),),
        predicate=(condition,),
    )
    program = ir.Program("f", (A,), (B,), (ir.For(i, ir.const(8), (block,)),))
    assert ir.underline(program, {A: "input", it: "iterator", condition: "predicate"}) == (
        "@ms.program\n"
        "def f(\n"
        '    A: T.Tensor((8,), "float32"),\n'
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  input\n"
        '    B: T.Output((8,), "float32"),\n'
        "):\n"
        "    for i in range(8):\n"
        '        with T.block("b"):\n'
        "            v = T.spatial(8, i)\n"
        "            ^^^^^^^^^^^^^^^^^^^  iterator\n"
        "            T.where(i < 7)\n"
        "            ^^^^^^^^^^^^^^  predicate\n"
        "            T.reads(A[v])\n"
        "            T.writes(B[v])\n"
        "            B[v] = A[v]"
    )


def test_long_programs_are_folded_around_the_marks() -> None:
    stores = [ir.Store(B, (ir.const(n % 8),), ir.const(float(n))) for n in range(60)]
    program = ir.Program("f", (), (B,), (ir.For(i, ir.const(2), tuple(stores)),))
    assert ir.underline(program, {stores[30]: "this"}) == (
        "@ms.program\n"
        'def f(B: T.Output((8,), "float32")):\n'
        "    for i in range(2):\n"
        "        ...\n"
        "        B[3] = 27.0\n"
        "        B[4] = 28.0\n"
        "        B[5] = 29.0\n"
        "        B[6] = 30.0\n"
        "        ^^^^^^^^^^^  this\n"
        "        B[7] = 31.0\n"
        "        B[0] = 32.0\n"
        "        B[1] = 33.0\n"
        "        ..."
    )
    assert "..." not in ir.underline(program, {stores[30]: "this"}, context=100)


def test_tables_and_annotations() -> None:
    table = ir.Buffer(
        "W", (2, 2), "float16", "shared", data=np.array([[1, np.nan], [-np.inf, 0.1]], "float16")
    )
    program = ir.Program(
        "f", (), (B,), (), (table,), {"a": [1, (2.5, None)], "b": {"c": math.nan, 'd"': True}}
    )
    assert str(program).splitlines()[2:] == [
        '    T.annotate({"a": (1, (2.5, None)), "b": {"c": T.float64("nan"), "d\\"": True}})',
        '    W = T.table([1.0, "nan", "-inf", 0.1], (2, 2), "float16", scope="shared")',
        "    pass",
    ]


def test_lines_carry_their_node() -> None:
    program, loops, store = nest(deep=2)
    lines = list(ir.program_lines(program))
    assert [line.node for line in lines] == [None, program, loops[0], store]
    assert repr(program) == "<Program f(A: float32[8]) -> B: float32[8]>"
