"""Random tensor expressions compiled: as written, rounding as the operators say, with random loops;
and random uses of an intermediate buffer."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, note
from hypothesis import strategies as st

from metaschedule.interpreter import InterpreterError, interpret
from metaschedule.ir import Program, is_float, numpy_dtype
from metaschedule.target import resolve
from tests.codegen.compiled import build, check, kernel, outputs, run
from tests.codegen.variants import random_variant
from tests.te.random_expressions import RandomExpression, random_expressions

TARGETS = ["native", "native,vector_bytes=16", "native,vector_bytes=32"]
if resolve("native").arch == "x86_64":
    TARGETS += ["x86-64", "x86-64-v2"]


@given(random_expressions())
def test_compiled_like_numpy(case: RandomExpression) -> None:
    case.check(tuple(run(build(case.program), *case.inputs)))


@given(random_expressions(), st.integers(0, 2**16))
def test_rounds_as_the_operators_say(case: RandomExpression, seed: int) -> None:
    """With fractions as data and no FMA, every operator rounds on its own: the interpreter's bits."""
    rng = np.random.default_rng(seed)
    inputs = [
        (rng.uniform(-4, 4, b.shape) if is_float(b.dtype) else x).astype(numpy_dtype(b.dtype))
        for b, x in zip(case.program.inputs, case.inputs, strict=True)
    ]
    expected = outputs(interpret(case.program, *inputs))
    results = run(build(case.program, fma=False), *inputs)
    for got, want, tolerance in zip(results, expected, case.tolerances, strict=True):
        got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=0, atol=2 * tolerance)


@given(random_expressions(max_stages=3), st.data())
def test_random_loops(case: RandomExpression, data: st.DataObject) -> None:
    variant = random_variant(data.draw, case.program)
    note(str(variant))
    case.check(tuple(outputs(interpret(variant, *case.inputs))))
    target = data.draw(st.sampled_from(TARGETS))
    case.check(tuple(run(build(variant, target=target), *case.inputs)))


@st.composite
def buffer_uses(draw: st.DrawFn) -> Program:
    """Loops around a part that writes some of a buffer and a part that reads some of it: maybe each
    iteration reads what it has just written, maybe what an earlier one left."""

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    def pick(*options: str) -> str:
        return draw(st.sampled_from(options))

    def index(var: str) -> str:
        scale = f"{number(1, 2)} * {var}" if number(0, 3) == 0 else var
        return f"t * {number(0, 3)} + i * {moving} + {scale} + {number(0, 2)}"

    moving = number(0, 4)
    written, read = number(1, 6), number(1, 6)
    kinds = ("range", "T.vectorized", "T.unrolled", "range")
    edges = (f"if j + i * {moving} < 9:", f"if j + i * {moving} >= 3 and j + t * 2 + i * {moving} < 9:")
    guard = pick("", "", "if t == 0:", "if i == 0:", "if i < 2:", "if j < 3:", *edges)
    first = pick("", "", "if i == 0 and t == 0:", "if i == 0:", "if t == 0:")
    lines = ['B = T.alloc((48,), "float32")']
    lines += [f"for t in range({number(1, 3)}):", f"    for i in {pick('range', 'T.unrolled')}(4):"]
    if first:
        lines += [f"        {first}", "            for x in range(48):", "                B[x] = A[x]"]
    lines += [f"        for j in {pick(*kinds)}({written}):"]
    value = pick("A[j]", "A[i * 7 + j + t]", f"A[{index('j')}]", "A[j + 30 - t * 9]")
    here = "            "
    if guard:
        lines += [here + guard]
        here += "    "
    lines += [f"{here}B[{index('j')}] = {value} + T.cast(t, 'float32')".replace("'", '"')]
    lines += [f"        for j in {pick(*kinds)}({read}):", f"            C[t, i, j] = B[{index('j')}]"]
    lines = ["for t, i, j in T.grid(3, 4, 6):", "    C[t, i, j] = 0.0", *lines]
    return kernel("A[48] -> C[3, 4, 6]", "\n".join([lines[2], *lines[:2], *lines[3:]]))


@given(buffer_uses())
def test_intermediate_buffers(program: Program) -> None:
    note(str(program))
    data = np.arange(48, dtype=np.float32)
    try:
        interpret(program, data)
    except InterpreterError:
        assume(False)  # it reads what was never written
    check(program, data)
