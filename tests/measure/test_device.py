"""Candidates for a GPU, measured on an OpenCL device."""

from __future__ import annotations

from pathlib import Path

import pytest

import metaschedule as ms
from tests.codegen.gpu.schedules import nvrtc, opencl


def test_what_is_predicted_to_be_fastest_is_built_for_the_device() -> None:
    nvrtc()
    program = ms.workloads.create("GMM", b=1, n=16, m=24, k=8)
    result = ms.tune(program, target="cuda:sm_86", trials=2)
    assert result.kind == "predicted"
    assert "__global__" in result.build().source("cuda")


@pytest.mark.slow
def test_tuning_measures_on_the_device_and_keeps_its_records_apart(tmp_path: Path) -> None:
    opencl()
    program = ms.workloads.create("GMM", b=1, n=16, m=24, k=8)
    database = str(tmp_path / "records.db")
    result = ms.tune(program, target="opencl", trials=2, database=database)
    assert {record.outcome for record in result.records} == {"ok"}
    assert result.latency is not None
    keys = {record.target for record in result.records}
    assert all(key.startswith("opencl:") for key in keys)
    (x, y) = ms.runtime.random_arrays(result.build().inputs)
    assert abs(result.build()(x, y) - x @ y).max() < 1e-4
