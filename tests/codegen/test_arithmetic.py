"""Every operator, cast and function on every dtype, scalar and in vectors, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule import ir
from tests.codegen.compiled import build, check, kernel

LOOPS = ["range", "T.vectorized"]


def edge_values(dtype: str) -> np.ndarray:
    """Numbers at which an operator may go wrong, about thirty of them."""
    if dtype == "bool":
        return np.array([False, True])
    if ir.is_float(dtype):
        values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 7.25, 100.0, -100.25]
        values += [np.inf, -np.inf, np.nan, 1e-3, -1e-3, 1e-7, 6e4, -6e4, 0.1, 1 / 3]
        return np.array(values).astype(ir.numpy_dtype(dtype))
    low, high = ir.integer_limits(dtype)
    values = [v for v in (0, 1, 2, 3, 5, 7, 8, 13, 100, -1, -2, -3, -7, -8, -100) if v >= low]
    return np.array([*values, low, low + 1, high, high - 1, high // 2]).astype(dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(edge_values(dtype), edge_values(dtype))
    return a.reshape(-1).copy(), b.reshape(-1).copy()


def operators(dtype: str) -> list[str]:
    if dtype == "bool":
        return ["A[i] and B[i]", "A[i] or B[i]", "A[i] == B[i]", "A[i] != B[i]", "not A[i]"]
    found = [f"A[i] {op} B[i]" for op in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=")]
    found += ["T.min(A[i], B[i])", "T.max(A[i], B[i])", "-A[i]", "T.abs(A[i])"]
    if ir.is_float(dtype):
        return [*found, "A[i] / B[i]"]
    found += [f"A[i] {op} B[i]" for op in ("&", "|", "^", "<<", ">>")]
    return [*found, "~A[i]", "A[i] / B[i]"]


def results(op: str, dtype: str) -> str:
    comparing = any(word in op.split() for word in ("<", "<=", ">", ">=", "==", "!=", "and", "or"))
    if comparing or op.startswith("not"):
        return "bool"
    return "float64" if "/" in op and not ir.is_float(dtype) else dtype


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.DTYPES)
def test_operators(dtype: str, loop: str) -> None:
    """Bit for bit, but for the sign of a zero that `min` or `max` picks and the payload of a NaN."""
    a, b = pairs(dtype)
    ops = operators(dtype)
    outputs = ", ".join(f"C{n}:{results(op, dtype)}[{a.size}]" for n, op in enumerate(ops))
    body = [f"for i in {loop}({a.size}):", *(f"    C{n}[i] = {op}" for n, op in enumerate(ops))]
    check(kernel(f"A:{dtype}[{a.size}], B:{dtype}[{a.size}] -> {outputs}", "\n".join(body)), a, b)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", [*ir.INTEGERS, *ir.FLOATS])
def test_floor_division(dtype: str, loop: str) -> None:
    """`//` and `%` round down; the least integer by -1 wraps round."""
    a, b = pairs(dtype)
    if not ir.is_float(dtype):
        a, b = a[b != 0], b[b != 0]
    program = kernel(f"A:{dtype}[{a.size}], B:{dtype}[{a.size}] -> C:{dtype}[{a.size}], "
                     f"D:{dtype}[{a.size}]", f"""
    for i in {loop}({a.size}):
        C[i] = A[i] // B[i]
        D[i] = A[i] % B[i]
    """)  # fmt: skip
    check(program, a, b)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.INTEGERS)
@pytest.mark.parametrize("by", [1, 2, 3, 7, 8, 64, 100, -1, -2, -3])
def test_division_by_a_constant(dtype: str, by: int, loop: str) -> None:
    if dtype == "uint8" and by < 0:
        pytest.skip("not a uint8")
    a = edge_values(dtype)
    if dtype in ("int8", "uint8"):
        a = np.arange(256).astype(dtype)
    program = kernel(f"A:{dtype}[{a.size}] -> C:{dtype}[{a.size}], D:{dtype}[{a.size}]", f"""
    for i in {loop}({a.size}):
        C[i] = A[i] // {by}
        D[i] = A[i] % {by}
    """)  # fmt: skip
    check(program, a)


def test_indices_divided() -> None:
    """Index arithmetic of negative numbers, with constants and with loops."""
    check(kernel("A[1] -> C:int64[9, 4], D:int64[9, 4], E:int64[9, 4]", """
    for i in range(9):
        for j in T.vectorized(4):
            C[i, j] = (i - 5) // 3 * 100 + (i - 5) % 3
            D[i, j] = (i * 4 + j - 17) // 7 + (j - i) % 5 * 1000
            E[i, j] = T.min(i - j, j * 2) - T.max(-i, j - 3) // (j + 1)
    """))  # fmt: skip


def convertible(source: str, dtype: str) -> np.ndarray:
    """Values whose conversion is defined."""
    values = edge_values(source)
    if ir.is_float(source) and dtype != "bool" and not ir.is_float(dtype):
        low, high = ir.integer_limits(dtype)
        wide = values.astype(np.float64)
        keep = np.isfinite(wide) & (np.trunc(wide) >= low) & (np.trunc(wide) <= min(high, 2**62))
        return values[keep]
    return values


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("source", ir.DTYPES)
def test_casts(source: str, loop: str) -> None:
    for dtype in ir.DTYPES:
        if dtype == source:
            continue
        values = convertible(source, dtype)
        program = kernel(f"A:{source}[{values.size}] -> C:{dtype}[{values.size}]", f"""
        for i in {loop}({values.size}):
            C[i] = T.cast(A[i], "{dtype}")
        """)  # fmt: skip
        check(program, values)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_rounding_to_a_narrow_float(source: str, dtype: str) -> None:
    """To nearest, ties to even, once: also from float64, denormals and at overflow."""
    rng = np.random.default_rng(0)
    wide = np.float64 if source == "float64" else np.float32
    bits = rng.integers(0, 2**16, 4000).astype(np.uint16)
    with np.errstate(all="ignore"):
        near = bits.view(ir.numpy_dtype(dtype)).astype(np.float64)
        step = np.spacing(bits.view(np.float16)).astype(float) if dtype == "float16" else near / 256
        tie = near + step / 2 * rng.choice([1.0, 1 + 1e-9, 1 - 1e-9, 0.5], 4000)
        values = np.where(np.isfinite(tie), tie, 65519.9999).astype(wide)
    program = kernel(f"A:{source}[4000] -> C:{dtype}[4000]", f"""
    for i in T.vectorized(4000):
        C[i] = T.cast(A[i], "{dtype}")
    """)  # fmt: skip
    check(program, values)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.FLOATS)
def test_exact_functions(dtype: str, loop: str) -> None:
    values = edge_values(dtype)
    names = ["floor", "ceil", "round", "trunc", "abs", "sqrt", "isnan", "isinf"]
    kinds = ["bool" if n.startswith("is") else dtype for n in names]
    outputs = ", ".join(f"C_{n}:{k}[{values.size}]" for n, k in zip(names, kinds, strict=True))
    body = [f"for i in {loop}({values.size}):", *(f"    C_{n}[i] = T.{n}(A[i])" for n in names)]
    check(kernel(f"A:{dtype}[{values.size}] -> {outputs}", "\n".join(body)), values)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_round_after_every_operation(dtype: str, loop: str) -> None:
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(64).astype(ir.numpy_dtype(dtype)) for _ in "ABC"]
    program = kernel(f"A:{dtype}[64], B:{dtype}[64], C:{dtype}[64] -> D:{dtype}[64]", f"""
    for i in {loop}(64):
        D[i] = (A[i] * B[i] + C[i]) * A[i] - B[i] / C[i]
    """)  # fmt: skip
    check(program, *data)
    assert "contract" not in build(program).source("llvm")  # a CPU that computes in float16 would join two


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_only_where_asked(dtype: str, loop: str) -> None:
    """Without it the result is the operators', bit for bit; with it, within the error it saves."""
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(200).astype(dtype) for _ in "ABC"]
    program = kernel(f"A:{dtype}[200], B:{dtype}[200], C:{dtype}[200] -> D:{dtype}[200]", f"""
    for i in {loop}(200):
        D[i] = A[i] * B[i] + C[i] * 3.0 - A[i] / 7.0
    """)  # fmt: skip
    check(program, *data, fma=False)
    check(program, *data, ulp=2)
    assert "contract" not in build(program, fma=False).source("llvm")


@pytest.mark.parametrize("loop", LOOPS)
def test_int64_wraps_round(loop: str) -> None:
    """Values are not indices: nothing may be concluded from their not overflowing."""
    a = edge_values("int64")
    program = kernel(f"A:int64[{a.size}] -> C:int64[{a.size}], D:bool[{a.size}], E:int64[{a.size}], "
                     f"F:int64[{a.size}]", f"""
    for i in {loop}({a.size}):
        C[i] = A[i] * 1099511627776 * 1099511627777 + A[i] * 3 + 9223372036854775807 + i
        D[i] = A[i] + 1 > A[i]
        E[i] = A[i] * 3 // 3
        F[i] = 0
        if A[i] + 1 > A[i] and A[i] - 1 < A[i]:
            F[i] = T.select(A[i] + i + 7 > A[i] + i, 1, 2)
    """)  # fmt: skip
    check(program, a)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_with_constants(op: str, loop: str) -> None:
    values = edge_values("float32")
    program = kernel(f"A[{values.size}] -> C[{values.size}], D[{values.size}], E[{values.size}]", f"""
    for i in {loop}({values.size}):
        C[i] = T.{op}(A[i], 1.5)
        D[i] = T.{op}(-1.5, A[i])
        E[i] = T.{op}(A[i], T.float32("nan"))
    """)  # fmt: skip
    check(program, values)


def test_promotion_of_mixed_operands() -> None:
    check(kernel("A:int8[6], B:uint8[6], C:float16[6], D:int32[6] -> E:int16[6], F:float64[6]", """
    for i in T.vectorized(6):
        E[i] = A[i] * B[i]
        F[i] = C[i] * 2.0 + D[i]
    """))  # fmt: skip


# --- large offsets ------------------------------------------------------------------------------


def test_offsets_past_32_bits_in_the_text() -> None:
    program = kernel("A:int8[70000, 70000] -> C:int8[8]", """
    for i in range(8):
        C[i] = A[i * 9999, 69999] + A[69999, i]
    """)  # fmt: skip
    text = build(program).source("llvm")
    assert "mul nsw i64" in text
    assert str(70000 * 9999) in text
    assert str(70000 * 69999) in text


@pytest.mark.slow
def test_offsets_past_32_bits() -> None:
    size = 2**31 + 64
    program = kernel(f"A:int8[{size}] -> C:int8[64], D:int8[16], E:int8[1]", f"""
    for i in range(64):
        C[i] = A[i * 34087042]
    for v in T.vectorized(16):
        D[v] = A[{size - 16} + v]
    E[0] = A[{size - 1}]
    """)  # fmt: skip
    data = np.zeros(size, np.int8)  # pages that are not written take no memory
    where = np.arange(64) * 34087042
    data[where] = np.arange(64)
    data[-16:] = np.arange(16) + 100
    exe = build(program)
    c, d, e = exe(data)
    np.testing.assert_array_equal(c, data[where])
    np.testing.assert_array_equal(d, np.arange(16) + 100)
    assert e[0] == 115
