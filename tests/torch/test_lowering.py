"""The registry: arguments, outputs, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule import te  # noqa: E402
from metaschedule.errors import InternalError  # noqa: E402
from metaschedule.torch.lowering import NotLowered, lower  # noqa: E402

aten = torch.ops.aten


def test_arguments_not_given_take_the_defaults_of_the_schema() -> None:
    x = te.placeholder((2, 3), name="x")
    (y,) = lower(aten.add.Tensor, [x], {"other": x, "alpha": 2}, [((2, 3), "float32")])
    assert y is not None
    assert "x[v_i0, v_i1] * 2.0" in str(te.program([x], [y]))
    (z,) = lower(aten.add.Tensor, [x, x], {}, [((2, 3), "float32")])
    assert z is not None
    assert "*" not in str(te.program([x], [z])).partition("):")[2]


def test_results_have_the_dtype_that_torch_says() -> None:
    x = te.placeholder((2,), "int32", name="x")
    (y,) = lower(aten.relu.default, [x], {}, [((2,), "float64")])
    assert y is not None
    assert y.dtype == "float64"


def test_a_wrong_shape_is_our_mistake() -> None:
    x = te.placeholder((2,), name="x")
    with pytest.raises(InternalError, match="gives"):
        lower(aten.relu.default, [x], {}, [((3,), "float32")])


def test_operators_without_a_lowering_say_so() -> None:
    with pytest.raises(NotLowered, match="aten.mode.default has no lowering"):
        lower(aten.mode.default, [te.placeholder((2,), name="x"), 0], {}, [None, None])


def test_long_cumulative_sums_are_left_to_torch() -> None:
    x = te.placeholder((2, 1000), name="x")
    lower(aten.cumsum.default, [x, 0], {}, [((2, 1000), "float32")])
    with pytest.raises(NotLowered, match="a running result of 1000 elements"):
        lower(aten.cumsum.default, [x, 1], {}, [((2, 1000), "float32")])


def test_what_tensor_expressions_refuse_is_not_lowered() -> None:
    x = te.placeholder((2,), "bool", name="x")
    with pytest.raises(NotLowered, match="aten.neg.default: `-` on a bool"):
        lower(aten.neg.default, [x], {}, [((2,), "bool")])


def test_complex_numbers_are_refused() -> None:
    x = te.placeholder((2,), name="x")
    with pytest.raises(NotLowered, match="other is complex"):
        lower(aten.add.Scalar, [x, 1j], {}, [((2,), "float32")])
    with pytest.raises(NotLowered, match="no programs with complex64"):
        lower(aten.add.Tensor, [x, x], {}, [((2,), "complex64")])
