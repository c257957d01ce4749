"""Numbers at the edges: machine code, scalar and in vectors, the interpreter and eager torch agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import ir, te
from metaschedule.interpreter import interpret
from metaschedule.ir.expr import FUNCTIONS
from tests.codegen.compiled import EPS, build, check, kernel, outputs, run
from tests.codegen.test_arithmetic import edge_values, pairs

torch: Any = pytest.importorskip("torch")

LOOPS = ["range", "T.vectorized", "T.parallel"]
LARGE = [127.9, 128.0, -128.9, 255.9, 300.0, 32768.0, 40000.0, 65536.0, 70000.0, 2.0**31 - 200, 2.0**31, 3e9]
LARGE += [-(2.0**31), -3e9, 4.3e9, 2.0**62, 2.0**63, -(2.0**63), 1e19, -1e19, 1e30, np.inf, -np.inf, np.nan]


def tensor(array: np.ndarray, dtype: str) -> Any:
    wide = array.astype("float64") if dtype in ir.FLOATS else array
    return torch.from_numpy(wide).to(getattr(torch, dtype))


def as_float64(array: np.ndarray) -> np.ndarray:
    return array.astype("float64") if array.dtype != bool else array


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("source", ir.FLOATS)
def test_casts_of_floats_to_integers(source: str, loop: str) -> None:
    """NaN and what is out of range give the least integer of 32 or 64 bits, of which narrow types take the
    low bits. (torch takes those of a float64 from 64 bits, NumPy and we from 32.)"""
    with np.errstate(over="ignore"):
        x = np.concatenate([edge_values(source).astype("float64"), LARGE]).astype(ir.numpy_dtype(source))
    for dtype in ir.INTEGERS:
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
@pytest.mark.parametrize("dtype", [*ir.FLOATS, *ir.INTEGERS])
def test_operators_are_those_of_eager(dtype: str, loop: str) -> None:
    a, b = pairs(dtype)
    names = FLOAT_OPERATORS
    if dtype in ir.INTEGERS:
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
        eager = want.double().numpy() if dtype in ir.FLOATS and want.dtype != torch.bool else want.numpy()
        ours = as_float64(got) if dtype in ir.FLOATS else got
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


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.INTEGERS)
def test_shifts_by_any_amount(dtype: str, loop: str) -> None:
    """By the width or more, or by a negative number, all bits are shifted out: 0, or the sign."""
    low, high = ir.integer_limits(dtype)
    bits = np.dtype(dtype).itemsize * 8
    amounts = [n for n in (0, 1, bits - 1, bits, bits + 1, 100, high, -1, -bits, low) if low <= n <= high]
    values = edge_values(dtype)
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(values, np.array(amounts, dtype)))
    lines = ["L[i] = A[i] << B[i]", "R[i] = A[i] >> B[i]"]  # by what is loaded, then by constants
    lines += [f"L{n}[i] = A[i] << {by}" for n, by in enumerate(amounts)]
    lines += [f"R{n}[i] = A[i] >> {by}" for n, by in enumerate(amounts)]
    outs = ", ".join(f"{line.partition('[')[0]}:{dtype}[{a.size}]" for line in lines)
    body = "\n    ".join([f"for i in {loop}({a.size}):", *lines])
    results = check(kernel(f"A:{dtype}[{a.size}], B:{dtype}[{a.size}] -> {outs}", body), a, b)
    left, right = torch.bitwise_left_shift, torch.bitwise_right_shift
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    wanted = [left(x, y), right(x, y), *(left(x, by) for by in amounts), *(right(x, by) for by in amounts)]
    for line, got, want in zip(lines, results, wanted, strict=True):
        np.testing.assert_array_equal(got, want.numpy(), line)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", [dtype for dtype in ir.INTEGERS if dtype != "uint8"])
def test_the_least_integer_by_minus_one(dtype: str, loop: str) -> None:
    """x86's instruction would end the process. The quotient wraps round, as in NumPy."""
    least = np.full(40, np.iinfo(dtype).min, dtype)
    program = kernel(f"A:{dtype}[40], B:{dtype}[40] -> Q:{dtype}[40], R:{dtype}[40], S:{dtype}[40], "
                     f"M:{dtype}[40], N:{dtype}[40]", f"""
    for i in {loop}(40):
        Q[i] = A[i] // B[i]
        R[i] = A[i] % B[i]
        S[i] = A[i] // -1
        M[i] = T.abs(A[i])
        N[i] = -A[i]
    """)  # fmt: skip
    quotient, rest, *others = check(program, least, -np.ones(40, dtype))
    assert (quotient == least).all()
    assert (rest == 0).all()
    assert all((other == least).all() for other in others)


TINY = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}
ELEMENTARY = [name for name, count in FUNCTIONS.items() if count == 1 and not name.startswith("is")]


def at_the_edges(dtype: str) -> np.ndarray:
    """Among them subnormals, and where exp and the like begin to overflow and to vanish."""
    limits = torch.finfo(getattr(torch, dtype))
    values = [TINY[dtype], 3 * TINY[dtype], limits.tiny, limits.max, 11.0, 18.0, 88.0, 89.0, 104.0, 710.0]
    return np.concatenate([edge_values(dtype).astype("float64"), values, np.negative(values)]).astype(
        ir.numpy_dtype(dtype)
    )


def kinds(x: np.ndarray) -> np.ndarray:
    """NaN, infinite, zero or neither, with the sign of what is no NaN."""
    wide = x.astype("float64")
    kind = np.select([np.isnan(wide), np.isinf(wide), wide == 0], [1, 2, 3], 4)
    return np.where((kind != 1) & np.signbit(wide), -kind, kind)


def close(got: np.ndarray, want: np.ndarray, dtype: str, ulp: float, least: float, what: str) -> None:
    with np.errstate(over="ignore"):
        exact = want.astype("float64")
    rtol = ulp * EPS[dtype]
    np.testing.assert_allclose(got.astype("float64"), exact, rtol=rtol, atol=least, err_msg=what)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.FLOATS)
def test_functions_at_the_edges(dtype: str, loop: str) -> None:
    """As the interpreter has them, signs of zeros and subnormals included. Eager agrees but where it is less
    exact: erf of what is tiny is 0 there, sinh and cosh overflow too early."""
    x = at_the_edges(dtype)
    outs = ", ".join(f"C_{name}:{dtype}[{x.size}]" for name in ELEMENTARY)
    lines = [f"for i in {loop}({x.size}):", *(f"    C_{name}[i] = T.{name}(A[i])" for name in ELEMENTARY)]
    program = kernel(f"A:{dtype}[{x.size}] -> {outs}", "\n".join(lines))
    results, wanted = run(build(program), x), outputs(interpret(program, x))
    common = np.isin(x, edge_values(dtype))
    for name, got, want in zip(ELEMENTARY, results, wanted, strict=True):
        np.testing.assert_array_equal(kinds(got), kinds(want), name)
        close(got, want, dtype, 4, 2 * TINY[dtype], name)
        eager = getattr(torch, name)(tensor(x, dtype)).double().numpy()
        close(got[common], eager[common], dtype, 4, 2.0**-22, f"{name}, eager")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.FLOATS)
def test_powers_at_the_edges(dtype: str, loop: str) -> None:
    """Of negative bases only whole exponents have a power; of NaN only 0, and 1 has always."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, 1 / 3, 100.0]
    values += [np.inf, -np.inf, np.nan, TINY[dtype], -TINY[dtype], 65504.0]
    x, y = (m.reshape(-1).astype(ir.numpy_dtype(dtype)) for m in np.meshgrid(values, values))
    program = kernel(f"A:{dtype}[{x.size}], B:{dtype}[{x.size}] -> C:{dtype}[{x.size}]", f"""
    for i in {loop}({x.size}):
        C[i] = T.pow(A[i], B[i])
    """)  # fmt: skip
    (got,), (want,) = run(build(program), x, y), outputs(interpret(program, x, y))
    eager = torch.pow(tensor(x, dtype), tensor(y, dtype)).double().numpy()
    for expected in (want, eager):
        np.testing.assert_array_equal(kinds(got), kinds(expected))
        close(got, expected, dtype, 2, 2 * TINY[dtype], "pow")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("dtype", ir.FLOATS)
def test_signs_of_zeros_that_division_leaves(dtype: str, loop: str) -> None:
    """A rest has the divisor's, a quotient that of the quotient before it is rounded: as NumPy's have."""
    a, b = pairs(dtype)
    shaped = f"{dtype}[{a.size}]"
    program = kernel(f"A:{shaped}, B:{shaped} -> Q:{shaped}, R:{shaped}", f"""
    for i in {loop}({a.size}):
        Q[i] = A[i] // B[i]
        R[i] = A[i] % B[i]
    """)  # fmt: skip
    for got, want in zip(run(build(program), a, b), outputs(interpret(program, a, b)), strict=True):
        np.testing.assert_array_equal(kinds(got), kinds(want))


BOOL_OPERATORS = {
    "A[i] and B[i]": "logical_and", "A[i] or B[i]": "logical_or", "A[i] != B[i]": "logical_xor",
    **{f"A[i] {op} B[i]": name for op, name in COMPARISONS.items() if op != "!="},
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_bools(loop: str) -> None:
    """Sums and products of them are those of the dtype that they are cast to; without a cast they are
    refused."""
    a, b = (m.reshape(-1).repeat(10) for m in np.meshgrid([False, True], [False, True]))
    cast = "T.cast({}[i], 'uint8')"
    sums = f"{cast.format('A')} + {cast.format('B')}", f"{cast.format('A')} - {cast.format('B')}"
    lines = [*BOOL_OPERATORS, f"T.cast({sums[0]}, 'bool')", *sums, "not A[i]"]
    types = [*["bool"] * (len(BOOL_OPERATORS) + 1), "uint8", "uint8", "bool"]
    outs = ", ".join(f"C{n}:{dtype}[40]" for n, dtype in enumerate(types))
    body = [f"for i in {loop}(40):", *(f"    C{n}[i] = {line}" for n, line in enumerate(lines))]
    *results, total, difference, negated = check(
        kernel(f"A:bool[40], B:bool[40] -> {outs}", "\n".join(body)), a, b
    )
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    wanted = [getattr(torch, name)(x, y) for name in BOOL_OPERATORS.values()]
    for line, got, want in zip([*BOOL_OPERATORS, "+"], results, [*wanted, x + y], strict=True):
        np.testing.assert_array_equal(got, want.numpy(), line)
    np.testing.assert_array_equal(total, a.astype("uint8") + b)
    np.testing.assert_array_equal(difference, a.astype("uint8") - b)
    np.testing.assert_array_equal(negated, ~a)
    for op in "+-*":
        with pytest.raises(ms.ScriptError, match="on two bools: cast them"):
            kernel("A:bool[4], B:bool[4] -> C:bool[4]", f"for i in range(4):\n    C[i] = A[i] {op} B[i]")


# --- reductions -----------------------------------------------------------------------------------

TERMS = 37
REDUCERS = {
    "sum": te.sum, "prod": te.prod, "amax": te.max, "amin": te.min, "argmax": te.argmax, "argmin": te.argmin
}  # fmt: skip


def rows(dtype: str) -> np.ndarray:
    """Ties; NaN first, last, in two places, everywhere; rows of what the accumulator begins with; sums and
    products that wrap round."""
    rng = np.random.default_rng(0)
    found = [rng.integers(0 if dtype == "uint8" else -1, 3, TERMS).astype(object) for _ in range(3)]
    if dtype in ir.FLOATS:
        nans = [found[0].copy() for _ in range(4)]
        for row, at in zip(nans, ([0, TERMS - 1], [5], [3, 20], slice(None)), strict=True):
            row[at] = np.nan
        infinite = [found[0].copy() for _ in range(3)]
        infinite[0][9], infinite[1][30], infinite[2][[2, 30]] = np.inf, -np.inf, [-np.inf, np.inf]
        zeros = np.where(np.arange(TERMS) % 2, 0.0, -0.0)
        found += [*nans, *infinite, zeros, np.full(TERMS, np.inf), np.full(TERMS, -np.inf)]
        return np.stack([row.astype("float64") for row in found]).astype(ir.numpy_dtype(dtype))
    low, high = ir.integer_limits(dtype)
    found += [np.full(TERMS, low), np.full(TERMS, high), rng.choice([low, 0, high], TERMS)]
    return np.stack([row.astype(dtype) for row in [*found, rng.integers(1, 4, TERMS)]])


def reductions(dtype: str, count: int) -> ir.Program:
    x = te.placeholder((count, TERMS), dtype, name="x")

    def reduced(name: str) -> te.Tensor:
        k = te.reduce_axis(TERMS, "k")
        return te.compute((count,), lambda i: REDUCERS[name](x[i, k], axis=k), name=name)

    return te.program([x], [reduced(name) for name in REDUCERS])


def across_rows(sch: ms.Schedule, row: Any, term: Any) -> None:
    sch.reorder(term, row)
    sch.vectorize(row)


def in_lanes(sch: ms.Schedule, row: Any, term: Any) -> None:
    lane = sch.split(term, [None, 8])[1]
    sch.vectorize(sch.get_loops(sch.rfactor(lane))[-1])


def in_parallel_parts(sch: ms.Schedule, row: Any, term: Any) -> None:
    part = sch.split(term, [4, None])[0]
    sch.parallel(sch.get_loops(sch.rfactor(part))[0])


SCHEDULES: dict[str, Callable[[ms.Schedule, Any, Any], Any]] = {
    "as written": lambda sch, row, term: None,
    "vectorised": lambda sch, row, term: sch.vectorize(term),
    "parallel": lambda sch, row, term: sch.parallel(row),
    "unrolled": lambda sch, row, term: sch.unroll(term),
    "across rows": across_rows,
    "in lanes": in_lanes,
    "in parallel parts": in_parallel_parts,
}


@pytest.mark.parametrize("how", SCHEDULES)
@pytest.mark.parametrize("dtype", [*ir.FLOATS, *ir.INTEGERS])
def test_reductions(dtype: str, how: str) -> None:
    """In any order; only products of narrow floats may round differently for it (these sums are exact)."""
    x = rows(dtype)
    program = reductions(dtype, len(x))
    sch = ms.Schedule(program)
    for block in ir.blocks(program):
        if any(it.kind == "reduce" for it in block.iters):
            SCHEDULES[how](sch, *sch.get_loops(sch.get_block(block.name)))
    results = run(build(sch.program), x)
    for name, got, want in zip(REDUCERS, results, outputs(interpret(program, x)), strict=True):
        typed = {"dtype": getattr(torch, dtype)} if name in ("sum", "prod") else {}
        eager = getattr(torch, name)(tensor(x, dtype), dim=1, **typed)
        exact = got.dtype.kind in "iu" or name.startswith("a") or name == "sum"
        for expected in (want, eager.double().numpy() if eager.is_floating_point() else eager.numpy()):
            if exact:
                np.testing.assert_array_equal(as_float64(got), as_float64(expected), name)
            else:
                close(got, expected, dtype, TERMS, 0.0, name)
