"""Tensor expressions: the programs they become and what those compute."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from metaschedule import ir, te
from metaschedule.interpreter import interpret
from metaschedule.script import parse
from tests.te.helpers import ROWS, X, run, signature

# --- programs ---


def test_a_matmul_is_one_block() -> None:
    y = te.placeholder((7, 3), name="Y")
    k = te.reduce_axis(7, name="k")
    z = te.compute((5, 3), lambda i, j: te.sum(X[i, k] * y[k, j], axis=k), name="Z")
    assert str(te.program([X, y], [z], name="matmul")) == inspect.cleandoc(
        """
        @ms.program
        def matmul(
            X: T.Tensor((5, 7), "float32"),
            Y: T.Tensor((7, 3), "float32"),
            Z: T.Output((5, 3), "float32"),
        ):
            for i, j, k in T.grid(5, 3, 7):
                with T.block("Z"):
                    v_i = T.spatial(5, i)
                    v_j = T.spatial(3, j)
                    v_k = T.reduce(7, k)
                    T.reads(X[v_i, v_k], Y[v_k, v_j])
                    T.writes(Z[v_i, v_j])
                    with T.init():
                        Z[v_i, v_j] = 0.0
                    Z[v_i, v_j] = Z[v_i, v_j] + X[v_i, v_k] * Y[v_k, v_j]
        """
    )


def test_tensor_attributes() -> None:
    w = te.placeholder((2, 3), "int8", name="W", constant=True)
    assert (w.shape, w.dtype, w.name, w.ndim, w.constant) == ((2, 3), "int8", "W", 2, True)
    assert isinstance(w[0, 1], ir.Load)
    doubled = te.compute(w.shape, lambda i, j: w[i, j] * 2, name="doubled")
    assert (doubled.shape, doubled.dtype) == ((2, 3), "int8")
    assert te.program([w], [doubled]).inputs[0].constant


def test_names_of_loops_blocks_and_buffers() -> None:
    a = te.compute((5,), lambda row: X[row, 0], name="same")
    b = te.compute((5,), lambda *i: a[i] + 1.0, name="same")
    c = te.compute((5,), lambda n: b[n] + 1.0, name="same", axes=["given"])
    program = te.program([X], [c])
    assert [s.var.name for s in ir.walk(program) if isinstance(s, ir.For)] == ["row", "i0", "given"]
    assert [b.name for b in ir.blocks(program)] == ["same", "same_1", "same_2"]
    assert len({b.name for b in (*program.params, *program.allocs)}) == 4


def test_unused_stages_do_not_appear_and_order_is_by_need() -> None:
    late = te.compute((5,), lambda i: X[i, 0], name="late")
    te.compute((5,), lambda i: late[i], name="unused")
    early = te.compute((5,), lambda i: X[i, 1], name="early")
    out = te.compute((5,), lambda i: early[i] + late[i], name="out")
    assert [b.name for b in ir.blocks(te.program([X], [out]))] == ["early", "late", "out"]


def test_one_tensor_in_two_programs() -> None:
    a = te.compute((5,), lambda i: X[i, 0] + 1.0, name="a")
    b = te.compute((5,), lambda i: a[i] * 2.0, name="b")
    both, last = te.program([X], [a, b]), te.program([X], b)
    np.testing.assert_array_equal(run(last, ROWS), (ROWS[:, 0] + 1) * 2)
    first, second = interpret(both, ROWS)
    np.testing.assert_array_equal(first * 2, second)


def test_unused_inputs_are_fine() -> None:
    extra = te.placeholder((3,), name="extra")
    program = te.program([extra, X], [te.compute((5,), lambda i: X[i, 0])])
    assert [b.name for b in program.inputs] == ["extra", "X"]


def test_long_chains_of_stages() -> None:
    t = te.placeholder((1,), name="t")
    last = t
    for _ in range(1500):
        last = te.compute((1,), lambda i, t=last: t[i] + 1.0)
    assert len(ir.blocks(te.program([t], [last]))) == 1500


def test_regions_are_exact_and_each_given_once() -> None:
    y = te.compute((3,), lambda i: X[i, 2] * X[i, 2] + X[i + 1, 2 * i], name="y")
    (block,) = ir.blocks(te.program([X], [y]))
    assert signature(block) == ["T.reads(X[v_i, 2], X[v_i + 1, 2 * v_i])", "T.writes(y[v_i])"]


def test_an_indirect_read_is_of_the_whole_dimension() -> None:
    at = te.placeholder((4,), "int32", name="at")
    y = te.compute((4, 7), lambda i, j: X[at[i], j], name="y")
    program = te.program([X, at], [y])
    (block,) = ir.blocks(program)
    assert signature(block)[0] == "T.reads(X[0 : T.size(5), v_j], at[v_i])"
    where = np.array([3, 0, 4, 3], np.int32)
    np.testing.assert_array_equal(run(program, ROWS, where), ROWS[where])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_indices_are_64_bit(dtype: str) -> None:
    at = te.placeholder((4,), dtype, name="at")
    element = X[at[0], at[1] + 1]
    assert {index.dtype for index in element.indices} == {"int64"}


# --- several results ---


def test_a_tuple_is_computed_by_one_block() -> None:
    low, high = te.compute(
        (5, 7), lambda i, j: (te.minimum(X[i, j], 0.0), te.cast(X[i, j], "int32")), name="parts"
    )
    program = te.program([X], [high, low])
    (block,) = ir.blocks(program)
    assert len(block.body) == 2
    whole, negative = interpret(program, ROWS)
    np.testing.assert_array_equal(negative, np.minimum(ROWS, 0))
    np.testing.assert_array_equal(whole, ROWS.astype(np.int32))


def test_reductions_over_the_same_axes_share_a_block() -> None:
    k = te.reduce_axis(7)
    total, most = te.compute((5,), lambda i: (te.sum(X[i, k], axis=k), te.max(X[i, k], axis=k)), name="both")
    program = te.program([X], [total, most])
    (block,) = ir.blocks(program)
    assert isinstance(block.body[0], ir.TupleStore)
    first, second = interpret(program, ROWS)
    np.testing.assert_array_equal(first, ROWS.sum(1))
    np.testing.assert_array_equal(second, ROWS.max(1))


def test_one_of_several_results_may_go_unused() -> None:
    low, _ = te.compute((5,), lambda i: (X[i, 0], X[i, 1]))
    program = te.program([X], [low])
    assert len(program.allocs) == 1
    np.testing.assert_array_equal(run(program, ROWS), ROWS[:, 0])


# --- scalars, empty tensors, tables, functions ---


def test_scalars() -> None:
    k = te.reduce_axis(7)
    total = te.compute((), lambda: te.sum(X[0, k], axis=k) * 2.0)
    again = te.compute((), lambda: total[()] + 1.0)
    assert run(te.program([X], [again]), ROWS)[()] == ROWS[0].sum() * 2 + 1


def test_empty_and_unit_extents() -> None:
    x = te.placeholder((0, 3, 1), name="x")
    y = te.compute((0, 3, 1), lambda i, j, k: x[i, j, k] + 1.0)
    program = te.program([x], [y])
    assert [s.fixed_extent for s in ir.walk(program) if isinstance(s, ir.For)] == [0, 3, 1]
    assert run(program, np.zeros((0, 3, 1), np.float32)).shape == (0, 3, 1)


def test_tables_and_constants() -> None:
    primes = te.table([2, 3, 5, 7], "int32", name="primes")
    y = te.compute((4,), lambda i: primes[3 - i] * te.constant(2, "int32"), name="y")
    program = te.program([], [y])
    assert program.inputs == ()
    assert run(program).tolist() == [14, 10, 6, 4]
    assert te.table([1.0, 2.0]).dtype == "float32"
    assert te.table(np.array([1.0, 2.0])).dtype == "float64"
    assert te.constant([[1, 2]]).shape == (1, 2)
    assert ir.structural_equal(parse(str(program)), program)


def test_a_table_is_a_copy() -> None:
    values = np.array([1, 2], np.int32)
    copied = te.table(values)
    program = te.program([], [te.compute((2,), lambda i: copied[i])])
    values[0] = 9
    assert run(program).tolist() == [1, 2]


@pytest.mark.parametrize("name", ir.FUNCTIONS)
def test_every_function_has_a_name(name: str) -> None:
    x = te.placeholder((3,), "float64", name="x")
    f = getattr(te, name)
    y = te.compute((3,), lambda i: f(*[x[i]] * ir.FUNCTIONS[name]))
    program = te.program([x], [y])
    assert f"T.{name}(" in str(program)
    assert run(program, np.array([0.25, 0.5, 0.75])).shape == (3,)


def test_conditions() -> None:
    y = te.compute((5,), lambda i: te.select(te.any_of(te.all_of(i > 0, i < 3), [i == 4]), X[i, 0], 0))
    want = np.where([False, True, True, False, True], ROWS[:, 0], 0)
    np.testing.assert_array_equal(run(te.program([X], [y]), ROWS), want)


def test_conditions_as_values() -> None:
    y = te.compute((5, 7), lambda i, j: X[i, j] > 0)
    got = run(te.program([X], [y]), ROWS)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, ROWS > 0)
