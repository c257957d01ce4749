"""Numbers at the edges: machine code, scalar and in vectors, the interpreter and eager torch agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaschedule.ir import FLOATS, INTEGERS, numpy_dtype
from tests.codegen.compiled import check, kernel
from tests.codegen.test_arithmetic import edge_values, pairs

torch: Any = pytest.importorskip("torch")

LOOPS = ["range", "T.vectorized"]
LARGE = [127.9, 128.0, -128.9, 255.9, 300.0, 32768.0, 40000.0, 65536.0, 70000.0, 2.0**31 - 200, 2.0**31, 3e9]
LARGE += [-(2.0**31), -3e9, 4.3e9, 2.0**62, 2.0**63, -(2.0**63), 1e19, -1e19, 1e30, np.inf, -np.inf, np.nan]


def tensor(array: np.ndarray, dtype: str) -> Any:
    wide = array.astype("float64") if dtype in FLOATS else array
    return torch.from_numpy(wide).to(getattr(torch, dtype))


def as_float64(array: np.ndarray) -> np.ndarray:
    return array.astype("float64") if array.dtype != bool else array


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("source", FLOATS)
def test_casts_of_floats_to_integers(source: str, loop: str) -> None:
    """NaN and what is out of range give the least integer of 32 or 64 bits, of which narrow types take the
    low bits. (torch takes those of a float64 from 64 bits, NumPy and we from 32.)"""
    with np.errstate(over="ignore"):
        x = np.concatenate([edge_values(source).astype("float64"), LARGE]).astype(numpy_dtype(source))
    for dtype in INTEGERS:
        program = kernel(f"A:{source}[{x.size}] -> C:{dtype}[{x.size}]", f"""
        for i in {loop}({x.size}):
            C[i] = T.cast(A[i], "{dtype}")
        """)  # fmt: skip
        (got,) = check(program, x)
        np.testing.assert_array_equal(got, tensor(x, source).to(getattr(torch, dtype)).numpy(), dtype)


FLOAT_OPERATORS = {
    "A[i] + B[i]": "add", "A[i] - B[i]": "sub", "A[i] * B[i]": "mul", "A[i] / B[i]": "div",
    "T.min(A[i], B[i])": "minimum", "T.max(A[i], B[i])": "maximum", "A[i] % B[i]": "remainder",
}  # fmt: skip
INTEGER_OPERATORS = {
    "A[i] + B[i]": "add", "A[i] - B[i]": "sub", "A[i] * B[i]": "mul", "A[i] // B[i]": "floor_divide",
    "A[i] % B[i]": "remainder", "T.min(A[i], B[i])": "minimum", "T.max(A[i], B[i])": "maximum",
    "A[i] & B[i]": "bitwise_and", "A[i] | B[i]": "bitwise_or", "A[i] ^ B[i]": "bitwise_xor",
}  # fmt: skip
COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_operators_are_those_of_eager(dtype: str, loop: str) -> None:
    a, b = pairs(dtype)
    names = FLOAT_OPERATORS
    if dtype in INTEGERS:
        names = INTEGER_OPERATORS
        keep = (b != 0) & ~(
            (a == np.iinfo(a.dtype).min) & (b.astype("int64") == -1)
        )  # torch: a signal, or less
        a, b = a[keep], b[keep]
    names = names | {f"A[i] {op} B[i]": name for op, name in COMPARISONS.items()}
    kinds = ["bool" if name in COMPARISONS.values() else dtype for name in names.values()]
    outs = ", ".join(f"C{n}:{kind}[{a.size}]" for n, kind in enumerate(kinds))
    lines = [f"for i in {loop}({a.size}):", *(f"    C{n}[i] = {text}" for n, text in enumerate(names))]
    results = check(kernel(f"A:{dtype}[{a.size}], B:{dtype}[{a.size}] -> {outs}", "\n".join(lines)), a, b)
    for name, got in zip(names.values(), results, strict=True):
        want = getattr(torch, name)(tensor(a, dtype), tensor(b, dtype))
        eager = want.double().numpy() if dtype in FLOATS and want.dtype != torch.bool else want.numpy()
        ours = as_float64(got) if dtype in FLOATS else got
        np.testing.assert_array_equal(ours, eager, f"{name} of {dtype}")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("op", ["+", "*"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signed_zeros_and_subnormals(dtype: str, op: str, loop: str) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    values = np.array([0.0, -0.0, tiny, -tiny, 3 * tiny, np.finfo(dtype).tiny, 0.5, -0.5, 1.0], dtype)
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(values, values))
    program = kernel(f"A:{dtype}[{a.size}], B:{dtype}[{a.size}] -> C:{dtype}[{a.size}]", f"""
    for i in {loop}({a.size}):
        C[i] = A[i] {op} B[i]
    """)  # fmt: skip
    (got,) = check(program, a, b)
    want = a + b if op == "+" else a * b
    np.testing.assert_array_equal(got.view(f"i{got.itemsize}"), want.view(f"i{want.itemsize}"))
