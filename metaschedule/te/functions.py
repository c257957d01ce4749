"""Scalar functions of expressions. Each takes what an operator takes: expressions and numbers.

The mathematical ones want floats: cast integers first. `abs` takes integers too.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import ir
from ..ir import all_of as conjunction
from ..validation import check_arguments


def exp(x: ir.Operand) -> ir.Expr:
    """e to the power of x."""
    return ir.call("exp", x)


def exp2(x: ir.Operand) -> ir.Expr:
    """2 to the power of x."""
    return ir.call("exp2", x)


def expm1(x: ir.Operand) -> ir.Expr:
    """`exp(x) - 1`, exact for small x."""
    return ir.call("expm1", x)


def log(x: ir.Operand) -> ir.Expr:
    """The natural logarithm."""
    return ir.call("log", x)


def log2(x: ir.Operand) -> ir.Expr:
    """The logarithm to base 2."""
    return ir.call("log2", x)


def log10(x: ir.Operand) -> ir.Expr:
    """The logarithm to base 10."""
    return ir.call("log10", x)


def log1p(x: ir.Operand) -> ir.Expr:
    """`log(1 + x)`, exact for small x."""
    return ir.call("log1p", x)


def sqrt(x: ir.Operand) -> ir.Expr:
    """The square root."""
    return ir.call("sqrt", x)


def rsqrt(x: ir.Operand) -> ir.Expr:
    """`1 / sqrt(x)`."""
    return ir.call("rsqrt", x)


def sin(x: ir.Operand) -> ir.Expr:
    """The sine, of radians."""
    return ir.call("sin", x)


def cos(x: ir.Operand) -> ir.Expr:
    """The cosine, of radians."""
    return ir.call("cos", x)


def tan(x: ir.Operand) -> ir.Expr:
    """The tangent, of radians."""
    return ir.call("tan", x)


def asin(x: ir.Operand) -> ir.Expr:
    """The arc sine, in radians."""
    return ir.call("asin", x)


def acos(x: ir.Operand) -> ir.Expr:
    """The arc cosine, in radians."""
    return ir.call("acos", x)


def atan(x: ir.Operand) -> ir.Expr:
    """The arc tangent, in radians."""
    return ir.call("atan", x)


def sinh(x: ir.Operand) -> ir.Expr:
    """The hyperbolic sine."""
    return ir.call("sinh", x)


def cosh(x: ir.Operand) -> ir.Expr:
    """The hyperbolic cosine."""
    return ir.call("cosh", x)


def tanh(x: ir.Operand) -> ir.Expr:
    """The hyperbolic tangent."""
    return ir.call("tanh", x)


def erf(x: ir.Operand) -> ir.Expr:
    """The error function."""
    return ir.call("erf", x)


def sigmoid(x: ir.Operand) -> ir.Expr:
    """`1 / (1 + exp(-x))`."""
    return ir.call("sigmoid", x)


def floor(x: ir.Operand) -> ir.Expr:
    """The largest integer that is not above x, as a float."""
    return ir.call("floor", x)


def ceil(x: ir.Operand) -> ir.Expr:
    """The smallest integer that is not below x, as a float."""
    return ir.call("ceil", x)


def round(x: ir.Operand) -> ir.Expr:
    """The nearest integer, ties to even, as a float."""
    return ir.call("round", x)


def trunc(x: ir.Operand) -> ir.Expr:
    """x without its fraction, as a float."""
    return ir.call("trunc", x)


def abs(x: ir.Operand) -> ir.Expr:
    """The absolute value, of floats and integers."""
    return ir.call("abs", x)


def isnan(x: ir.Operand) -> ir.Expr:
    """Whether x is not a number."""
    return ir.call("isnan", x)


def isinf(x: ir.Operand) -> ir.Expr:
    """Whether x is an infinity of either sign."""
    return ir.call("isinf", x)


def pow(x: ir.Operand, y: ir.Operand) -> ir.Expr:
    """x to the power of y."""
    return ir.call("pow", x, y)


@check_arguments
def all_of(*conditions: ir.Expr | Iterable[ir.Expr]) -> ir.Expr:
    """Whether all conditions hold, tested in order and only as far as needed.

    >>> from metaschedule.ir import Var
    >>> i = Var("i")
    >>> print(all_of(i >= 1, i < 9))
    i >= 1 and i < 9
    """
    return conjunction(_flat(conditions))


@check_arguments
def any_of(*conditions: ir.Expr | Iterable[ir.Expr]) -> ir.Expr:
    """Whether any condition holds, tested in order and only as far as needed."""
    result: ir.Expr = ir.const(False)
    for condition in _flat(conditions):
        result = ir.binary("or", result, condition)
    return result


def _flat(conditions: tuple[ir.Expr | Iterable[ir.Expr], ...]) -> list[ir.Expr]:
    flat: list[ir.Expr] = []
    for c in conditions:
        flat += [c] if isinstance(c, ir.Expr) else list(c)
    return flat
