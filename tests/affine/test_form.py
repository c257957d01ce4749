"""Forms and constraints mean what the expressions mean that they were read from, at every point."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from metaschedule import ir
from metaschedule.affine.constraint import constraints_of, upper_limits
from metaschedule.affine.form import Form, form_of
from tests.affine.nests import python_text

VARIABLES = (ir.Var("i"), ir.Var("j"), ir.Var("k"))
NAMES = {v: v.name for v in VARIABLES}
POINTS: list[dict[str, int]] = [
    dict(zip("ijk", p, strict=True)) for p in itertools.product((0, 1, 5), (0, 3), (0, 2))
]


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> ir.Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*VARIABLES, *[ir.const(n) for n in (-3, 0, 1, 4)]]))
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]))
    a = draw(indices(depth - 1))
    if op in ("//", "%"):
        return ir.binary(op, a, ir.const(draw(st.integers(1, 5))))
    return ir.binary(op, a, draw(indices(depth - 1)))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 1) -> ir.Expr:
    if depth and draw(st.booleans()):
        return ir.binary("and", draw(conditions(depth - 1)), draw(conditions(depth - 1)))
    op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
    return ir.binary(op, draw(indices(2)), draw(indices(1)))


def value(e: ir.Expr, point: dict[str, int]) -> int:
    return eval(python_text(e, NAMES), {}, point)


def total(form: Form, point: dict[str, int]) -> int:
    return form.const + sum(c * value(x, point) for x, c in form.terms)


@given(indices())
def test_a_form_is_the_sum_that_the_expression_is(e: ir.Expr) -> None:
    form = form_of(e)
    assert all(total(form, p) == value(e, p) for p in POINTS)
    assert not any(isinstance(x, ir.Binary) and x.op in "+-" for x, _ in form.terms)


@given(conditions())
def test_constraints_hold_where_the_condition_does(test: ir.Expr) -> None:
    found = constraints_of(test)
    for p in POINTS if found is not None else ():
        assert all(c.low <= total(c.form, p) <= c.high for c in found or ()) == bool(value(test, p))


def test_what_is_no_conjunction_of_sums_is_no_constraint() -> None:
    i, j, _ = VARIABLES
    assert constraints_of(ir.binary("!=", i, ir.const(3))) is None
    assert constraints_of(ir.binary("or", i < 3, j < 3)) is None


def test_upper_limits_are_those_of_single_variables() -> None:
    i, j, k = VARIABLES
    found = upper_limits((i + 1 < 8, j * 2 < 9, ir.binary("and", k < 5, j >= 0)))
    assert found == {i: 7, j: 5, k: 5}
    assert upper_limits((i * 2 + j * 3 < 8, j < 9, k - i < 2)) == {i: 4, j: 3}
