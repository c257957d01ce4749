"""Kernels are timed with data that they accept: nobody has to pass any."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.runtime import Kernel, KernelIndexError, random_arrays
from metaschedule.target import resolve
from tests.codegen.compiled import build, kernel

PICKY = {
    "a narrow table": ("A[1], I:int64[32] -> C[32]", "C[i] = A[I[i]]"),
    "a short index": ("A[1000], I:int8[32] -> C[32]", "C[i] = A[I[i]]"),
    "an unsigned one": ("A[3, 5], I:uint8[32], J:int32[32] -> C[32]", "C[i] = A[I[i], J[i]]"),
    "scaled": ("A[40], I:int32[32] -> C[32]", "C[i] = A[I[i] * 8 + i % 8]"),
    "scattered": ("A[32], I:int16[32] -> C[2]", "C[I[i]] = A[i]"),
    "divided": ("A:int32[32], B:int32[32] -> C:int32[32]", "C[i] = A[i] // B[i]"),
    "a scalar": ("A[4], I:int64[] -> C[32]", "C[i] = A[I[()]]"),
    "one of none": ("A[4], I:int64[0] -> C[32]", "C[i] = A[i % 4]"),
}


@pytest.mark.parametrize("bounds", ["checked", "unchecked"])
@pytest.mark.parametrize("name", PICKY)
def test_benchmark_without_arguments(name: str, bounds: str) -> None:
    parameters, line = PICKY[name]
    program = kernel(parameters, f"for i in range(32):\n    {line}")
    exe = ms.build(program, bounds=bounds)
    assert exe.benchmark(repeats=1).median > 0


def test_indices_are_all_over_the_table() -> None:
    program = kernel("A[100000], I:int64[4096] -> C[4096]", """
    for i in range(4096):
        C[i] = A[I[i]]
    """)  # fmt: skip
    made = generate(program, resolve())
    _, indices = random_arrays(made.inputs, values=dict(made.values))
    assert 0 <= indices.min() < 1000
    assert 99_000 < indices.max() < 100_000


def test_what_an_input_may_hold_crosses_processes() -> None:
    made = generate(kernel("A[7], I:int64[4] -> C[4]", "for i in range(4):\n    C[i] = A[I[i]]"), resolve())
    assert [(name, values.high) for name, values in made.values] == [("I", 6)]
    assert Kernel.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert Kernel.from_json(dataclasses.replace(made, values=()).to_json()).values == ()


def test_where_no_data_is_found_it_is_asked_for() -> None:
    program = kernel("A[4], I:int64[8] -> C[8]", """
    J = T.alloc((8,), "int64")
    for i in range(8):
        J[i] = I[i] + 3
    for i in range(8):
        C[i] = A[J[i]]
    """)  # fmt: skip
    exe = build(program)
    with pytest.raises(ValueError, match=r"index 4 is out of range.*pass its inputs: A: float32"):
        exe.benchmark()
    assert exe.benchmark(np.ones(4, "float32"), np.zeros(8, "int64"), repeats=1).median > 0
    with pytest.raises(KernelIndexError):
        exe.benchmark(np.ones(4, "float32"), np.ones(8, "int64"))
