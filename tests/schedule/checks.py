"""What every test of a primitive uses.

`check(sch, program)` is the differential test and the round trip in one: the schedule's program is well
formed, computes what the original does (interpreted and compiled), and its trace replays from JSON and from
its own Python text to the same program and the same trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.ir import Buffer, Program, is_float, numpy_dtype
from metaschedule.runtime import Executable
from metaschedule.schedule import Schedule, Trace
from metaschedule.target import Target, missing_features, native, resolve


def inputs_of(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Small integers: sums of products of them are exact in any order."""
    rng = np.random.default_rng(seed)

    def values(b: Buffer) -> np.ndarray:
        low, high = (0, 2) if b.dtype == "bool" else (0, 4) if b.dtype == "uint8" else (-3, 4)
        return rng.integers(low, high, b.shape).astype(numpy_dtype(b.dtype))

    return [values(b) for b in program.inputs]


def runnable() -> Target:
    """What METASCHEDULE_TARGET asks for if this machine can run it, else this machine."""
    asked = resolve("native")
    return native() if missing_features(asked) else asked


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


def assert_same_results(
    before: Program, after: Program, compiled: bool = True, inputs: Any = None, rounding: float = 0.0
) -> None:
    """Both programs compute the same; exactly for integers, and for floats of small integers nearly, with
    `rounding` errors relative to the largest result."""
    arrays = inputs_of(before) if inputs is None else inputs
    expected = as_tuple(ms.interpret(before, *arrays))
    results = [("interpreted", ms.interpret(after, *arrays))]
    if compiled:
        results.append(("compiled", Executable(generate(after, runnable()))(*arrays)))
    for how, result in results:
        for want, got, buffer in zip(expected, as_tuple(result), before.outputs, strict=True):
            if is_float(buffer.dtype):
                tolerance = 1e-2 if buffer.dtype in ("float16", "bfloat16") else 1e-5
                finite = np.isfinite(np.asarray(want, "float64"))
                largest = np.abs(np.asarray(want, "float64")).max(initial=0, where=finite)
                np.testing.assert_allclose(
                    np.asarray(got, "float64"), np.asarray(want, "float64"), rtol=tolerance,
                    atol=max(tolerance, rounding * largest),
                    err_msg=f"{how}: {buffer.name}\n{after}",
                )  # fmt: skip
            else:
                np.testing.assert_array_equal(got, want, err_msg=f"{how}: {buffer.name}\n{after}")


def check(
    sch: Schedule, program: Program, compiled: bool = True, inputs: Any = None, rounding: float = 0.0
) -> None:
    ms.verify(sch.program)
    assert_same_results(program, sch.program, compiled, inputs, rounding)
    check_round_trip(sch, program)


def check_round_trip(sch: Schedule, program: Program) -> None:
    trace = sch.trace
    again = Trace.from_json(trace.to_json())
    assert str(again) == str(trace)
    assert again == trace
    replayed = again.apply(program)
    assert str(replayed.program) == str(sch.program)
    assert str(replayed.trace) == str(trace)
    pasted = Schedule(program)
    exec(str(trace), {"sch": pasted, "ms": ms})
    assert str(pasted.program) == str(sch.program)
    assert ms.structural_equal(ms.parse(str(sch.program)), sch.program)
