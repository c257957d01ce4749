"""Expressions: typed, immutable by convention, compared by identity.

Read `Expr` first (operators build nodes), then the eight node classes. Meaning in short: integer
`//` and `%` round down as in Python; `min` and `max` propagate NaN as NumPy does; `select`, `and` and
`or` evaluate only what they need, so a guarded read out of bounds never happens.

Structural comparison lives in `structural.py`: `a == b` on expressions *builds* a comparison, and
using one as a Python condition is an error rather than a silent False.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..validation import describe_value
from .dtypes import (
    INDEX,
    check_dtype,
    integer_limits,
    is_float,
    is_integer,
    literal_dtype,
    numpy_dtype,
    promote,
)

if TYPE_CHECKING:
    from .buffer import Buffer

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
BITWISE = ("&", "|", "^", "<<", ">>")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LOGICAL = ("and", "or")

# Function name -> number of arguments. All take and return floats, except where `call` says otherwise.
FUNCTIONS = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1,
    "sqrt": 1, "rsqrt": 1, "pow": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "erf": 1, "sigmoid": 1,
    "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "abs": 1,
    "isnan": 1, "isinf": 1,
}  # fmt: skip


class Expr:
    """Base of all expressions. Every subclass has a `dtype`."""

    __slots__ = ()
    dtype: str
    __array_ufunc__ = None  # np.float32(2) * expr must come to us, not become an object array
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth of an expression is known only when the program runs; "
            "use select(), `&`, `|`, `~`, or `is` to compare nodes"
        )

    def __add__(self, other: Operand) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("/", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return binary("//", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return binary("%", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return binary("%", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return call("pow", other, self)

    def __and__(self, other: Operand) -> Expr:
        return binary("&", self, other)

    def __rand__(self, other: Operand) -> Expr:
        return binary("&", other, self)

    def __or__(self, other: Operand) -> Expr:
        return binary("|", self, other)

    def __ror__(self, other: Operand) -> Expr:
        return binary("|", other, self)

    def __xor__(self, other: Operand) -> Expr:
        return binary("^", self, other)

    def __rxor__(self, other: Operand) -> Expr:
        return binary("^", other, self)

    def __lshift__(self, other: Operand) -> Expr:
        return binary("<<", self, other)

    def __rlshift__(self, other: Operand) -> Expr:
        return binary("<<", other, self)

    def __rshift__(self, other: Operand) -> Expr:
        return binary(">>", self, other)

    def __rrshift__(self, other: Operand) -> Expr:
        return binary(">>", other, self)

    def __lt__(self, other: Operand) -> Expr:
        return binary("<", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("<=", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return binary(">=", self, other)

    def __eq__(self, other: Operand) -> Expr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return binary("==", self, other)

    def __ne__(self, other: Operand) -> Expr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return binary("!=", self, other)

    def __neg__(self) -> Expr:
        return unary("-", self)

    def __invert__(self) -> Expr:
        return unary("not" if self.dtype == "bool" else "~", self)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def astype(self, dtype: str) -> Expr:
        return cast(self, dtype)

    def __str__(self) -> str:
        from .printer import print_expr

        return print_expr(self)


Operand = Expr | bool | int | float | np.generic


@dataclass(eq=False, slots=True, repr=False)
class Var(Expr):
    """A loop or block iteration variable. Its identity is the object; the name is for people."""

    name: str
    dtype: str = INDEX


@dataclass(eq=False, slots=True, repr=False)
class Const(Expr):
    value: bool | int | float
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Unary(Expr):
    op: str
    a: Expr
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Binary(Expr):
    """`a op b`; both operands have one dtype, which the constructor functions see to."""

    op: str
    a: Expr
    b: Expr
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Select(Expr):
    """`a if cond else b`, evaluating only the branch taken."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Cast(Expr):
    """Conversion as `ndarray.astype` does it: floats are truncated towards zero, nonzero is True."""

    a: Expr
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Call(Expr):
    """A pure scalar function of `FUNCTIONS`, or one lane of an instruction (`instruction.py`)."""

    name: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(eq=False, slots=True, repr=False)
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.buffer.dtype


# --- construction -------------------------------------------------------------------------------


def const(value: bool | int | float | np.generic, dtype: str | None = None) -> Const:
    """A constant; a NumPy scalar brings its dtype, a Python number takes `literal_dtype`'s."""
    if isinstance(value, np.generic):
        return const(value.item(), dtype or check_dtype(value.dtype))
    dtype = literal_dtype(value, None) if dtype is None else check_dtype(dtype)
    if dtype == "bool":
        if value not in (False, True):
            raise ValueError(f"{value!r} is not a bool")
        return Const(bool(value), dtype)
    if is_float(dtype):
        try:
            return Const(round_to(float(value), dtype), dtype)
        except OverflowError:
            raise ValueError(f"the number {describe_value(value)} does not fit in {dtype}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not an integer, and the constant is to be {dtype}")
    if value != (number := int(value)):
        raise ValueError(f"{value!r} is not an integer, and the constant is to be {dtype}")
    low, high = integer_limits(dtype)
    if not low <= number <= high:
        raise ValueError(f"{describe_value(number)} does not fit in {dtype} ({low} to {high})")
    return Const(number, dtype)


def round_to(value: float, dtype: str) -> float:
    """`value` as `dtype` can hold it, so that equal constants are equal after a print and a parse."""
    if dtype == "float64" or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        return float(numpy_dtype(dtype).type(value))


def as_expr(value: Operand, partner: str | None = None) -> Expr:
    """An expression of a Python number, typed to go with an operand of dtype `partner`."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):
        return const(value)
    if isinstance(value, (bool, int, float)):
        return const(value, literal_dtype(value, partner))
    raise TypeError(f"expected an expression or a number, got {type(value).__name__}: {value!r}")


def same_type(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype (numbers adapt, expressions are promoted)."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype:
        return a, b
    left = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    right = as_expr(b, left.dtype)
    common = promote(left.dtype, right.dtype)
    return cast(left, common), cast(right, common)


def typed_binary(op: str, a: Operand, b: Operand) -> Binary:
    """`a op b` with its type worked out and nothing simplified: what the parser builds."""
    left, right = same_type(a, b)
    kind = left.dtype
    if op in COMPARISONS:
        return Binary(op, left, right, "bool")
    if op in LOGICAL:
        if kind != "bool":
            raise TypeError(f"`{op}` takes two conditions, got {kind}")
        return Binary(op, left, right, "bool")
    if kind == "bool":
        raise TypeError(f"`{op}` on two bools: cast them to an integer dtype first")
    if op in BITWISE and not is_integer(kind):
        raise TypeError(f"`{op}` takes integers, got {kind}")
    if op == "/" and not is_float(kind):
        return Binary(op, cast(left, "float64"), cast(right, "float64"), "float64")
    if op not in ARITHMETIC and op not in BITWISE:
        raise ValueError(f"unknown operator {op!r}")
    return Binary(op, left, right, kind)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """`a op b` as an operator on expressions builds it: typed, trivial integer cases folded."""
    if op in BITWISE:
        left, right = same_type(a, b)
        if left.dtype == "bool" and op in ("&", "|", "^"):
            return binary({"&": "and", "|": "or", "^": "!="}[op], left, right)
        a, b = left, right
    node = typed_binary(op, a, b)
    return fold(node) if is_integer(node.a.dtype) or node.dtype == "bool" else node


def fold(node: Binary) -> Expr:
    """Constant folding of integer and boolean operators; floats are left to round as written."""
    a, b, op = node.a, node.b, node.op
    if isinstance(a, Const) and isinstance(b, Const):
        if op in ("//", "%") and b.value == 0:
            return node  # division by zero is an error of the running program
        if is_integer(a.dtype) or a.dtype == "bool":
            value = FOLD[op](a.value, b.value) if op in FOLD else None
            if value is not None and node.dtype == "bool":
                return Const(bool(value), "bool")
            if value is not None:
                low, high = integer_limits(node.dtype)
                if low <= value <= high:
                    return Const(int(value), node.dtype)
        return node
    if isinstance(b, Const) and b.value is not None:
        if (op in ("+", "-") and b.value == 0) or (op in ("*", "//") and b.value == 1):
            return a
        if op == "*" and b.value == 0 and is_integer(b.dtype):
            return b
        if op == "%" and b.value == 1:
            return Const(0, node.dtype)
        if op == "and" and b.dtype == "bool":
            return a if b.value else b
        if op == "or" and b.dtype == "bool":
            return b if b.value else a
    if isinstance(a, Const):
        if (op == "+" and a.value == 0) or (op == "*" and a.value == 1):
            return b
        if op == "*" and a.value == 0 and is_integer(a.dtype):
            return a
        if op == "and" and a.dtype == "bool":
            return b if a.value else a
        if op == "or" and a.dtype == "bool":
            return a if a.value else b
    return node


FOLD: dict[str, Any] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "min": min, "max": max,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


def _range(dtype: str) -> range:
    low, high = integer_limits(dtype)
    return range(low, high + 1)


def unary(op: str, a: Operand) -> Expr:
    a = as_expr(a)
    if op == "not":
        if a.dtype != "bool":
            raise TypeError(f"`not` takes a condition, got {a.dtype}")
        if isinstance(a, Const):
            return Const(not a.value, "bool")
    elif op == "-":
        if a.dtype == "bool":
            raise TypeError("`-` on a bool: cast it to an integer dtype first")
        if isinstance(a, Const) and (is_float(a.dtype) or -a.value in _range(a.dtype)):
            return const(-a.value, a.dtype)
    elif op == "~":
        if not is_integer(a.dtype):
            raise TypeError(f"`~` takes an integer, got {a.dtype}")
    else:
        raise ValueError(f"unknown operator {op!r}")
    return Unary(op, a, a.dtype)


def cast(a: Operand, dtype: str) -> Expr:
    """`a` converted to `dtype`; nothing to do is nothing done."""
    a, dtype = as_expr(a), check_dtype(dtype)
    return a if a.dtype == dtype else Cast(a, dtype)


def select(cond: Operand, a: Operand, b: Operand) -> Expr:
    """`a` where `cond` holds, else `b`; the other branch is not evaluated."""
    cond = as_expr(cond)
    if cond.dtype != "bool":
        raise TypeError(f"select's condition must be a bool, got {cond.dtype}")
    left, right = same_type(a, b)
    return Select(cond, left, right, left.dtype)


def call(name: str, *args: Operand) -> Expr:
    """A function of `FUNCTIONS`, typed; integers must be cast to a float first (except for abs)."""
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name!r}; known are {', '.join(FUNCTIONS)}")
    if len(args) != FUNCTIONS[name]:
        raise TypeError(f"{name} takes {FUNCTIONS[name]} argument(s), got {len(args)}")
    exprs = same_type(*args) if len(args) == 2 else (as_expr(args[0]),)
    kind = exprs[0].dtype
    if not is_float(kind) and not (name == "abs" and is_integer(kind)):
        raise TypeError(f"{name} takes a float, got {kind}: cast it first")
    return Call(name, exprs, "bool" if name in ("isnan", "isinf") else kind)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of two values; NaN if one of them is."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of two values; NaN if one of them is."""
    return binary("max", a, b)


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The conjunction of any number of conditions (of none: True)."""
    result: Expr = Const(True, "bool")
    for condition in conditions:
        result = binary("and", result, condition)
    return result


def is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def as_int(expr: Expr) -> int | None:
    """The value of an integer constant, or None."""
    return expr.value if type(expr) is Const and type(expr.value) is int else None
