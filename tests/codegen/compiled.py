"""What the tests of the code generator share: compiling, and comparing with the interpreter."""

from __future__ import annotations

import ctypes
import math
import mmap
import re
from textwrap import dedent, indent
from typing import Any

import numpy as np

from metaschedule.codegen import generate
from metaschedule.interpreter import interpret
from metaschedule.ir import Program, numpy_dtype
from metaschedule.runtime import Executable
from metaschedule.script import parse
from metaschedule.target import resolve

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None)
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def kernel(parameters: str, body: str) -> Program:
    """The program with this body; parameters are written `A[4, 8], I:int32[3] -> C[4]` (float32 if
    not said)."""
    words: list[str] = []
    for side, kind in zip(parameters.split("->"), ("Tensor", "Output"), strict=True):
        for name, dtype, shape in re.findall(r"(\w+)(?::(\w+))?\[([^]]*)\]", side):
            words.append(f'{name}: T.{kind}(({shape},), "{dtype or "float32"}")'.replace("(,)", "()"))
    text = indent(dedent(body).strip("\n"), "    ")
    return parse(f"@ms.program\ndef f({', '.join(words)}):\n{text}\n")


def build(program: Program, *, fma: bool = True, target: str = "native") -> Executable:
    return Executable(generate(program, resolve(target), fma=fma))


def outputs(results: Any) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple) else [results]


def fenced(shape: tuple[int, ...], dtype: np.dtype, after: bool) -> np.ndarray:
    """An array with a page that may not be touched right after it (or right before it)."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    room = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, room + PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if LIBC.mprotect(ctypes.c_void_p(address + room if after else address), PAGE, 0):
        raise OSError("mprotect failed")
    offset = room - size if after else PAGE
    return np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape)


def run(exe: Executable, *inputs: np.ndarray) -> list[np.ndarray]:
    """The results, computed into arrays (and in a workspace) that hold NaN or -1 before. All arrays
    lie next to a page that may not be touched: an access out of bounds is a segmentation fault."""
    results: list[list[np.ndarray]] = []
    for after in (False, True):
        arrays: list[np.ndarray] = []
        for array in inputs:
            arrays.append(fenced(array.shape, array.dtype, after))
            arrays[-1][...] = array
        filled: list[np.ndarray] = []
        for spec in exe.outputs:
            filled.append(fenced(spec.shape, numpy_dtype(spec.dtype), after))
            filled[-1].reshape(-1).view(np.uint8)[:] = 1 if spec.dtype == "bool" else 0xFF
        exe.fill_workspace()
        exe(*arrays, *filled)
        results.append(filled)
    for first, second in zip(*results, strict=True):
        assert first.tobytes() == second.tobytes()
    return results[0]


def random_inputs(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Small integers in every dtype: sums and products of a few of them are exact."""
    rng = np.random.default_rng(seed)
    made: list[np.ndarray] = []
    for b in program.inputs:
        low = 0 if b.dtype in ("bool", "uint8") else -4
        values = rng.integers(low, 2 if b.dtype == "bool" else 5, b.shape)
        made.append(values.astype(numpy_dtype(b.dtype)))
    return made


def check(
    program: Program, *inputs: np.ndarray, ulp: float = 0, fma: bool = True, target: str = "native"
) -> list[np.ndarray]:
    """Compiled and interpreted, the program gives the same bits (or within `ulp` of the largest)."""
    if not inputs:
        inputs = tuple(random_inputs(program))
    expected = outputs(interpret(program, *inputs))
    results = run(build(program, fma=fma, target=target), *inputs)
    for b, got, want in zip(program.outputs, results, expected, strict=True):
        assert got.dtype == want.dtype
        if not ulp or b.dtype not in EPS:
            if b.dtype == "bfloat16":  # whose NaNs NumPy does not know as such
                got, want = got.astype(np.float32), want.astype(np.float32)
            np.testing.assert_array_equal(got, want, err_msg=b.name)
            continue
        exact = want.astype(np.float64)
        scale = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
        np.testing.assert_allclose(
            got.astype(np.float64), exact, rtol=0, atol=ulp * EPS[b.dtype] * scale, err_msg=b.name
        )
    return results
