"""Tensor expressions: say what each element of each tensor is, get a program.

>>> from metaschedule import te
>>> x = te.placeholder((8, 16), name="X")
>>> y = te.placeholder((16, 4), name="Y")
>>> k = te.reduce_axis(16)
>>> z = te.compute((8, 4), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="Z")
>>> te.program([x, y], [z])
<Program main(X: float32[8, 16], Y: float32[16, 4]) -> Z: float32[8, 4]>
"""

from ..ir import cast, maximum, minimum, select
from .functions import (
    abs,
    acos,
    all_of,
    any_of,
    asin,
    atan,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    pow,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from .lower import program
from .reduction import argmax, argmin, max, min, prod, reduce_axis, reducer, sum
from .stages import compute
from .tensor import Tensor, constant, placeholder, table

__all__ = [
    "Tensor",
    "abs",
    "acos",
    "all_of",
    "any_of",
    "argmax",
    "argmin",
    "asin",
    "atan",
    "cast",
    "ceil",
    "compute",
    "constant",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "maximum",
    "min",
    "minimum",
    "placeholder",
    "pow",
    "prod",
    "program",
    "reduce_axis",
    "reducer",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "table",
    "tan",
    "tanh",
    "trunc",
]
