"""Layouts of buffers: one spelling, printing and hash, what is refused, what a parameter's offset means."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import ir, te
from metaschedule.errors import ScriptError, VerifyError
from metaschedule.interpreter import InterpreterError


def double(layout: ir.Layout | None = None, of_result: ir.Layout | None = None) -> ms.Program:
    x = te.placeholder((4, 6), name="x", layout=layout)
    return te.program([x], te.compute((4, 6), lambda i, j: x[i, j] * 2.0, name="y", layout=of_result))


SMALL = st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=0, max_size=3)


@given(SMALL)
def test_reach_and_overlap_are_what_enumeration_finds(dimensions: list[tuple[int, int]]) -> None:
    shape, strides = [n for n, _ in dimensions], [s for _, s in dimensions]
    points = itertools.product(*[range(n) for n in shape])
    found = [sum(i * s for i, s in zip(point, strides)) for point in points]
    assert ir.reach(shape, strides) == (min(found), max(found) + 1)
    assert ir.may_overlap(shape, strides) == (len(set(found)) < len(found))
    memory = np.arange(max(found) - min(found) + 1)
    assert ir.strided_array(memory, -min(found), shape, strides).ravel().tolist() == [
        at - min(found) for at in found
    ]


@given(SMALL)
def test_strides_that_mean_the_same_are_spelled_the_same(dimensions: list[tuple[int, int]]) -> None:
    shape = tuple(n for n, _ in dimensions)
    strides = tuple(s for _, s in dimensions)
    other = tuple(s if n > 1 else 99 for n, s in dimensions)
    assert ir.normal_strides(shape, strides) == ir.normal_strides(shape, other)
    a, b = ir.Buffer("a", shape, layout=ir.Layout(strides)), ir.Buffer("b", shape, layout=ir.Layout(other))
    assert a.layout == b.layout
    assert a.strides == b.strides


def test_a_dense_layout_is_none() -> None:
    assert double(ir.Layout((6, 1))).inputs[0].layout is None
    assert str(double(ir.Layout((6, 1)))) == str(double())
    assert ms.structural_hash(double(ir.Layout((6, 1)))) == ms.structural_hash(double())


def test_strides_are_part_of_a_program_and_the_address_of_a_parameter_is_not() -> None:
    padded = double(ir.Layout((8, 1)))
    assert 'x: T.Tensor((4, 6), "float32", strides=(8, 1))' in str(padded)
    assert ms.structural_hash(padded) != ms.structural_hash(double())
    assert ms.structural_hash(padded) != ms.structural_hash(double(ir.Layout((9, 1))))
    assert ms.structural_hash(padded) == ms.structural_hash(double(ir.Layout((8, 1), offset=16)))


@pytest.mark.parametrize(
    "layout", [ir.Layout((8, 1)), ir.Layout((1, 4)), ir.Layout((-12, 2)), ir.Layout((0, 1))]
)
def test_programs_print_and_parse(layout: ir.Layout) -> None:
    program = double(layout, ir.Layout((1, 5)))
    again = ms.parse(str(program))
    assert ms.structural_equal(program, again)
    assert str(again) == str(program)


def test_intermediate_buffers_have_offsets() -> None:
    text = """
@ms.program
def backwards(X: T.Tensor((8,), "float32"), Y: T.Output((8,), "float32")):
    B = T.alloc((8,), "float32", strides=(-2,), offset=17)
    for i in range(8):
        B[i] = X[i]
    for i in range(8):
        Y[i] = B[i] + 1.0
"""
    program = ms.parse(text)
    assert str(program).strip() == text.strip()
    assert program.allocs[0].room == 18
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(ms.interpret(program, x), x + 1)
    assert ms.build(ms.Schedule(program))(x).tolist() == (x + 1).tolist()


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("strides=(-2,), offset=13", "buffer B reaches 1 element"),
        ("strides=(0,)", "elements of B, which is no input, share memory"),
        ("strides=(1, 1)", "strides (1, 1) for shape (8,)"),
        ("strides=(1.5,)", "a stride must be a known integer"),
        ("strides=(4611686018427387904,)", "do not fit 63 bits"),
        ("offset=-1", "buffer B reaches 1 element"),
    ],
)
def test_impossible_layouts_are_refused(declaration: str, message: str) -> None:
    text = f"""
def wrong(X: T.Tensor((8,), "float32"), Y: T.Output((8,), "float32")):
    B = T.alloc((8,), "float32", {declaration})
    for i in range(8):
        B[i] = X[i]
        Y[i] = B[i]
"""
    with pytest.raises((VerifyError, ScriptError), match=re.escape(message)):
        ms.parse(text)


def test_outputs_whose_elements_share_memory_are_refused() -> None:
    with pytest.raises(VerifyError, match="elements of y, which is no input, share memory"):
        double(None, ir.Layout((5, 1)))


def test_a_parameter_has_no_offset() -> None:
    x, y = ir.Buffer("x", (4,), layout=ir.Layout((1,), 3)), ir.Buffer("y", (4,))
    i = ms.ir.Var("i")
    body = (ms.ir.For(i, ms.ir.const(4), (ms.ir.Store(y, (i,), x[i]),)),)
    with pytest.raises(VerifyError, match="parameter x has offset 3"):
        ms.verify(ms.Program("copy", (x,), (y,), body))


def test_interpreter_refuses_values_that_cannot_share_memory() -> None:
    program = double(ir.Layout((0, 1)))
    row = np.arange(6, dtype=np.float32)
    given = np.broadcast_to(row, (4, 6))
    np.testing.assert_array_equal(ms.interpret(program, given), given * 2)
    with pytest.raises(InterpreterError, match="share memory, and the given ones differ"):
        ms.interpret(program, np.arange(24, dtype=np.float32).reshape(4, 6))


def test_tables_are_dense() -> None:
    with pytest.raises(ValueError, match="embedded values are dense"):
        ir.Buffer("t", (2,), data=np.zeros(2, np.float32), layout=ir.Layout((2,)))
