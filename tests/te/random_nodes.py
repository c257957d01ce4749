"""Scalar expressions for `random_expressions`, each in two forms: tensor expression and NumPy.

A `Node` is an expression over some dimensions. `te` makes the tensor expression, given one index
expression per dimension; `ref` computes all elements with NumPy, given the arrays read so far and
one index array per dimension (an open mesh). With it go a range (`low`, `high`) and `err`, a bound
of the absolute error that any correct evaluation may make. `err == 0` means that the values are
integers (or infinite) which the dtype holds exactly, so results must match bit for bit in whatever
order they are computed; only such values decide comparisons, positions and conversions to integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaschedule import ir, te
from metaschedule.ir.dtypes import promote

Env = dict[int, np.ndarray]
Mesh = Sequence[np.ndarray]

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}
LARGEST = {"float16": 2.0**14, "bfloat16": 2.0**60, "float32": 2.0**60, "float64": 2.0**60}


@dataclass(eq=False)
class Node:
    dtype: str
    low: float
    high: float
    err: float
    te: Callable[[Sequence[ir.Expr]], ir.Expr]
    ref: Callable[[Env, Mesh], np.ndarray]

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def is_exact(self) -> bool:
        return self.err == 0


def typed(dtype: str, low: float, high: float, err: float, make: Any, ref: Any) -> Node:
    """A node with its range and error put right for its dtype."""
    if not ir.is_float(dtype):
        smallest, largest = ir.integer_limits(dtype)
        if low < smallest or high > largest:
            low, high = smallest, largest  # wrapped round
        return Node(dtype, low, high, 0, make, ref)
    size = max(abs(low), abs(high))
    if size < math.inf and (err or size > EXACT[dtype]):
        err += EPS[dtype] * size
    return Node(dtype, low, high, err, make, ref)


def constant(value: int, dtype: str) -> Node:
    array = np.array(value).astype(ir.numpy_dtype(dtype))
    make = lambda i: te.constant(array[()])  # noqa: E731
    if dtype == "bool":
        make = lambda i: te.constant(bool(value))  # noqa: E731
    return typed(dtype, value, value, 0, make, lambda env, mesh: array)


def index(axis: int, extent: int) -> Node:
    """The index of a dimension, as a value."""
    high = max(extent - 1, 0)
    return Node("int64", 0, high, 0, lambda i: i[axis], lambda env, mesh: mesh[axis])


def convert(a: Node, dtype: str) -> Node | None:
    """`a` as another dtype; None where the result is not determined."""
    if a.dtype == dtype:
        return a
    if ir.is_float(a.dtype) and not ir.is_float(dtype):
        low, high = ir.integer_limits(dtype)
        if not a.is_exact or (dtype != "bool" and not (low <= a.low and a.high <= high)):
            return None
    if ir.is_float(dtype) and a.size > LARGEST[dtype]:
        return None
    low, high = (0, 1) if dtype == "bool" else (a.low, a.high)
    return typed(
        dtype, low, high, a.err,
        lambda i: te.cast(a.te(i), dtype),
        lambda env, mesh: a.ref(env, mesh).astype(ir.numpy_dtype(dtype)),
    )  # fmt: skip


def common(a: Node, b: Node, arithmetic: bool) -> str:
    """The dtype in which an operator combines two nodes."""
    try:
        kind = promote(a.dtype, b.dtype)
    except TypeError:
        return "float32"
    return "int32" if arithmetic and kind == "bool" else kind


def computed(f: Callable[..., Any], dtype: str) -> Callable[..., np.ndarray]:
    """`f` on arrays of `dtype`; on bfloat16, for which NumPy lacks some, by way of float32."""
    if dtype != "bfloat16":
        return f
    bf16 = ir.numpy_dtype(dtype)

    def through(*args: np.ndarray) -> np.ndarray:
        result = np.asarray(f(*[x.astype(np.float32) for x in args]))
        return result.astype(bf16) if result.dtype == np.float32 else result

    return through


ARITHMETIC: dict[str, tuple[Any, Any]] = {
    "+": (lambda x, y: x + y, np.add),
    "-": (lambda x, y: x - y, np.subtract),
    "*": (lambda x, y: x * y, np.multiply),
    "min": (te.minimum, np.minimum),
    "max": (te.maximum, np.maximum),
}
COMPARISONS: dict[str, tuple[Any, Any]] = {
    "<": (lambda x, y: x < y, np.less),
    "<=": (lambda x, y: x <= y, np.less_equal),
    "==": (lambda x, y: x == y, np.equal),
    "!=": (lambda x, y: x != y, np.not_equal),
}
LOGIC: dict[str, tuple[Any, Any]] = {
    "&": (lambda x, y: x & y, np.bitwise_and),
    "|": (lambda x, y: x | y, np.bitwise_or),
    "^": (lambda x, y: x ^ y, np.bitwise_xor),
}


def combine(op: str, a: Node, b: Node) -> Node | None:
    """`a op b`; None where the result could be too large to be finite."""
    kind = common(a, b, arithmetic=True)
    x, y = convert(a, kind), convert(b, kind)
    if x is None or y is None:
        return None
    if op in ("+", "-", "*") and math.inf in (x.size, y.size):
        return None
    make, numpy_op = ARITHMETIC[op]
    if op in ("min", "max"):
        pick = min if op == "min" else max
        low, high, err = pick(x.low, y.low), pick(x.high, y.high), max(x.err, y.err)
    else:
        corners = [make(p, q) for p in (x.low, x.high) for q in (y.low, y.high)]
        low, high = min(corners), max(corners)
        err = x.err + y.err if op != "*" else x.err * y.size + y.err * x.size + x.err * y.err
    if ir.is_float(kind) and max(abs(low), abs(high)) > LARGEST[kind]:
        return None
    f = computed(numpy_op, kind)
    return typed(
        kind, low, high, err,
        lambda i: make(x.te(i), y.te(i)),
        lambda env, mesh: f(x.ref(env, mesh), y.ref(env, mesh)),
    )  # fmt: skip


def compare(op: str, a: Node, b: Node) -> Node | None:
    """A condition; None unless both sides are exact."""
    kind = common(a, b, arithmetic=False)
    x, y = convert(a, kind), convert(b, kind)
    if x is None or y is None or not (x.is_exact and y.is_exact):
        return None
    make, numpy_op = COMPARISONS[op]
    return Node(
        "bool", 0, 1, 0,
        lambda i: make(x.te(i), y.te(i)),
        lambda env, mesh: numpy_op(x.ref(env, mesh), y.ref(env, mesh)),
    )  # fmt: skip


def bitwise(op: str, a: Node, b: Node) -> Node | None:
    """Bits of two integers, or logic of two conditions."""
    kind = common(a, b, arithmetic=False)
    if ir.is_float(kind):
        return None
    x, y = convert(a, kind), convert(b, kind)
    if x is None or y is None:
        return None
    make, numpy_op = LOGIC[op]
    low, high = ir.integer_limits(kind)
    return typed(
        kind, low, high, 0,
        lambda i: make(x.te(i), y.te(i)),
        lambda env, mesh: numpy_op(x.ref(env, mesh), y.ref(env, mesh)),
    )  # fmt: skip


def choose(cond: Node, a: Node, b: Node) -> Node | None:
    kind = common(a, b, arithmetic=False)
    x, y = convert(a, kind), convert(b, kind)
    if cond.dtype != "bool" or x is None or y is None:
        return None
    return typed(
        kind, min(x.low, y.low), max(x.high, y.high), max(x.err, y.err),
        lambda i: te.select(cond.te(i), x.te(i), y.te(i)),
        lambda env, mesh: np.where(cond.ref(env, mesh), x.ref(env, mesh), y.ref(env, mesh)),
    )  # fmt: skip


def divide(op: str, a: Node, by: int) -> Node | None:
    """Rounding down, by a positive constant."""
    if not ir.is_integer(a.dtype):
        return None
    f = np.floor_divide if op == "//" else np.remainder
    number = np.array(by).astype(ir.numpy_dtype(a.dtype))
    low, high = (a.low // by, a.high // by) if op == "//" else (0, by - 1)
    return typed(
        a.dtype, low, high, 0,
        lambda i: a.te(i) // by if op == "//" else a.te(i) % by,
        lambda env, mesh: f(a.ref(env, mesh), number),
    )  # fmt: skip


def negate(a: Node) -> Node | None:
    if a.dtype == "bool":
        return Node("bool", 0, 1, 0, lambda i: ~a.te(i), lambda env, mesh: np.logical_not(a.ref(env, mesh)))
    return typed(a.dtype, -a.high, -a.low, a.err, lambda i: -a.te(i), lambda env, mesh: -a.ref(env, mesh))


def halve(name: str, a: Node) -> Node | None:
    """floor, ceil, round or trunc of half of an exact float."""
    if not ir.is_float(a.dtype) or not a.is_exact or a.size * 2 > EXACT[a.dtype]:
        return None
    rounding = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}[name]
    f = computed(lambda x: rounding(x * x.dtype.type(0.5)), a.dtype)
    return typed(
        a.dtype, math.floor(a.low / 2), math.ceil(a.high / 2), 0,
        lambda i: getattr(te, name)(a.te(i) * 0.5),
        lambda env, mesh: f(a.ref(env, mesh)),
    )  # fmt: skip


# Functions whose slope is at most 1.2 and whose value is at most max(2, |x|), as (te, NumPy).
SMOOTH: dict[str, tuple[Callable[[ir.Expr], ir.Expr], Callable[[np.ndarray], np.ndarray]]] = {
    "abs": (te.abs, np.abs),
    "tanh": (te.tanh, np.tanh),
    "sin": (te.sin, np.sin),
    "cos": (te.cos, np.cos),
    "atan": (te.atan, np.arctan),
    "erf": (te.erf, lambda x: np.vectorize(math.erf, otypes=[np.float64])(x)),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "decay": (lambda x: te.exp(-te.abs(x)), lambda x: np.exp(-np.abs(x))),
    "log": (lambda x: te.log1p(te.abs(x)), lambda x: np.log1p(np.abs(x))),
}


def smooth(name: str, a: Node) -> Node | None:
    """A mathematical function: floats only, and exact no longer (but for abs)."""
    if name == "abs" and ir.is_integer(a.dtype):
        return typed(
            a.dtype, 0, a.size, 0,
            lambda i: te.abs(a.te(i)),
            lambda env, mesh: np.abs(a.ref(env, mesh)),
        )  # fmt: skip
    if not ir.is_float(a.dtype) or a.size > 512:
        return None
    make, f = SMOOTH[name]
    own = ir.numpy_dtype(a.dtype)
    size = max(2.0, a.size)
    err = a.err if name == "abs" else 1.2 * a.err + 8 * EPS[a.dtype] * size
    return typed(
        a.dtype, 0 if name == "abs" else -size, size, err,
        lambda i: make(a.te(i)),
        lambda env, mesh: np.asarray(f(a.ref(env, mesh).astype(np.float64))).astype(own),
    )  # fmt: skip
