"""GPUs as targets: by architecture, by device, detected through a driver."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metaschedule.target import (
    DEVICES,
    KNOWN,
    NoDevice,
    Target,
    detect_gpu,
    missing_features,
    native,
    resolve,
)

ARCHITECTURES = [name for name in KNOWN if name.startswith("cuda:")]


@pytest.mark.parametrize("name", [*ARCHITECTURES, *DEVICES])
def test_a_gpu_is_data_and_its_figures_fit_together(name: str) -> None:
    target = resolve(name)
    gpu = target.gpu
    assert gpu is not None
    assert target.kind == gpu.language == name.partition(":")[0]
    assert Target.from_json(json.dumps(target.to_json())) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(resolve(name)) == hash(target)
    assert str(target).startswith(name)
    assert len(str(target)) < 120
    assert gpu.max_shared <= gpu.max_shared_optin <= gpu.shared
    assert gpu.max_threads <= gpu.resident_threads
    assert gpu.max_threads % gpu.warp == gpu.resident_threads % gpu.warp == 0
    assert gpu.rate("float64") <= gpu.rate("float32") <= gpu.rate("float16")
    assert gpu.dram_bandwidth < gpu.l2_bandwidth < gpu.shared_bytes * gpu.clock * gpu.multiprocessors
    assert gpu.latency_arithmetic < gpu.latency_shared < gpu.latency_l2 < gpu.latency_dram


def test_the_architectures_and_their_limits() -> None:
    assert [name[5:] for name in ARCHITECTURES] == ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]
    figures = {}
    for name in ARCHITECTURES:
        gpu = resolve(name).gpu
        assert gpu is not None
        figures[gpu.arch] = (
            gpu.shared >> 10,
            gpu.max_shared_optin >> 10,
            gpu.resident_threads,
            gpu.resident_blocks,
        )
    assert figures == {
        "sm_70": (96, 96, 2048, 32),
        "sm_75": (64, 64, 1024, 16),
        "sm_80": (164, 163, 2048, 32),
        "sm_86": (100, 99, 1536, 16),
        "sm_89": (100, 99, 1536, 24),
        "sm_90": (228, 227, 2048, 32),
    }


@pytest.mark.parametrize(
    ("name", "tera"),
    [("a100", 19.5), ("rtx-3090", 35.6), ("rtx-a4000", 19.2), ("h100", 61.9), ("v100", 15.7)],
)
def test_peaks_are_those_of_the_data_sheets(name: str, tera: float) -> None:
    gpu = resolve(f"cuda:{name}").gpu
    assert gpu is not None
    assert gpu.peak("float32") / 1e12 == pytest.approx(tera, rel=0.1)
    assert gpu.peak("mma.nothing") == 0


def test_a_cpu_is_no_gpu() -> None:
    target = resolve("x86-64-v3")
    assert target.gpu is None
    assert target.kind == "cpu"
    assert "gpu" not in target.to_json()


def test_options_change_figures_and_the_key() -> None:
    plain, other = resolve("cuda:sm_86"), resolve("cuda:sm_86,multiprocessors=84,dram_bandwidth=768e9")
    assert other.gpu is not None
    assert (other.gpu.multiprocessors, other.cores, other.gpu.dram_bandwidth) == (84, 84, 768e9)
    assert other.key != plain.key
    assert other.gpu.max_shared == 48 << 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda:sm_12", "unknown target 'cuda:sm_12'; known are native, .*cuda:sm_86.*cuda:rtx-a4000"),
        ("cuda:sm_86,cores=2", "unknown option 'cores=2' of a GPU; known are multiprocessors=N"),
        ("cuda:sm_86,warp=0", "'warp' must be a positive number, got '0'"),
        ("cuda:sm_86,l2=1.5", "'l2' must be a positive number, got '1.5'"),
        ("cuda:sm_86,clock=fast", "'clock' must be a positive number, got 'fast'"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(text)


class FakeDriver:
    """The functions of libcuda that detection calls, for one device or none."""

    def __init__(self, attributes: dict[int, int], count: int = 1, status: int = 0) -> None:
        self.attributes, self.count, self.status = attributes, count, status

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, out: Any) -> int:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = self.count
        return 0

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:
        return 0

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:
        out.value = b"NVIDIA Test 1"
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: Any) -> int:
        if attribute not in self.attributes:
            return 1
        ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = self.attributes[attribute]
        return 0


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Devices are looked for again, and not remembered."""
    for name in ("detect_cuda", "detect_opencl", "find_opencl"):
        monkeypatch.setattr(detect_gpu, name, getattr(detect_gpu, name).__wrapped__)
    return monkeypatch


def test_a_device_is_what_the_driver_says(forget: pytest.MonkeyPatch) -> None:
    attributes = {
        75: 8,
        76: 9,
        16: 60,
        13: 2_475_000,
        36: 9_001_000,
        37: 192,
        38: 32 << 20,
        97: 101376,
        106: 24,
    }
    forget.setattr(detect_gpu, "load_driver", lambda: FakeDriver(attributes))
    target = resolve("cuda")
    gpu = target.gpu
    assert gpu is not None
    assert (gpu.device, gpu.arch, gpu.multiprocessors, gpu.l2) == ("NVIDIA Test 1", "sm_89", 60, 32 << 20)
    assert gpu.dram_bandwidth == pytest.approx(432e9, rel=0.01)
    assert gpu.resident_threads == 1536  # an old driver that does not tell: as the architecture has it
    assert target.key == "cuda:sm_89:NVIDIA Test 1:m60"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (None, "libcuda.so.1, is not installed"),
        (FakeDriver({}, status=100), "cuInit says error 100"),
        (FakeDriver({}, count=0), "the driver finds none"),
    ],
)
def test_without_a_device_the_message_says_what_to_do(
    forget: pytest.MonkeyPatch, driver: FakeDriver | None, message: str
) -> None:
    forget.setattr(detect_gpu, "load_driver", lambda: driver)
    with pytest.raises(
        NoDevice, match=f"no CUDA device here .*{message}.*name what to compile for, as cuda:sm_86"
    ):
        resolve("cuda")


def test_without_pyopencl_the_message_says_what_to_install(forget: pytest.MonkeyPatch) -> None:
    forget.setitem(__import__("sys").modules, "pyopencl", None)
    with pytest.raises(NoDevice, match=r"pip install 'metaschedule\[opencl\]'"):
        resolve("opencl")


def test_opencl_devices() -> None:
    told = {"name": "pocl", "max_compute_units": 4, "max_clock_frequency": 3000, "max_work_group_size": 4096}
    told |= {"local_mem_size": 1 << 19, "native_vector_width_float": 8, "global_mem_cache_size": 1 << 25}
    told |= {"global_mem_cacheline_size": 64, "vendor": "NVIDIA Corporation"}
    cpu = detect_gpu.describe_opencl(SimpleNamespace(**told), is_cpu=True)
    assert (cpu.warp, cpu.multiprocessors, cpu.max_threads, cpu.max_shared) == (8, 4, 4096, 1 << 19)
    gpu = detect_gpu.describe_opencl(SimpleNamespace(**told | {"max_work_group_size": 512}), is_cpu=False)
    assert (gpu.warp, gpu.max_threads, gpu.language) == (32, 512, "opencl")


def test_the_opencl_device_of_this_machine() -> None:
    pytest.importorskip("pyopencl")
    try:
        target = resolve("opencl")
    except NoDevice as error:
        pytest.skip(str(error))
    assert target.gpu is not None
    assert target.kind == "opencl"
    assert target.gpu.max_threads >= 1
    assert missing_features(target) == []


def test_kernels_of_a_gpu_need_one(forget: pytest.MonkeyPatch) -> None:
    if native().arch and detect_gpu.load_driver() is None:
        assert "no CUDA device" in missing_features(resolve("cuda:sm_86"))[0]


def test_a_device_that_compiles_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")
    from metaschedule.target import opencl_devices

    class Device(SimpleNamespace):
        platform = SimpleNamespace(version="OpenCL 3.0 Old")

    old, new = Device(name="old", type=cl.device_type.GPU), Device(name="new", type=cl.device_type.CPU)
    monkeypatch.setattr(
        opencl_devices, "list_platforms", lambda cl: [SimpleNamespace(get_devices=lambda: found)]
    )
    monkeypatch.setattr(
        opencl_devices, "why_useless", lambda device: "old compiles nothing" if device is old else None
    )
    find = opencl_devices.find_opencl.__wrapped__
    found = [new, old]
    assert find() is new
    found = [old]
    with pytest.raises(NoDevice, match="old compiles nothing; .*pip install"):
        find()


def test_an_opencl_that_pip_installed_is_found_beside_those_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from metaschedule.target import opencl_devices

    for name in opencl_devices.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "libother.so").touch()
    (tmp_path / "other.icd").write_text("libother.so\n")
    seen = {}

    def get_platforms() -> list[Any]:
        vendors = Path(os.environ["OCL_ICD_VENDORS"])
        seen.update({file.name: file.read_text().strip() for file in vendors.iterdir()})
        return []

    monkeypatch.setattr(opencl_devices, "find_intel_library", lambda: tmp_path / "libintelocl.so")
    monkeypatch.setattr(opencl_devices, "list_vendor_files", lambda: [tmp_path / "other.icd"])
    assert opencl_devices.list_platforms(SimpleNamespace(get_platforms=get_platforms)) == []
    assert seen == {
        "other.icd": str(tmp_path / "libother.so"),
        "intel-of-pip.icd": str(tmp_path / "libintelocl.so"),
    }
    assert "OCL_ICD_VENDORS" not in os.environ
