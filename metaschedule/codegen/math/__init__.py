"""The functions of `ir.FUNCTIONS` as expressions of simpler ones, which the code generator compiles for any
target and any number of lanes as it does every expression.

    expression("exp", x)   of a float32: select, fma, bitcast, ...; of a float64: the C library's

float32 is computed inline in at most 4 units in the last place (`float32.py`; the measured bounds are in
tests/codegen/test_math.py). float64 is the C library's: its vector functions (libmvec), where it has them,
are 2 to 12 times as fast as one call for each lane. Those of float32 are no faster than ours, but for a tenth
in log2 and log10 (Zen 5, vectors of 32 and 64 bytes), and a call needs all registers. float16 and bfloat16
are widened by the caller.

A target without a fused multiply-add or without rounding instructions (x86 before AVX2 and SSE4.1)
still gets right results, but LLVM then calls `fmaf`, `fma` and `roundeven` of the C library.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import ir
from ...ir import Expr
from .float32 import ALGORITHMS, FAR, PERIODIC
from .steps import library, magnitude


def expression(name: str, *args: Expr) -> Expr:
    """The function of arguments, in simpler ones; one that is an instruction remains a call of itself."""
    if name in SHORT:
        return SHORT[name](*args)
    if name in INSTRUCTIONS:
        return ir.call(name, *args)
    if args[0].dtype == "float32":
        return ALGORITHMS[name](*args)
    return sigmoid(*args) if name == "sigmoid" else library(name, *args)


def rsqrt(x: Expr) -> Expr:
    return 1.0 / ir.call("sqrt", x)


def isnan(x: Expr) -> Expr:
    return x != x


def isinf(x: Expr) -> Expr:
    return magnitude(x) == float("inf")


def sigmoid(x: Expr) -> Expr:
    e = library("exp", -magnitude(x))  # which cannot overflow
    return ir.select(x < 0.0, e, 1.0) / (e + 1.0)


INSTRUCTIONS = ("sqrt", "floor", "ceil", "round", "trunc", "abs")
SHORT: dict[str, Callable[..., Expr]] = {"rsqrt": rsqrt, "isnan": isnan, "isinf": isinf}
