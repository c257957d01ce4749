"""`metaschedule doctor --gpu`: what is missing is said, what is there is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from metaschedule.report import gpu_doctor
from metaschedule.runtime.gpu.device import DeviceError
from metaschedule.target import detect_gpu, opencl_devices, resolve
from tests.codegen.gpu.schedules import opencl


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def no_compiler() -> None:
        raise DeviceError("NVIDIA's compiler NVRTC is not installed: pip install ...")

    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(detect_gpu, "load_driver", lambda: None)
    monkeypatch.setattr(gpu_doctor, "load_nvrtc", no_compiler)
    found = (opencl_devices.find_opencl, detect_gpu.detect_cuda, detect_gpu.detect_opencl)
    for cached in found:
        cached.cache_clear()
    yield
    for cached in found:
        cached.cache_clear()


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_says_what_to_install() -> None:
    findings = {finding.name: finding for finding in gpu_doctor.examine_gpus()}
    assert [finding.ok for finding in findings.values()] == [None, None, None]
    assert "pip install" in findings["nvrtc"].text
    assert "pip install" in findings["opencl device"].text
    assert "driver" in findings["cuda device"].text


def test_a_device_is_tried() -> None:
    opencl()
    findings = {finding.name: finding for finding in gpu_doctor.examine_device(resolve("opencl"))}
    assert all(finding.ok is not False for finding in findings.values()), findings
    assert findings["opencl verify"].ok
    assert "GFLOPS" in findings["opencl benchmark"].text


def test_a_wrong_result_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_: object) -> str:
        raise RuntimeError("the result is wrong by 3")

    monkeypatch.setattr(gpu_doctor, "verify_product", wrong)
    monkeypatch.setattr(gpu_doctor, "time_product", wrong)
    for name in ("open_it", "run_probe", "use_shared", "use_more_shared"):
        monkeypatch.setattr(gpu_doctor, name, lambda _: "fine")
    findings = list(gpu_doctor.examine_device(resolve("opencl:w6600")))
    assert [finding.ok for finding in findings].count(False) == 2
