"""`value_of`: an index or a test for whole arrays of values of its variables."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import ir

OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": np.minimum, "max": np.maximum,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def value_of(e: ir.Expr, values: Mapping[ir.Var, Any]) -> Any:
    """An expression of variables that are all given, as numbers or arrays.

    >>> i = ir.Var("i", "int64")
    >>> value_of(i // 2 + 1, {i: np.arange(4)}).tolist()
    [1, 1, 2, 2]
    """
    if isinstance(e, ir.Const):
        return int(e.value)
    if isinstance(e, ir.Var) and e in values:
        return values[e]
    if isinstance(e, ir.Cast):
        return value_of(e.a, values)
    if isinstance(e, ir.Binary) and e.op in OPERATORS:
        return OPERATORS[e.op](value_of(e.a, values), value_of(e.b, values))
    raise ValueError(f"{e} is no index that loops alone decide")
