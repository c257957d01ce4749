"""Data types: NumPy's names, NumPy's promotion, and nothing else.

A dtype is a `str` everywhere in the IR ("float32", "bfloat16", "bool"), so programs print, hash and
serialise without objects of another library. `promote` and `literal_dtype` are the two rules by which
operators pick a result type: they are NumPy 2's (NEP 50), with one difference stated at the latter.
"""

from __future__ import annotations

import math
from functools import cache

import ml_dtypes
import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
INDEX = "int64"  # index arithmetic is 64-bit throughout: offsets past 2**31 are ordinary

_NUMPY = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in DTYPES}
_NAME = {dtype: name for name, dtype in _NUMPY.items()}
_LIMITS = {"bool": (0, 1)} | {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in INTEGERS}


def check_dtype(name: object) -> str:
    """The canonical name of a dtype given as a name, a NumPy dtype or a NumPy scalar type."""
    if isinstance(name, str) and name in _NUMPY:
        return name
    try:
        found = _NAME.get(np.dtype(name))  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        found = None
    if found is None:
        raise ValueError(f"unknown dtype {name!r}; known are {', '.join(DTYPES)}")
    return found


def numpy_dtype(name: str) -> np.dtype:
    return _NUMPY[name]


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_integer(dtype: str) -> bool:
    return dtype in INTEGERS


def integer_limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype (or of bool)."""
    return _LIMITS[dtype]


def lowest(dtype: str) -> float | int:
    """What no value is below: -infinity of floats."""
    return -math.inf if is_float(dtype) else integer_limits(dtype)[0]


def highest(dtype: str) -> float | int:
    """What no value is above."""
    return math.inf if is_float(dtype) else integer_limits(dtype)[1]


@cache
def promote(a: str, b: str) -> str:
    """The common type of two typed operands."""
    if a == b:
        return a
    try:
        found = _NAME.get(np.promote_types(_NUMPY[a], _NUMPY[b]))
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"no common dtype of {a} and {b}: cast one of them explicitly")
    return found


def literal_dtype(value: bool | int | float, partner: str | None) -> str:
    """The type a bare Python number takes beside an operand of type `partner` (None: alone).

    As in NumPy a number adapts to its partner and never widens it. Alone, a float is a float32, the
    common case of tensor programs, where NumPy would say float64.
    """
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return INDEX if partner in (None, "bool") else partner
    if partner is None:
        return "float32"
    return partner if is_float(partner) else "float64"
