"""Scalar functions of expressions. Each takes what an operator takes: expressions and numbers.

The mathematical ones want floats: cast integers first. `abs` takes integers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .. import ir
from ..ir import all_of as conjunction
from ..validation import check_arguments


def _of_one(name: str) -> Callable[[ir.Operand], ir.Expr]:
    def function(x: ir.Operand) -> ir.Expr:
        return ir.call(name, x)

    function.__name__ = function.__qualname__ = name
    return function


exp = _of_one("exp")
exp2 = _of_one("exp2")
expm1 = _of_one("expm1")
log = _of_one("log")
log2 = _of_one("log2")
log10 = _of_one("log10")
log1p = _of_one("log1p")
sqrt = _of_one("sqrt")
rsqrt = _of_one("rsqrt")
sin = _of_one("sin")
cos = _of_one("cos")
tan = _of_one("tan")
asin = _of_one("asin")
acos = _of_one("acos")
atan = _of_one("atan")
sinh = _of_one("sinh")
cosh = _of_one("cosh")
tanh = _of_one("tanh")
erf = _of_one("erf")
sigmoid = _of_one("sigmoid")
floor = _of_one("floor")
ceil = _of_one("ceil")
round = _of_one("round")
trunc = _of_one("trunc")
abs = _of_one("abs")
isnan = _of_one("isnan")
isinf = _of_one("isinf")


def pow(x: ir.Operand, y: ir.Operand) -> ir.Expr:
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
