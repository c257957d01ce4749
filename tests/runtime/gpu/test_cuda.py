"""Calls through the CUDA driver's interface: a driver of the tests runs the kernels on the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.runtime import KernelIndexError
from metaschedule.runtime.gpu import arrays, cuda, device
from tests.codegen.gpu.schedules import bound_product, tiled_product
from tests.codegen.gpu.test_shuffles import divide, sums
from tests.runtime.gpu.driver import Driver

TARGET = "cuda:sm_75"  # without asynchronous copies, which g++ has not


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path)

    def compile(source: str, target: Any) -> Any:
        image = f"image {len(made.sources)}".encode()
        made.sources[image] = source
        return SimpleNamespace(cubin=image)

    monkeypatch.setattr(cuda, "load_driver", lambda: made)
    monkeypatch.setattr(cuda, "compile_cuda", compile)
    caches = (device.open_device, arrays.cuda_device)
    for cache in caches:
        cache.cache_clear()
    yield made
    for cache in caches:
        cache.cache_clear()
    assert not made.contexts  # nothing stays current


class Resident:
    """An array on the device, as CuPy's say what they are."""

    def __init__(self, data: np.ndarray, stream: int | None = None, shift: int = 0) -> None:
        self.memory = np.zeros(data.nbytes + 64 + shift, np.uint8)
        start = -self.memory.ctypes.data % 64 + shift
        self.array = self.memory[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
        self.array[...] = data
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = dict(self.array.__array_interface__)
        return found | {"version": 3, "strides": None, "stream": self.stream}


def operands(program: ms.ir.Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, b.shape).astype("float32") for b in program.inputs]


def test_arrays_of_the_host_are_copied(driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=37, m=33, k=20)
    for sch in (bound_product(program), tiled_product(program)):
        exe, (x, y) = ms.build(sch, target=TARGET), operands(program)
        np.testing.assert_array_equal(exe(x, y), x @ y)
        assert exe.benchmark(x, y).median == pytest.approx(0.25e-3)


@pytest.mark.parametrize("virtual", [1, 2])
def test_results_are_stored_as_vectors(virtual: int, driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=64, m=96, k=16)
    exe, (x, y) = ms.build(tiled_product(program, virtual=virtual), target=TARGET), operands(program)
    lanes = 4 // virtual
    assert f"*(float{lanes}*)(v_matmul_ +" in exe.source("cuda")
    np.testing.assert_array_equal(exe(x, y), x @ y)


def test_what_results_are_computed_by_is_stored_as_vectors(driver: Driver) -> None:
    x, y = te.placeholder((32, 32), name="x"), te.placeholder((32,), name="y")
    program = te.program([x, y], [te.compute((32, 32), lambda i, j: te.exp(x[i, j]) + y[j], name="z")])
    sch = ms.Schedule(program)
    i, j = sch.get_loops(sch.get_block("z"))
    threads, vector = sch.split(j, [None, 4])
    sch.bind(i, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    sch.vectorize(vector)
    exe, inputs = ms.build(sch, target=TARGET), operands(program)
    assert "*(float4*)(v_z_ +" in exe.source("cuda")
    np.testing.assert_allclose(exe(*inputs), np.exp(inputs[0]) + inputs[1], rtol=1e-5)


def test_memory_is_freed_with_the_executable(driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    exe, (x, y) = ms.build(bound_product(program, 16), target=TARGET), operands(program)
    exe(x, y)
    assert len(driver.memory) == 4  # two inputs, the output, the status
    del exe
    assert not driver.memory


def test_arrays_on_the_device_are_used_as_they_are(driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=9, m=33, k=20)
    exe, (x, y) = ms.build(bound_product(program), target=TARGET), operands(program)
    out = Resident(np.zeros((1, 9, 33), "float32"), stream=7)
    driver.log.clear()
    exe(Resident(x, stream=7), Resident(y, stream=7), out)
    np.testing.assert_array_equal(out.array, x @ y)
    assert "stream 7" in driver.log
    assert not [call for call in driver.log if call.startswith("cuMemcpy") or call == "cuStreamSynchronize"]
    mixed = Resident(np.zeros((1, 9, 33), "float32"))
    exe(Resident(x), y, mixed)
    np.testing.assert_array_equal(mixed.array, x @ y)


def test_outputs_of_unknown_arrays_must_be_given(driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    exe, (x, y) = ms.build(bound_product(program, 16), target=TARGET), operands(program)
    with pytest.raises(TypeError, match="pass the outputs, too"):
        exe(Resident(x), Resident(y))


def test_memory_that_vectors_cannot_be_loaded_from_is_refused(driver: Driver) -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    exe, (x, y) = ms.build(bound_product(program, 16), target=TARGET), operands(program)
    out = Resident(np.zeros((1, 4, 4), "float32"))
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        exe(Resident(x, shift=4), Resident(y), out)
    shared = Resident(x)
    with pytest.raises(ValueError, match="overlaps"):
        exe(shared, Resident(y), shared)


def test_a_check_that_fails_is_an_error(driver: Driver) -> None:
    x, at = te.placeholder((5,), name="x"), te.placeholder((3,), "int32", name="at")
    program = te.program([x, at], [te.compute((3,), lambda i: x[at[i]], name="y")])
    exe, data = ms.build(program, target=TARGET), np.arange(5, dtype="float32")
    where = np.array([4, 0, 2], "int32")
    np.testing.assert_array_equal(exe(data, where), data[where])
    with pytest.raises(KernelIndexError, match="7"):
        exe(data, np.array([4, 7, 2], "int32"))


@pytest.mark.parametrize("name", ["SFM", "NRM", "C1D"])
def test_untuned_programs(name: str, driver: Driver) -> None:
    shapes = {
        "SFM": {"shape": (3, 70)},
        "NRM": {"b": 2, "m": 3, "n": 17},
        "C1D": {"n": 1, "l": 9, "ci": 2, "co": 3, "k": 3, "s": 2, "p": 1},
    }
    program = ms.workloads.create(name, **shapes[name])
    inputs = operands(program)
    np.testing.assert_allclose(
        ms.build(program, target=TARGET)(*inputs), ms.interpret(program, *inputs), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("threads", "rows"), [(8, 3), (96, None)])
def test_warps_shuffle(threads: int, rows: int | None, driver: Driver) -> None:
    exe = ms.build(divide(sums(5, 200), threads, rows), target=TARGET)
    assert "__shfl_down_sync" in exe.source("cuda")
    x = np.random.default_rng(0).integers(-9, 9, (5, 200)).astype("float32")
    np.testing.assert_array_equal(exe(x), x.sum(axis=1))


def test_what_the_driver_refuses_says_so(driver: Driver) -> None:
    with pytest.raises(device.DeviceError, match="cuDeviceGet: error number 101"):
        cuda.Cuda(1)
