"""What tensor expressions refuse, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from metaschedule import te
from metaschedule.errors import VerifyError
from metaschedule.ir import (
    Var,
)
from tests.te.helpers import X

# --- what is refused ---


@pytest.mark.parametrize("extent", [None, Var("n"), "n", 2.5, True])
def test_dynamic_shapes_are_refused(extent: Any) -> None:
    with pytest.raises(TypeError, match="dynamic shapes are not supported"):
        te.placeholder((extent, 784), name="x")
    with pytest.raises(TypeError, match="dynamic shapes are not supported"):
        te.compute((extent, 4), lambda i, j: 0.0)


@pytest.mark.parametrize("extent", [None, "n", 2.5])
def test_dynamic_axes_are_refused(extent: Any) -> None:
    with pytest.raises(TypeError, match="dynamic shapes are not supported"):
        te.reduce_axis(extent)
    with pytest.raises(TypeError, match="dynamic shapes are not supported"):
        te.placeholder(extent)


def test_negative_extents_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        te.placeholder((3, -1))
    with pytest.raises(ValueError, match="must not be negative, got -2"):
        te.reduce_axis((4, 2))


def test_forgotten_indices() -> None:
    with pytest.raises(TypeError, match=r"X is a tensor of 2 .*index it, X\[i0, i1\]"):
        te.compute((5, 7), lambda i, j: X + 1.0)  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(TypeError, match=r"elements are X\[i0, i1\]"):
        te.compute((5, 7), lambda i, j: X[i, j] + X)  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(TypeError, match=r"compute: X is a tensor: index it, X\[i0, i1\]"):
        te.compute((5, 7), lambda i, j: X)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError, match=r"sum: X is a tensor"):
        te.sum(X, axis=te.reduce_axis(7))  # pyright: ignore[reportArgumentType]
    with pytest.raises(IndexError, match=r"X has 2 dimension\(s\), indexed with 1"):
        te.compute((5,), lambda i: X[i])
    with pytest.raises(TypeError, match="index of X must be an integer, got float32"):
        te.compute((5,), lambda i: X[i, 1.0])


def test_functions_with_the_wrong_number_of_indices() -> None:
    with pytest.raises(TypeError, match=r"has 2 dimension\(s\), but the function takes 1"):
        te.compute((5, 7), lambda i: X[i, 0])
    with pytest.raises(ValueError, match=r"1 axis names for 2 dimension\(s\)"):
        te.compute((5, 7), lambda i, j: X[i, j], axes=["i"])


def test_variables_out_of_place() -> None:
    k = te.reduce_axis(7)
    with pytest.raises(ValueError, match="axis k is used outside of a reduction over it"):
        te.compute((5,), lambda i: X[i, k])
    leaked: list[Any] = []
    te.compute((5,), lambda i: leaked.append(i) or X[i, 0])
    with pytest.raises(ValueError, match="variable i is not an index of this compute"):
        te.compute((5,), lambda j: X[leaked[0], 0])
    with pytest.raises(TypeError, match=r"axis= takes what te\.reduce_axis gives"):
        te.sum(X[0, 0], axis=1)
    with pytest.raises(ValueError, match="at least one axis"):
        te.sum(X[0, 0], axis=[])
    with pytest.raises(ValueError, match="an axis is given twice"):
        te.sum(X[0, k], axis=[k, k])


def test_a_reduction_inside_one_of_variable_extent() -> None:
    k = te.reduce_axis(7)

    def element(i: Any) -> Any:
        j = te.reduce_axis(i + 1, name="j")
        return te.sum(te.max(X[j, k], axis=k), axis=j)

    with pytest.raises(ValueError, match=r"a max inside a reduction over j, whose extent is not"):
        te.compute((5,), element)


def test_arithmetic_on_bools() -> None:
    k = te.reduce_axis(7)
    with pytest.raises(TypeError, match="cast them to an integer dtype first"):
        te.sum(X[0, k] > 0, axis=k)


def test_program_arguments() -> None:
    y = te.placeholder((5,), name="y")
    z = te.compute((5,), lambda i: X[i, 0] + y[i], name="z")
    with pytest.raises(ValueError, match=r"z reads placeholder y, which is not among the inputs"):
        te.program([X], [z])
    with pytest.raises(ValueError, match=r"output X is not computed: .* compute a copy"):
        te.program([X, y], [z, X])
    with pytest.raises(ValueError, match="input z is computed"):
        te.program([X, y, z], [z])
    with pytest.raises(ValueError, match="y is given twice among the inputs"):
        te.program([X, y, y], [z])
    with pytest.raises(ValueError, match="z is given twice among the outputs"):
        te.program([X, y], [z, z])
    with pytest.raises(ValueError, match="at least one output"):
        te.program([X, y], [])
    with pytest.raises(TypeError, match="outputs.0. must be Tensor, got 3"):
        te.program([X, y], [3])  # pyright: ignore[reportArgumentType]


def test_reads_that_are_certainly_out_of_bounds() -> None:
    y = te.compute((6,), lambda i: X[i, 0], name="y")
    with pytest.raises(VerifyError, match=r"X\[v_i, 0\] is out of bounds"):
        te.program([X], [y])


def test_positions_that_their_dtype_does_not_hold() -> None:
    wide = te.placeholder((2, 129), name="wide")
    i, k = te.reduce_axis(2, "i"), te.reduce_axis(129, "k")
    for find, dtype, axes in ((te.argmax, "int8", k), (te.argmin, "uint8", (i, k))):
        with pytest.raises(ValueError, match=rf"{find.__name__}: dtype={dtype} does not hold position"):
            find(wide[i, k], axis=axes, dtype=dtype)
    with pytest.raises(TypeError, match="argmax: dtype= is that of a position, an integer's, got float32"):
        te.argmax(wide[0, k], axis=k, dtype="float32")
    te.argmax(wide[0, k], axis=k, dtype="uint8")
