"""The kernels that reach the machine's limit are in the default space.

The traces were found by `benchmarks/contained.py --tune`, which shows how fast they are here and now; that
they are of the space, replay and compute what is meant is tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.build import declare_constants
from metaschedule.space import default
from tests.workloads.references import REFERENCES

TRACES = Path(__file__).parent / "traces"
KERNELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "GMM_128": ("GMM", {"b": 1, "n": 128, "m": 128, "k": 128}, []),
    "GMM_1024": ("GMM", {"b": 1, "n": 1024, "m": 1024, "k": 1024}, []),
    "C2D": ("C2D", dict(ms.workloads.configurations("C2D")[0]), []),
    "DIL": ("DIL", dict(ms.workloads.configurations("DIL")[0]), []),
    "FDENSE": ("FDENSE", dict(ms.workloads.configurations("FDENSE")[0]), ["W"]),
}


def steps(trace: ms.Trace) -> list[Any]:
    """The instructions, without decisions."""
    return [row[:3] for row in trace.as_data()["instructions"]]


@pytest.mark.parametrize("kernel", KERNELS)
def test_stored_kernel_is_in_the_space_and_right(kernel: str) -> None:
    name, config, constants = KERNELS[kernel]
    program = declare_constants(ms.workloads.create(name, **config), constants)
    trace = ms.Trace.from_json((TRACES / f"{kernel}.json").read_text())
    # The traces are for AVX2 with two cores; they replay, and are right, on every machine.
    sketches = default("x86-64-v3,cores=2").sketches(program)
    assert any(steps(sketch) == steps(trace) for sketch in sketches)
    rng = np.random.default_rng(0)
    values = {b.name: rng.standard_normal(b.shape, dtype="float32") for b in program.inputs}
    exe = ms.build(trace.apply(program), constants={c: values[c] for c in constants})
    got = exe(*[v for n, v in values.items() if n not in constants])
    want = REFERENCES[name](config, *values.values())
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))
