"""The functions of `ir.FUNCTIONS` as LLVM text, for any target and any number of lanes.

    definition("exp", "float32", 8)   define internal <8 x float> @ms.exp.v8f32(<8 x float> %x) ...
    declarations("exp", "float32", 8) the `declare` lines that this definition needs
    externals("exp", "float64")       the C library's symbols that it calls: {"exp"}

float32 is computed inline in at most 4 units in the last place (`math_float32.py`; the measured
bounds are in tests/codegen/test_math.py), float64 by the C library lane by lane, but for the
functions that are instructions. float16 and bfloat16 are widened by the caller.

A target without a fused multiply-add or without rounding instructions (x86 before AVX2 and SSE4.1)
still gets right results, but LLVM then calls `fmaf`, `fma` and `roundeven` of the C library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..ir.expr import FUNCTIONS
from .math_float32 import ALGORITHMS, FAR, PERIODIC
from .math_text import Text, Value

KINDS = {"float32": "float", "float64": "double"}
INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc",
    "abs": "fabs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Built:
    text: str
    declared: frozenset[str]
    externals: frozenset[str]


def symbol(name: str, dtype: str, lanes: int) -> str:
    check(name, dtype, lanes)
    return f"ms.{name}.{Text(lanes).suffix(KINDS[dtype])}"


def definition(name: str, dtype: str, lanes: int) -> str:
    """`define internal` of `symbol(name, dtype, lanes)`; for sin, cos, tan of a cold helper too."""
    return build(name, dtype, lanes).text


def declarations(name: str, dtype: str, lanes: int) -> frozenset[str]:
    """`declare` lines of the intrinsics and externals the definition uses; equal lines are one."""
    return build(name, dtype, lanes).declared


def externals(name: str, dtype: str) -> frozenset[str]:
    """Symbols of the C library's libm that the definition calls."""
    return build(name, dtype, 1).externals


def check(name: str, dtype: str, lanes: int) -> None:
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name!r}; known are {', '.join(FUNCTIONS)}")
    if dtype not in KINDS:
        raise ValueError(f"{name} is defined for {' and '.join(KINDS)}, got {dtype}")
    if lanes < 1:
        raise ValueError(f"lanes must be positive, got {lanes}")


@cache
def build(name: str, dtype: str, lanes: int) -> Built:
    check(name, dtype, lanes)
    kind = KINDS[dtype]
    t = Text(lanes)
    args = [Value(t, f"%{arg}", kind) for arg in "xy"[: FUNCTIONS[name]]]
    if kind == "float" and name in PERIODIC:
        return build_periodic(t, name, args[0])
    if name in INTRINSICS:
        result = t.intrinsic(INTRINSICS[name], args[0])
    elif name in EITHER:
        result = EITHER[name](t, args[0])
    elif kind == "float":
        result = ALGORITHMS[name](t, *args)
    elif name == "sigmoid":
        result = sigmoid64(t, args[0])
    else:
        result = t.library(name, *args)
    of = t.type(kind)
    listed = ", ".join(f"{of} {arg.text}" for arg in args)
    body = "\n".join(t.lines)
    text = (
        f"define internal {t.type(result.kind)} @{symbol(name, dtype, lanes)}({listed})"
        f" alwaysinline nounwind {{\n{body}\n  ret {t.type(result.kind)} {result.text}\n}}\n"
    )
    return Built(text, frozenset(t.declared), frozenset(t.externals))


def rsqrt(t: Text, x: Value) -> Value:
    return 1.0 / t.intrinsic("sqrt", x)


def isnan(_: Text, x: Value) -> Value:
    return x.unordered(0.0)


def isinf(t: Text, x: Value) -> Value:
    return t.magnitude(x).equals(float("inf"))


def sigmoid64(t: Text, x: Value) -> Value:
    e = t.library("exp", -t.magnitude(x))
    return t.select(x < 0.0, e, 1.0) / (e + 1.0)


EITHER = {"rsqrt": rsqrt, "isnan": isnan, "isinf": isinf}


def build_periodic(t: Text, name: str, x: Value) -> Built:
    """The inline function, and the C library's in lanes past `FAR`, behind a branch.

    The other lanes keep their value, so that a result never depends on its neighbours.
    """
    of, at = t.type(x.kind), symbol(name, "float32", t.lanes)
    near = ALGORITHMS[name](t, x)
    far = t.magnitude(x) > FAR
    if t.lanes > 1:
        reduce = f"@llvm.vector.reduce.or.v{t.lanes}i1"
        t.declared.add(f"declare i1 {reduce}(<{t.lanes} x i1>)")
        far = t.emit(f"call i1 {reduce}(<{t.lanes} x i1> {far.text})", "i1")
    t.declared.add("declare i1 @llvm.expect.i1(i1, i1)")
    far = t.emit(f"call i1 @llvm.expect.i1(i1 {far.text}, i1 false)", "i1")
    body = "\n".join(t.lines)

    slow = Text(t.lanes)
    arg, kept = Value(slow, "%x", x.kind), Value(slow, "%near", x.kind)
    chosen = slow.select(slow.magnitude(arg) > FAR, slow.library(name, arg), kept)
    slow_body = "\n".join(slow.lines)
    text = f"""\
define internal {of} @{at}.far({of} %x, {of} %near) noinline cold nounwind {{
{slow_body}
  ret {of} {chosen.text}
}}
define internal {of} @{at}({of} %x) alwaysinline nounwind {{
entry:
{body}
  br i1 {far.text}, label %far, label %done
far:
  %far.result = call {of} @{at}.far({of} %x, {of} {near.text})
  br label %done
done:
  %result = phi {of} [ {near.text}, %entry ], [ %far.result, %far ]
  ret {of} %result
}}
"""
    return Built(text, frozenset(t.declared | slow.declared), frozenset(slow.externals))
