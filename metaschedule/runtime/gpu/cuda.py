"""CUDA devices, through NVIDIA's driver by ctypes. Never run on a real device so far (docs/gpu.md)."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from metaschedule.ir import dense_strides, numpy_dtype
from metaschedule.target.detect_gpu import load_driver

from ..kernel import ArgSpec
from .device import Device, DeviceError
from .nvrtc import compile_cuda
from .program import DeviceProgram, Launch

ALIGNMENT = 16  # bytes: the widest load of a thread faults anywhere else


class Memory(ctypes.c_uint64):
    """An address on a device, which a launch takes by reference. What else is set on it lives as long."""

    owner: Any = None


class Cuda(Device):
    """A CUDA device, the first if no other is asked for, in its primary context, which torch and CuPy use,
    too; and one of its streams, by the number that torch and CuPy give (0: the default one)."""

    alignment = ALIGNMENT

    def __init__(self, ordinal: int = 0, stream: int = 0) -> None:
        driver = load_driver()
        if driver is None:
            raise DeviceError(
                "no CUDA device here: NVIDIA's driver (libcuda.so.1) is not installed; everything but calls "
                "works without one: source('cuda'), source('ptx'), resources()"
            )
        self.driver: Any = driver
        self.ordinal, self.stream = ordinal, ctypes.c_void_p(stream or None)
        self.key, self.context_key = ("cuda", ordinal, stream), ("cuda", ordinal)
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def shares_memory_with(self, other: Device) -> bool:
        return isinstance(other, Cuda) and other.ordinal == self.ordinal

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self.driver, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            what = text.value.decode() if text.value else f"error {code}"
            raise DeviceError(f"CUDA's {name}: {what}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A context is current for a thread: put back what was there, for torch."""
        self.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def compile(self, program: DeviceProgram) -> dict[str, Any]:
        binary = compile_cuda(program.sources["cuda"], program.target)
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), binary.cubin)
        found: dict[str, Any] = {}
        for launch in program.launches:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, launch.kernel.encode())
            found[launch.kernel] = function
        return found

    def allocate(self, nbytes: int) -> Memory:
        memory = Memory()
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(max(16, nbytes)))
        # Freeing waits for what runs on the device. At exit the driver has gone before us.
        free = weakref.finalize(memory, free_memory, self.driver, self.context, memory.value)
        free.atexit = False
        return memory

    def part(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        found = Memory(memory.value + offset)
        found.owner = memory
        return found

    def write(self, memory: Any, data: np.ndarray) -> None:
        if data.nbytes:
            at, size = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
            self.call("cuMemcpyHtoDAsync_v2", memory, at, size, self.stream)
            self.finish()  # until then `data` is read

    def read(self, memory: Any, into: np.ndarray) -> None:
        if into.nbytes:
            at, size = ctypes.c_void_p(into.ctypes.data), ctypes.c_size_t(into.nbytes)
            self.call("cuMemcpyDtoHAsync_v2", at, memory, size, self.stream)
            self.finish()

    def launch(self, compiled: Any, launch: Launch, arguments: list[Any], timed: bool = False) -> Any:
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        start = [compiled[launch.kernel], *launch.grid, *launch.block, 0, self.stream, pointers, None]
        if not timed:
            self.call("cuLaunchKernel", *start)
            return None
        before, after = self.event(), self.event()
        self.call("cuEventRecord", before, self.stream)
        self.call("cuLaunchKernel", *start)
        self.call("cuEventRecord", after, self.stream)
        return before, after

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def elapsed(self, events: list[Any]) -> float:
        total = 0.0
        for before, after in events:
            self.call("cuEventSynchronize", after)
            passed = ctypes.c_float()
            self.call("cuEventElapsedTime", ctypes.byref(passed), before, after)
            total += passed.value * 1e-3
            for event in (before, after):
                self.call("cuEventDestroy_v2", event)
        return total

    def finish(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def empty_like(self, spec: ArgSpec, example: Any) -> Any:
        strides = spec.strides or dense_strides(spec.shape)
        library = type(example).__module__.partition(".")[0]
        if library == "cupy":
            cupy: Any = sys.modules["cupy"]
            dtype = numpy_dtype(spec.dtype)
            with cupy.cuda.Device(self.ordinal):
                memory = cupy.cuda.alloc(max(1, spec.nbytes))
                return cupy.ndarray(spec.shape, dtype, memory, [n * dtype.itemsize for n in strides])
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(example, torch.Tensor):
            return torch.empty_strided(
                spec.shape, strides, dtype=getattr(torch, spec.dtype), device=example.device
            )
        raise TypeError(
            f"a {type(example).__name__} is on the device, and arrays of that kind are not made here; "
            f"pass the outputs, too: {spec}"
        )


def free_memory(driver: Any, context: Any, address: int) -> None:
    driver.cuCtxPushCurrent_v2(context)
    driver.cuMemFree_v2(ctypes.c_uint64(address))
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
