"""Narrow types from end to end: te, script, interpreter, zero-trial schedules, cost model, traces, DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.cost import Analytical
from metaschedule.ir import numpy_dtype
from metaschedule.space.untuned import predict_seconds, schedule_untuned
from metaschedule.target import resolve

TOTAL = {
    "int8": "int32", "uint8": "int32", "int16": "int32", "int32": "int32",
    "float16": "float32", "bfloat16": "float32",
}  # fmt: skip
RICH = "x86-64-v4,+avx512vnni,+avx512bf16,cores=2"  # a machine with instructions for bytes and bfloat16


def product(dtype: str, m: int = 9, n: int = 7, k: int = 19, total: str | None = None) -> ms.Program:
    """Narrow operands, wide sums, and a narrow result."""
    total = total or TOTAL[dtype]
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((k, n), dtype, name="B", constant=True)
    r = te.reduce_axis(k, name="r")
    sums = te.compute(
        (m, n), lambda i, j: te.sum(a[i, r].astype(total) * b[r, j].astype(total), axis=r), name="sums"
    )
    narrow = te.compute((m, n), lambda i, j: te.cast(te.maximum(sums[i, j], 3), dtype), name="narrow")
    return te.program([a, b], [narrow])


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    low = 0 if dtype == "uint8" else -100
    return tuple(rng.integers(low, 100, s).astype(numpy_dtype(dtype)) for s in ((9, 19), (19, 7)))  # pyright: ignore


def expected(dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = TOTAL[dtype]
    return np.maximum(a.astype(total) @ b.astype(total), 3).astype(numpy_dtype(dtype))


def assert_same(found: Any, want: np.ndarray, dtype: str) -> None:
    """Integers bit for bit; floats to the last digit of a narrow one."""
    found = np.asarray(found)
    assert found.dtype == want.dtype
    if dtype in ("float16", "bfloat16"):
        rtol = 2e-3 if dtype == "float16" else 1e-2
        np.testing.assert_allclose(found.astype("float64"), want.astype("float64"), rtol=rtol)
    else:
        np.testing.assert_array_equal(found, want)


each_type = pytest.mark.parametrize("dtype", list(TOTAL))


@each_type
def test_programs(dtype: str) -> None:
    """The script reads back; what is interpreted and what the zero-trial schedule gives is right, for arrays,
    and for tensors of torch through DLPack."""
    program, (a, b) = product(dtype), operands(dtype)
    want = expected(dtype, a, b)
    assert ms.structural_equal(ms.parse(str(program)), program)
    assert_same(ms.interpret(program, a, b), want, dtype)
    kernel = ms.build(program, constants={"B": b})
    assert_same(kernel(a), want, dtype)


@each_type
def test_tensors_of_torch(dtype: str) -> None:
    torch: Any = pytest.importorskip("torch")
    program, (a, b) = product(dtype), operands(dtype)
    given = [torch.from_numpy(x.astype("float32")).to(getattr(torch, dtype)) for x in (a, b)]
    found = torch.empty(9, 7, dtype=getattr(torch, dtype))
    ms.build(ms.Schedule(program))(*given, found)
    want = torch.from_numpy(expected(dtype, a, b).astype("float32")).to(found.dtype)
    torch.testing.assert_close(
        found.float(), want.float(), rtol=1e-2 if found.is_floating_point() else 0, atol=0
    )


@pytest.mark.parametrize(("dtype", "faster"), [("int8", 1.8), ("uint8", 1.8), ("bfloat16", 1.3)])
def test_zero_trials_take_instructions(dtype: str, faster: float) -> None:
    """And the cost model knows that they do more at once; a trace with one replays from JSON."""
    target = resolve(RICH)
    model, program = Analytical(target), product(dtype, 128, 128, 256)
    sch = schedule_untuned(program, target)
    assert "tensorize" in str(sch.trace)
    wide = schedule_untuned(product("float32", 128, 128, 256, total="float32"), target)
    narrow_time, wide_time = predict_seconds(model, [sch])[0], predict_seconds(model, [wide])[0]
    assert narrow_time * faster < wide_time
    replayed = ms.Trace.from_json(sch.trace.to_json()).apply(program)
    assert ms.structural_equal(replayed.program, sch.program)
