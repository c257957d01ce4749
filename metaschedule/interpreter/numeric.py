"""What operators and functions compute: NumPy's answer in the dtype at hand.

Everything here takes NumPy scalars or arrays alike and gives the same bits for both, which is what
lets `lanes.py` stand in for the scalar walk. Three places need care for that: a minimum of zeros of
opposite sign (the second, as NumPy's loops have it), `pow` (NumPy squares where the exponent is a
lone 2.0, and rounds differently where it is an array of them) and `erf` (which NumPy has not).

Callers silence NumPy's floating point warnings: infinities and wrapped integers are results here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from metaschedule.ir import is_float, numpy_dtype

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def least(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.where((a < b) | (a != a), a, b)
    return a if a < b or a != a else b


def greatest(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.where((a > b) | (a != a), a, b)
    return a if a > b or a != a else b


def binary_function(op: str, dtype: str) -> Callable[[Any, Any], Any]:
    """`op` on two operands of `dtype`. Integer division expects a divisor that is not zero."""
    if op in ("min", "max"):
        return least if op == "min" else greatest
    if op in ("//", "%") and is_float(dtype):
        return np.floor_divide if op == "//" else np.remainder
    return OPERATORS[op]


def unary_function(op: str) -> Callable[[Any], Any]:
    return operator.neg if op == "-" else operator.invert  # `not` of a bool is its complement


def cast(value: Any, dtype: str) -> Any:
    """As `astype`: towards zero, nonzero is True; a float too large for an integer gives what NumPy
    gives here."""
    return value.astype(numpy_dtype(dtype))


def rsqrt(x: Any) -> Any:
    return np.float64(1.0) / np.sqrt(x)


def sigmoid(x: Any) -> Any:
    decay = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, np.float64(1.0), decay) / (np.float64(1.0) + decay)


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    return np.asarray(_erf(x), dtype=np.float64)


def power(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(np.atleast_1d(x), np.atleast_1d(y))
    return np.power(np.ascontiguousarray(x), np.ascontiguousarray(y))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": rsqrt, "pow": power,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "erf": erf, "sigmoid": sigmoid,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "abs": np.abs,
}  # fmt: skip


def round_once(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 to a narrower float. ml_dtypes goes to bfloat16 by way of float32, which would round
    twice: rounding to odd on the way keeps the second from seeing a false tie."""
    if dtype != numpy_dtype("bfloat16"):
        return x.astype(dtype)
    near = np.atleast_1d(x.astype(np.float32))
    bits = near.view(np.uint32) - (np.abs(near) > np.abs(x))  # towards zero
    odd = (bits.astype(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where((near == x) | np.isnan(near), near, odd).astype(dtype)


def math_function(name: str, dtype: str) -> Callable[..., Any]:
    """A function of `dtype`, computed in float64 and rounded once (exact ones need no detour)."""
    if name in ("isnan", "isinf") or (name == "abs" and not is_float(dtype)):
        f = {"isnan": np.isnan, "isinf": np.isinf, "abs": np.abs}[name]
        return lambda x: f(x)[()]
    f, own = FUNCTIONS[name], numpy_dtype(dtype)

    def evaluate(*args: Any) -> Any:
        result = round_once(np.asarray(f(*[x.astype(np.float64) for x in args])), own)
        shape = np.broadcast_shapes(*[np.shape(x) for x in args])
        return result.reshape(shape)[()]  # a scalar of scalars

    return evaluate
