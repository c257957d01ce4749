"""Reductions: whole bodies, inside expressions, over axes of variable extent."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from metaschedule import te
from metaschedule.interpreter import interpret
from metaschedule.ir import (
    Program,
    blocks,
)
from tests.te.helpers import ROWS, X, ints, run

# --- reductions ---


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "argmax", "argmin"])
def test_reductions(op: str, dtype: str) -> None:
    x = te.placeholder((4, 3, 5), dtype, name="x")
    j, k = te.reduce_axis(3, name="j"), te.reduce_axis((0, 5), name="k")
    y = te.compute((4,), lambda i: getattr(te, op)(x[i, j, k], axis=[j, k]))
    data = ints(4, 3, 5, dtype=dtype) // 2 if op == "prod" else ints(4, 3, 5, dtype=dtype)
    flat = data.reshape(4, -1)
    keep = {"dtype": dtype} if op in ("sum", "prod") else {}
    want = getattr(np, op)(flat, axis=1, **keep)
    got = run(te.program([x], [y]), data)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_reductions_of_nothing() -> None:
    x = te.placeholder((3, 0), name="x")
    k = te.reduce_axis(0)
    for op, want in [("sum", 0), ("prod", 1), ("min", math.inf), ("max", -math.inf)]:
        y = te.compute((3,), lambda i, op=op: getattr(te, op)(x[i, k], axis=k))
        program = te.program([x], [y])
        assert [b.name for b in blocks(program)] == ["compute_init", "compute"]
        assert run(program, np.zeros((3, 0), np.float32)).tolist() == [want] * 3
    with pytest.raises(ValueError, match="argmax of an empty axis"):
        te.argmax(x[0, k], axis=k)


def test_identities_of_integers_are_their_limits() -> None:
    x = te.placeholder((0,), "int8", name="x")
    k = te.reduce_axis(0)
    low, high = te.compute((), lambda: (te.min(x[k], axis=k), te.max(x[k], axis=k)))
    results = interpret(te.program([x], [low, high]), np.zeros(0, np.int8))
    assert [int(r[()]) for r in results] == [127, -128]


NAN_ROWS = np.array(
    [
        [1, 5, 5, 2],
        [np.nan, 9, np.nan, 1],
        [-np.inf] * 4,
        [3, np.nan, np.inf, -np.inf],
        [np.inf] * 4,
    ]
)


@pytest.mark.parametrize("op", ["min", "max", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_as_in_numpy(op: str, dtype: str) -> None:
    x = te.placeholder((5, 4), dtype, name="x")
    k = te.reduce_axis(4)
    y = te.compute((5,), lambda i: getattr(te, op)(x[i, k], axis=k))
    rows = NAN_ROWS.astype(dtype)
    np.testing.assert_array_equal(run(te.program([x], [y]), rows), getattr(np, op)(rows, axis=1))


@pytest.mark.parametrize("better", ["argmax", "argmin"])
def test_positions_combine_in_any_order(better: str) -> None:
    """The combiner is commutative and has an identity: it picks from a total order."""
    x = te.placeholder((9,), name="x")
    k = te.reduce_axis(9)
    component: Any = getattr(te, better)(x[k], axis=k)
    reduction = component.reduction
    pairs = te.placeholder((3,), name="v"), te.placeholder((3,), "int64", name="i")

    def combined(a: int | None, b: int | None) -> Program:
        def pair(n: int | None) -> Any:
            if n is None:
                return reduction.reducer.identities(reduction)
            return pairs[0][n], pairs[1][n]

        outs = te.compute((), lambda: tuple(reduction.reducer.combine_values(reduction, pair(a), pair(b))))
        return te.program(pairs, outs)

    def result(program: Program, values: Any) -> list[str]:
        v, i = np.array([p[0] for p in values], np.float32), np.array([p[1] for p in values])
        return [repr(r[()]) for r in interpret(program, v, i)]

    ab, ba, a_id = combined(0, 1), combined(1, 0), combined(0, None)
    some = [(v, i) for i, v in enumerate([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1.0, np.nan])]
    for p in some:
        assert result(a_id, [p, p, p])[1] == repr(np.int64(p[1]))
        for q in some:
            assert result(ab, [p, q, q]) == result(ba, [p, q, q])


def test_position_dtype_and_its_value_buffer() -> None:
    k = te.reduce_axis(7)
    y = te.compute((5,), lambda i: te.argmax(X[i, k], axis=k, dtype="int32"), name="best")
    program = te.program([X], [y])
    assert [(b.name, b.dtype) for b in program.allocs] == [("best_value", "float32")]
    assert run(program, ROWS).dtype == np.int32


def test_axis_from_low_to_high() -> None:
    k = te.reduce_axis((2, 6))
    y = te.compute((5,), lambda i: te.sum(X[i, k], axis=k))
    np.testing.assert_array_equal(run(te.program([X], [y]), ROWS), ROWS[:, 2:6].sum(1))
    z = te.compute((5,), lambda i: te.argmin(X[i, k], axis=k))
    np.testing.assert_array_equal(run(te.program([X], [z]), ROWS), ROWS[:, 2:6].argmin(1))


def test_user_defined_combiners() -> None:
    k = te.reduce_axis(7)
    largest = te.reducer(lambda a, b: te.maximum(a, b), lambda dtype: -100, name="largest")
    y = te.compute((5,), lambda i: largest(te.abs(X[i, k]), axis=k))
    np.testing.assert_array_equal(run(te.program([X], [y]), ROWS), np.abs(ROWS).max(1))

    product = te.reducer(  # of complex numbers
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
        lambda real, imaginary: (1, 0),
        name="product",
    )
    pair = te.compute((5,), lambda i: product((X[i, k], te.constant(1.0)), axis=k), name="p")
    real, imaginary = interpret(te.program([X], pair), ROWS)
    want = np.prod(ROWS + 1j, axis=1)
    np.testing.assert_array_equal(real, want.real)
    np.testing.assert_array_equal(imaginary, want.imag)


def test_combiners_are_checked() -> None:
    k = te.reduce_axis(7)
    with pytest.raises(TypeError, match=r"wide: combine gives float64 where the value is float32"):
        te.reducer(lambda a, b: te.cast(a + b, "float64"), lambda d: 0, name="wide")(X[0, k], k)
    with pytest.raises(ValueError, match=r"short: combine must give 2 value\(s\), gave 1"):
        te.reducer(lambda a, b: a[0], lambda d, e: (0, 0), name="short")((X[0, k], X[1, k]), k)


# --- reductions inside expressions ---


def test_a_softmax_in_one_expression() -> None:
    k = te.reduce_axis(7)

    def element(i: Any, j: Any) -> Any:
        top = te.max(X[i, k], axis=k)
        return te.exp(X[i, j] - top) / te.sum(te.exp(X[i, k] - top), axis=k)

    program = te.program([X], [te.compute((5, 7), element, name="softmax")])
    shapes = {b.name: b.shape for b in program.allocs}
    assert shapes["softmax_sum"] == (5,)  # once per row
    powers = np.exp(ROWS - ROWS.max(1, keepdims=True))
    np.testing.assert_allclose(run(program, ROWS), powers / powers.sum(1, keepdims=True), rtol=1e-6)


def test_a_hoisted_reduction_used_twice_is_computed_once() -> None:
    k = te.reduce_axis(7)

    def relu(i: Any) -> Any:
        total = te.sum(X[i, k], axis=k)
        return te.select(total > 0, total, 0)

    program = te.program([X], [te.compute((5,), relu)])
    assert len(blocks(program)) == 2
    np.testing.assert_array_equal(run(program, ROWS), np.maximum(ROWS.sum(1), 0))


def test_a_hoisted_reduction_reads_only_what_the_expression_reads() -> None:
    k = te.reduce_axis(7)
    y = te.compute((6,), lambda i: te.select(i > 0, te.max(X[i - 1, k], axis=k), 0.0))
    got = run(te.program([X], [y]), ROWS)
    np.testing.assert_array_equal(got, [0, *ROWS.max(1)])
    starts = te.placeholder((5,), "int32", name="starts")

    def ragged(i: Any) -> Any:
        length = te.reduce_axis((starts[i - 1], starts[i]))
        return te.select(i > 0, te.sum(X[0, length], axis=length), -1.0)

    z = te.compute((5,), ragged)
    at = np.array([0, 2, 2, 6, 7], np.int32)
    want = [-1, *[ROWS[0, a:b].sum() for a, b in pairwise(at)]]
    np.testing.assert_array_equal(run(te.program([X, starts], [z]), ROWS, at), want)


def test_nested_reductions() -> None:
    x = te.placeholder((4, 3, 5), name="x")
    j, k = te.reduce_axis((1, 3), name="j"), te.reduce_axis(5, name="k")
    y = te.compute((4,), lambda i: te.sum(te.max(x[i, j, k], axis=k) * 2.0, axis=j))
    data = ints(4, 3, 5)
    want = (data.max(2) * 2)[:, 1:].sum(1)
    np.testing.assert_array_equal(run(te.program([x], [y]), data), want)


def test_a_reduction_as_an_index() -> None:
    k = te.reduce_axis(7)
    y = te.compute((5,), lambda i: X[i, te.argmax(X[i, k], axis=k)])
    np.testing.assert_array_equal(run(te.program([X], [y]), ROWS), ROWS.max(1))


def test_one_axis_in_nested_reductions() -> None:
    k = te.reduce_axis(5)
    y = te.compute((), lambda: te.sum(X[k, 0] * te.max(X[k, 1], axis=k), axis=k))
    want = (ROWS[:, 0] * ROWS[:, 1].max()).sum()
    assert run(te.program([X], [y]), ROWS)[()] == want


# --- extents that are expressions ---


def test_triangular_sums() -> None:
    def element(i: Any) -> Any:
        k = te.reduce_axis(i + 1)
        return te.sum(X[i, k], axis=k)

    program = te.program([X], [te.compute((5,), element)])
    assert len(blocks(program)) == 1  # i + 1 is at least 1: no separate init
    np.testing.assert_array_equal(run(program, ROWS), [ROWS[i, : i + 1].sum() for i in range(5)])


def test_an_axis_bounded_by_another() -> None:
    def element() -> Any:
        i = te.reduce_axis((1, 5), name="i")
        k = te.reduce_axis(i, name="k")
        return te.sum(X[i, k], axis=[i, k])

    program = te.program([X], [te.compute((), element)])
    assert run(program, ROWS)[()] == sum(ROWS[i, k] for i in range(1, 5) for k in range(i))
    i = te.reduce_axis(5, name="i")
    k = te.reduce_axis(i, name="k")
    with pytest.raises(ValueError, match="bounds of axis k use an axis given after it"):
        te.sum(X[i, k], axis=[k, i])


def test_compressed_rows_some_empty() -> None:
    data, columns = te.placeholder((6,), name="data"), te.placeholder((6,), "int32", name="columns")
    starts, x = te.placeholder((5,), "int32", name="starts"), te.placeholder((3,), name="x")

    def element(i: Any) -> Any:
        k = te.reduce_axis((starts[i], starts[i + 1]))
        return te.sum(data[k] * x[columns[k]], axis=k)

    y = te.compute((4,), element, name="y")
    program = te.program([data, columns, starts, x], [y])
    assert [b.name for b in blocks(program)] == ["y_init", "y"]
    values, at = ints(6), np.array([0, 2, 1, 2, 0, 1], np.int32)
    rows, vector = np.array([0, 2, 2, 5, 6], np.int32), ints(3, seed=1)
    want = [(values[a:b] * vector[at[a:b]]).sum() for a, b in pairwise(rows)]
    np.testing.assert_array_equal(run(program, values, at, rows, vector), want)
