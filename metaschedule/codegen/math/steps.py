"""What the algorithms are written in, besides the operators of expressions: steps of one rounding, bits of
floats, polynomials.

`fma`, `bitcast` and the C library's functions are calls that the code generator alone knows
(`llvm/functions.py`): programs have no use for them. Nothing is contracted or reordered: an error-free step
must stay error-free, so a fused multiply-add is always asked for by name.
"""

from __future__ import annotations

from ... import ir
from ...ir import Expr
from ...ir.expr import Operand

LIBRARY = "c."  # a name's prefix
INTEGERS = {"float32": "int32", "float64": "int64"}
FLOATS = {integer: float_ for float_, integer in INTEGERS.items()}


def fma(a: Expr, b: Operand, c: Operand) -> Expr:
    """a * b + c, rounded once."""
    return ir.Call("fma", (a, ir.as_expr(b, a.dtype), ir.as_expr(c, a.dtype)), a.dtype)


def bits(x: Expr) -> Expr:
    """The bits of a float as an integer."""
    return ir.Call("bitcast", (x,), INTEGERS[x.dtype])


def floats(n: Expr) -> Expr:
    """The float with these bits."""
    return ir.Call("bitcast", (n,), FLOATS[n.dtype])


def library(name: str, *args: Expr) -> Expr:
    """The C library's function; `name` is the double's: exp, not expf."""
    return ir.Call(f"{LIBRARY}{name}", args, args[0].dtype)


def magnitude(x: Expr) -> Expr:
    return ir.call("abs", x)


def toggle_sign(result: Expr, sign: Expr) -> Expr:
    """`result`, negated where the top bit of the integer `sign` is set."""
    top = -(2**31) if sign.dtype == "int32" else -(2**63)
    return floats(bits(result) ^ (sign & top))


def with_sign_of(result: Expr, x: Expr) -> Expr:
    """`result`, which is positive, with the sign of `x`."""
    return toggle_sign(result, bits(x))


def is_odd(n: Expr) -> Expr:
    return (n & 1) != 0


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """The constant term comes first. Horner's rule, or for long ones Estrin's scheme.

    Horner has the fewest instructions and the least rounding, but each waits for the last.
    Estrin pairs neighbours, then pairs, and so on. Measured in loops on Zen 3: Horner is 15%
    faster for the five coefficients of exp, Estrin 15% faster for the eight of log.
    """
    terms: list[Expr] = [ir.const(c, x.dtype) for c in coefficients]
    if len(terms) <= 6:
        result = terms.pop()
        for term in reversed(terms):
            result = fma(result, x, term)
        return result
    while len(terms) > 1:
        pairs = [fma(b, x, a) for a, b in zip(terms[::2], terms[1::2])]
        terms = pairs + terms[len(terms) & ~1 :]
        if len(terms) > 1:
            x = x * x
    return terms[0]
