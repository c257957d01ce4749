"""Data that is legal for every program, exact where it says so, and tells wrong results from right ones."""

from __future__ import annotations

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen.legal import values_of
from metaschedule.ir import Program, replace_fields
from metaschedule.measure.compare import difference
from metaschedule.measure.inputs import arrays
from metaschedule.measure.numerics import exact_magnitude, tolerance
from metaschedule.runtime import ArgSpec
from metaschedule.script import parse
from tests.cases.programs import CASES


def drawn(program: Program, positive: bool = False) -> list[np.ndarray]:
    return arrays(program, magnitude(program), positive, np.random.default_rng(0))


def magnitude(program: Program) -> int | None:
    return exact_magnitude(program, {b: values.high for b, values in values_of(program).items()})


@pytest.mark.parametrize("number", [n for n, case in CASES.items() if not case.build_only])
def test_legal_and_right(number: str) -> None:
    """The interpreter finds no access out of bounds; where results are said to be exact, they are NumPy's."""
    case = CASES[number]
    program = case.small_program()
    inputs = drawn(program, positive=number == "18387")
    results = ms.interpret(program, *inputs)
    if magnitude(program) is not None and number != "17960":  # whose binary search needs sorted data
        case.check(program, results, inputs)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_exact_in_any_order(dtype: str) -> None:
    program = ms.workloads.create("GMM", b=1, n=5, m=7, k=200, dtype=dtype)
    x, y = drawn(program)
    assert len(np.unique(np.abs(x.astype(np.float64)))) > (dtype != "bfloat16")
    want = x.astype(np.int64) @ y.astype(np.int64)
    np.testing.assert_array_equal(np.asarray(ms.interpret(program, x, y)).astype(np.int64), want)


@pytest.mark.parametrize("name", ["SFM", "NRM"])
def test_programs_that_round(name: str) -> None:
    program = ms.workloads.create(name, 0)
    assert magnitude(program) is None
    assert 0 < tolerance(program) < 1e-3
    assert tolerance(replace_fields(program, annotations={"rounding": 16})) == 16 * tolerance(program)


def test_too_long_a_sum_is_not_exact() -> None:
    assert magnitude(ms.workloads.create("GMM", b=1, n=1, m=1, k=2048, dtype="float16")) == 1
    assert magnitude(ms.workloads.create("GMM", b=1, n=1, m=1, k=2049, dtype="float16")) is None


def test_index_ranges() -> None:
    program = parse("""
@ms.program
def scaled(X: T.Tensor((40,)), at: T.Tensor((8,), "int64"), by: T.Tensor((8,), "int64"), Y: T.Output((8,))):
    for i in range(8):
        with T.block("scaled"):
            v = T.spatial(8, i)
            Y[v] = X[at[v] * 4 + v // by[v]]
""")
    values = {b.name: (v.low, v.high) for b, v in values_of(program).items()}
    assert values["at"][0] == 0
    assert 1 <= values["at"][1] <= 8
    assert values["by"][0] == 1
    ms.interpret(program, *drawn(program))


def test_row_pointers_are_ascending() -> None:
    program = CASES["12929"].small_program()
    starts = drawn(program)[2]
    assert starts[0] == 0
    assert starts[-1] == program.inputs[0].shape[0]
    assert (np.diff(starts) >= 0).all()


def test_a_lost_term_shows_and_another_order_does_not() -> None:
    k = 4096
    program = ms.workloads.create("GMM", b=1, n=8, m=8, k=k)
    rng = np.random.default_rng(0)
    x, y = (a[0] for a in arrays(program, None, False, rng))
    spec, limit = ArgSpec("C", (8, 8), "float32"), tolerance(program)
    want = np.add.accumulate(x[:, :, None] * y[None], axis=1)[:, -1]  # one after the other
    assert difference(spec, x @ y, want, limit) is None
    found = difference(spec, x[:, :-1] @ y[:-1], want, limit)
    assert found is not None
    assert "elements differ" in found
    assert difference(spec, x @ y, want, 0.0) is not None


def test_comparing_special_values() -> None:
    spec = ArgSpec("C", (3,), "float32")
    want = np.array([np.nan, np.inf, 1], np.float32)
    assert difference(spec, want.copy(), want, 1e-6) is None
    for at, value in ((0, 1.0), (1, np.nan), (1, -np.inf), (2, np.nan), (2, np.inf)):
        got = want.copy()
        got[at] = value
        assert difference(spec, got, want, 1e-6) is not None
