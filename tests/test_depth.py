"""Programs deeper than Python's stack: shown, hashed, and refused with a reason where they come in. What is
not too deep goes all the way, also for a caller that has used a good part of the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import ir, te
from metaschedule.ir.depth import MOST_DEPTH, MOST_NESTED
from metaschedule.schedule import Schedule

X, Y = ir.Buffer("X", (8,), "float32"), ir.Buffer("Y", (8,), "float32")
DATA = np.linspace(0, 1, 8, dtype="float32")
CALLERS = 200  # stack frames of the caller: torch.compile takes 150
Grow = Callable[[ir.Expr, ir.Expr, ir.Var], ir.Expr]

EXPRESSIONS: dict[str, Grow] = {
    "left": lambda e, x, v: e + x,
    "right": lambda e, x, v: x + e,
    "minimum": lambda e, x, v: ir.minimum(x, e),
    "call": lambda e, x, v: ir.call("abs", e),
    "negation": lambda e, x, v: ir.Unary("-", e, e.dtype),
    "select": lambda e, x, v: ir.select(v < 4, x, e),
    "condition": lambda e, x, v: ir.select(e < x, x, e if isinstance(e, ir.Load) else x),
    "cast": lambda e, x, v: ir.cast(ir.cast(e, "float64"), "float32"),
}


def stored(grow: Grow, depth: int) -> ms.Program:
    """A program whose only value is grown until it is so deep."""
    i, v = ir.Var("i"), ir.Var("v")
    x = value = last = X[v]
    while ir.height(value) <= min(depth, MOST_DEPTH):
        value = grow(last := value, x, v)
    value = last if depth <= MOST_DEPTH else value
    for _ in range(max(0, depth - MOST_DEPTH)):
        value = grow(value, x, v)
    reads, writes = (X.region((v, 1)),), (Y.region((v, 1)),)
    block = ir.Block(
        "b", (ir.Iter(v, ir.const(8), "spatial"),), (i,), reads, writes, (ir.Store(Y, (v,), value),)
    )
    return ir.Program("deep", (X,), (Y,), (ir.For(i, ir.const(8), (block,)),))


def nested(kind: str, depth: int) -> ms.Program:
    program = stored(EXPRESSIONS["left"], 3)
    (body,) = program.body
    for n in range(depth - 3):
        if kind == "for":
            body = ir.For(ir.Var(f"j{n}"), ir.const(1), (body,))
        elif kind == "if":
            body = ir.If(ir.Const(True, "bool"), (body,), ())
        else:
            body = ir.If(ir.Const(False, "bool"), (), (body,))
    return ir.replace_fields(program, body=(body,))


def outcomes(program: ms.Program) -> dict[str, Any]:
    """What each way of using a program gives."""
    return {
        "parse": lambda: ms.structural_equal(ms.parse(str(program)), program),
        "verify": lambda: ms.verify(program),
        "interpret": lambda: ms.interpret(program, DATA),
        "schedule": lambda: Schedule(program).program,
        "build as written": lambda: ms.build(Schedule(program))(DATA),
        "build": lambda: ms.build(program)(DATA),
    }


def deeper(call: Callable[[], Any], frames: int) -> Any:
    return deeper(call, frames - 1) if frames else call()


@pytest.mark.parametrize("grow", EXPRESSIONS)
@pytest.mark.parametrize("depth", [10, MOST_DEPTH])
def test_expressions_that_are_not_too_deep(grow: str, depth: int) -> None:
    program = stored(EXPRESSIONS[grow], depth)
    results = {name: deeper(call, CALLERS) for name, call in outcomes(program).items()}
    assert results["parse"] is True
    np.testing.assert_array_equal(results["build as written"], results["interpret"])
    np.testing.assert_array_equal(results["build"], results["interpret"])


@pytest.mark.parametrize("kind", ["for", "if", "else"])
@pytest.mark.parametrize("depth", [10, MOST_NESTED - 10])  # the default schedule adds loops
def test_statements_that_are_not_too_deep(kind: str, depth: int) -> None:
    program = nested(kind, depth)
    results = {name: deeper(call, CALLERS) for name, call in outcomes(program).items()}
    assert results["parse"] is True
    np.testing.assert_array_equal(results["build as written"], results["interpret"])
    np.testing.assert_array_equal(results["build"], results["interpret"])


def check_refused(program: ms.Program, reason: str) -> None:
    assert len(str(program)) > 400
    assert ms.structural_hash(program) == ms.structural_hash(program)
    calls = outcomes(program)
    with pytest.raises((ms.ScriptError, ms.VerifyError)):
        calls.pop("parse")()
    for call in calls.values():
        with pytest.raises(ms.VerifyError, match=reason) as error:
            call()
        assert len(str(error.value)) < 30_000


@pytest.mark.parametrize("grow", EXPRESSIONS)
@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 1000, 20_000])
def test_expressions_that_are_too_deep(grow: str, depth: int) -> None:
    check_refused(stored(EXPRESSIONS[grow], depth), "expressions are more than 200 inside each other")


@pytest.mark.parametrize("kind", ["for", "if", "else"])
@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 200, 20_000])
def test_statements_that_are_too_deep(kind: str, depth: int) -> None:
    check_refused(nested(kind, depth), "statements are more than 90 inside each other")


def test_te_cuts_what_is_too_deep() -> None:
    x = te.placeholder((8,), name="x")

    def long(i: Any) -> Any:
        value = x[i]
        for _ in range(2000):
            value = value + x[i]
        return value

    program = te.program([x], [te.compute((8,), long)])
    np.testing.assert_allclose(ms.build(program)(DATA), 2001 * DATA, rtol=1e-4)
