"""Promotion is NumPy's; literals adapt to their partner."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from metaschedule.ir import DTYPES, check_dtype, integer_limits, numpy_dtype
from metaschedule.ir.dtypes import literal_dtype, promote


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)))
def test_promotion_is_numpys(a: str, b: str) -> None:
    try:
        common = np.promote_types(numpy_dtype(a), numpy_dtype(b))
    except TypeError:
        common = None
    names = {numpy_dtype(name): name for name in DTYPES}
    if common is not None and common in names:
        assert promote(a, b) == names[common]
    else:
        with pytest.raises(TypeError, match=f"no common dtype of {a} and {b}"):
            promote(a, b)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("bool", "bfloat16")])
@pytest.mark.parametrize("value", [3, 1.5])
def test_literals_adapt_as_numpys_do(dtype: str, value: float) -> None:
    array = np.ones(1, numpy_dtype(dtype))
    assert literal_dtype(value, dtype) == str((array + value).dtype)


def test_literals_alone() -> None:
    assert literal_dtype(1, None) == "int64"
    assert literal_dtype(1, "bool") == "int64"
    assert literal_dtype(1.5, None) == "float32"
    assert literal_dtype(1.5, "bfloat16") == "bfloat16"
    assert literal_dtype(1.5, "int8") == "float64"
    assert literal_dtype(True, "float32") == "bool"


def test_names() -> None:
    assert check_dtype("bfloat16") == check_dtype(ml_dtypes.bfloat16) == "bfloat16"
    assert check_dtype(np.float32) == check_dtype(np.dtype("float32")) == "float32"
    for wrong in ("float33", "uint32", "complex64", "object", 3):
        with pytest.raises(ValueError, match="unknown dtype"):
            check_dtype(wrong)


def test_limits() -> None:
    assert integer_limits("int8") == (-128, 127)
    assert integer_limits("uint8") == (0, 255)
    assert integer_limits("int64") == (-(2**63), 2**63 - 1)
    assert integer_limits("bool") == (0, 1)
