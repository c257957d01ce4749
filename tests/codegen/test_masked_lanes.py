"""Vectorised loops in which some lanes are idle: dtypes, masks, ways to read and write, drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from metaschedule.ir import DTYPES, Program, numpy_dtype
from metaschedule.target import resolve
from tests.codegen.compiled import check, kernel

CONDITIONS = [
    "v < {k}", "v >= {k}", "v == {k}", "v != {k}", "v % {m} == {r}", "v // {m} == {r}", "v < N[0]",
    "v == N[0]", "v >= N[0]", "v + j < {k}", "v + j == {k}", "j * {lanes} + v < {n}",
    "j * {lanes} + v < N[1]", "v < j", "M[v]", "M[v] and v < {k}", "j == 1 and v == {k}",
]  # fmt: skip
READS = ["v", "{last} - v", "v * 2", "I[v]", "v // 2", "{k}", "v + j"]
WRITES = ["v", "{last} - v", "v * 2", "v + {k}"]
VALUES = ["{x}", "{x} + {y}", "{x} * {y}", "T.max({x}, {y})", "T.select({c}, {x}, {y})"]


@st.composite
def masked_kernels(draw: st.DrawFn) -> Program:
    lanes = draw(st.sampled_from([2, 3, 4, 8, 16, 17, 32, 64]))
    k = draw(st.integers(0, lanes - 1))
    m = draw(st.integers(1, lanes))
    words = {
        "lanes": lanes, "last": lanes - 1, "k": k, "m": m, "r": draw(st.integers(0, m - 1)), "n": lanes + k,
    }  # fmt: skip
    source, target = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))

    def pick(options: list[str]) -> str:
        return draw(st.sampled_from(options)).format(**words)

    condition, inner = pick(CONDITIONS), pick(CONDITIONS)
    x, y = (f'T.cast(A[i, {pick(READS)}], "float64")' for _ in range(2))
    if source == target or draw(st.booleans()):
        x, y = (f"A[i, {pick(READS)}]" for _ in range(2))
    values = VALUES if source != "bool" or "cast" in x else VALUES[:1]
    value = draw(st.sampled_from(values)).format(x=x, y=y, c=inner)
    where = pick(WRITES)
    width = 2 * lanes + k + 1
    # Rows innermost: what is written beyond a row's end is not written again by the next row.
    body = f"""
    for i in range(3):
        for u in range({width}):
            C[i, u] = T.cast(1, "{target}")
    for j in range(2):
        for i in range(3):
            for v in T.vectorized({lanes}):
                if {condition}:
                    C[i, {where}] = T.cast({value}, "{target}")
    """
    inputs = f"A:{source}[3, {2 * lanes + 1}], I:int32[{lanes}], N:int64[2], M:bool[{lanes}]"
    return kernel(f"{inputs} -> C:{target}[3, {width}]", body)


TARGETS = ["native", "native,vector_bytes=16", "native,vector_bytes=32"]
if resolve("native").arch == "x86_64":
    TARGETS += ["x86-64-v2"]


@given(masked_kernels(), st.integers(0, 2**16))
@pytest.mark.parametrize("target", TARGETS)
def test_idle_lanes_touch_nothing(target: str, program: Program, seed: int) -> None:
    note(str(program))
    rng = np.random.default_rng(seed)
    lanes = program.inputs[1].shape[0]
    assert isinstance(lanes, int)
    data = rng.integers(0, 2, program.inputs[0].shape) * rng.integers(1, 50, program.inputs[0].shape)
    check(
        program,
        data.astype(numpy_dtype(program.inputs[0].dtype)),
        rng.integers(0, lanes, lanes).astype(np.int32),
        np.array([rng.integers(0, lanes + 1), lanes + rng.integers(0, lanes)]),
        rng.integers(0, 2, lanes).astype(bool),
        target=target,
    )
