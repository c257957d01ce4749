"""Operators build typed nodes; integers fold, floats stay as written."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metaschedule import ir

i = ir.Var("i")
x = ir.Buffer("X", (), "float32")[()]
h = ir.Buffer("H", (), "float16")[()]
n = ir.Buffer("N", (), "int32")[()]
c = ir.Buffer("C", (), "bool")[()]

BINARY: list[tuple[Callable[[Any, Any], Any], str]] = [
    (operator.add, "+"), (operator.sub, "-"), (operator.mul, "*"), (operator.truediv, "/"),
    (operator.floordiv, "//"), (operator.mod, "%"), (operator.lt, "<"), (operator.le, "<="),
    (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "=="), (operator.ne, "!="),
]  # fmt: skip


@pytest.mark.parametrize(("function", "op"), BINARY)
def test_operators_build_nodes(function: Callable[[Any, Any], Any], op: str) -> None:
    for e, left, right in ((function(x, 2), x, None), (function(2, x), None, x)):
        assert isinstance(e, ir.Binary)
        if op in ("<", "<=", ">", ">=") and right is x:  # Python turns 2 < x into x > 2
            assert e.op == {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
            assert e.a is x
        elif op not in ("==", "!="):
            assert e.op == op
            assert (e.a is x) == (left is x)
            assert (e.b is x) == (right is x)
        assert e.dtype == ("bool" if op in ir.expr.COMPARISONS else "float32")


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (operator.and_, "&"), (operator.or_, "|"), (operator.xor, "^"),
        (operator.lshift, "<<"), (operator.rshift, ">>"),
    ],
)  # fmt: skip
def test_bitwise_operators(function: Callable[[Any, Any], Any], op: str) -> None:
    assert str(function(n, 3)) == f"N[()] {op} 3"
    assert str(function(3, n)) == f"3 {op} N[()]"
    assert function(n, 3).dtype == "int32"
    with pytest.raises(TypeError, match="takes integers, got float32"):
        function(x, x)


def test_bitwise_operators_on_conditions_are_logical() -> None:
    assert str(c & c) == "C[()] and C[()]"
    assert str(c | c) == "C[()] or C[()]"
    assert str(c ^ c) == "C[()] != C[()]"
    assert str(~c) == "not C[()]"
    assert str(~n) == "~N[()]"


def test_operands_are_promoted() -> None:
    mixed = x + n
    assert isinstance(mixed, ir.Binary)
    assert mixed.dtype == "float64"
    assert isinstance(mixed.a, ir.Cast)
    assert isinstance(mixed.b, ir.Cast)
    assert (h + x).dtype == "float32"
    assert (n + i).dtype == "int64"
    assert (n / 2).dtype == "float64"
    assert (h * 2.5).dtype == "float16"
    assert (np.float64(2) * x).dtype == "float64"
    assert (c + 1).dtype == "int64"


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (i + 0, "i"), (0 + i, "i"), (i - 0, "i"), (i * 1, "i"), (1 * i, "i"), (i // 1, "i"),
        (i * 0, "0"), (0 * i, "0"), (i % 1, "0"), (ir.const(7) // 2, "3"), (ir.const(-7) // 2, "-4"),
        (ir.const(-7) % 4, "1"), (ir.const(7) // 0, "7 // 0"), (ir.const(2) < 3, "True"),
        (ir.minimum(ir.const(2), 3), "2"), (ir.maximum(2, ir.const(3)), "3"),
        ((i < 3) & True, "i < 3"), ((i < 3) | True, "True"), (True & (i < 3), "i < 3"),
        (False & (i < 3), "False"), (ir.const(2**63 - 1) + 1, "9223372036854775807 + 1"),
        (x + 0, "X[()] + 0.0"), (x * 1, "X[()] * 1.0"), (ir.const(1.0) + 2.0, "1.0 + 2.0"),
        (-ir.const(3), "-3"), (-ir.const(1.5), "-1.5"), (-i, "-i"), (~ir.const(True), "False"),
        (ir.const(100, "int8") + ir.const(100, "int8"), "T.int8(100) + T.int8(100)"),
    ],
)  # fmt: skip
def test_folding(e: ir.Expr, text: str) -> None:
    assert str(e) == text


def test_the_parser_gets_nothing_folded() -> None:
    assert str(ir.typed_binary("+", i, 0)) == "i + 0"
    assert str(ir.typed_binary("*", 2, 3)) == "2 * 3"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: c + c, r"`\+` on two bools: cast them to an integer dtype first"),
        (lambda: -c, "`-` on a bool: cast it to an integer dtype first"),
        (lambda: ~x, "`~` takes an integer, got float32"),
        (lambda: ir.unary("not", x), "`not` takes a condition, got float32"),
        (lambda: ir.typed_binary("and", x, x), "`and` takes two conditions, got float32"),
        (lambda: ir.typed_binary("<>", x, x), "unknown operator '<>'"),
        (lambda: ir.unary("!", x), "unknown operator '!'"),
        (lambda: ir.select(x, 1, 2), "select's condition must be a bool, got float32"),
        (lambda: ir.call("gamma", x), "unknown function 'gamma'"),
        (lambda: ir.call("exp", x, x), r"exp takes 1 argument\(s\), got 2"),
        (lambda: ir.call("exp", n), "exp takes a float, got int32: cast it first"),
        (lambda: ir.const(1.5, "int8"), "1.5 is not an integer, and the constant is to be int8"),
        (lambda: ir.const(300, "int8"), r"300 does not fit in int8 \(-128 to 127\)"),
        (lambda: ir.const(2, "bool"), "2 is not a bool"),
        (lambda: ir.as_expr("x"), "expected an expression or a number, got str: 'x'"),  # pyright: ignore[reportArgumentType]
        (lambda: ir.cast(x, "float33"), "unknown dtype 'float33'"),
        (lambda: bool(i < 3), "the truth of an expression is known only when the program runs"),
        (lambda: ir.Buffer("A", (4,))[0, 1], r"A has 1 dimension\(s\), indexed with 2"),
        (lambda: ir.Buffer("A", (4,))[1.5], "index of A must be an integer, got float32: 1.5"),
        (lambda: ir.Buffer("A", (-1,)), "A: negative extent -1"),
        (lambda: ir.Buffer("A", (i,)), "A: every extent of a shape must be a known integer"),  # pyright: ignore[reportArgumentType]
        (lambda: ir.Buffer("A", (4,), scope="heap"), "buffer A: unknown scope 'heap'"),
        (lambda: ir.Buffer("A", (4,), data=np.zeros(3)), r"table A: data of shape \(3,\), not \(4,\)"),
    ],
)  # fmt: skip
def test_mistakes(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError), match=message):
        make()


def test_constants() -> None:
    assert ir.const(np.int8(3)).dtype == "int8"
    assert ir.const(np.float64(3)).dtype == "float64"
    assert ir.const(0.1, "float32").value == float(np.float32(0.1))
    assert math.isnan(ir.const(math.nan, "float16").value)
    assert ir.const(1, "float32").value == 1.0
    assert isinstance(ir.const(1, "float32").value, float)
    assert ir.as_int(ir.const(3)) == 3
    assert ir.as_int(ir.const(3.0)) is None
    assert ir.as_int(ir.const(True)) is None


def test_calls_and_conversions() -> None:
    assert ir.call("isnan", x).dtype == "bool"
    assert ir.call("abs", n).dtype == "int32"
    assert str(abs(n)) == "T.abs(N[()])"
    assert str(x**2) == "T.pow(X[()], 2.0)"
    assert str(2**x) == "T.pow(2.0, X[()])"
    assert ir.cast(x, "float32") is x
    assert str(x.astype("int8")) == 'T.cast(X[()], "int8")'
    assert str(ir.all_of([i < 3, i > 1])) == "i < 3 and i > 1"
    assert str(ir.all_of([])) == "True"
    assert isinstance(ir.select(True, x, 0), ir.Select)
    assert isinstance(ir.const(1), ir.Const)
