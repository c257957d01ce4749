"""CUDA devices, through NVIDIA's driver by ctypes. Never run on a real device so far (docs/gpu.md)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from metaschedule.target.detect_gpu import load_driver

from .device import Device, DeviceError
from .nvrtc import compile_cuda
from .program import DeviceProgram, Launch


class Cuda(Device):
    """The first CUDA device, in its primary context, which torch and CuPy use, too."""

    def __init__(self) -> None:
        driver = load_driver()
        if driver is None:
            raise DeviceError(
                "no CUDA device here: NVIDIA's driver (libcuda.so.1) is not installed; everything but calls "
                "works without one: source('cuda'), source('ptx'), resources()"
            )
        self.driver: Any = driver
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self.driver, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            what = text.value.decode() if text.value else f"error {code}"
            raise DeviceError(f"CUDA's {name}: {what}")

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

    def allocate(self, nbytes: int) -> ctypes.c_uint64:
        memory = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(max(16, nbytes)))
        return memory

    def write(self, memory: Any, data: np.ndarray) -> None:
        if data.nbytes:
            self.call(
                "cuMemcpyHtoD_v2", memory, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
            )

    def read(self, memory: Any, into: np.ndarray) -> None:
        if into.nbytes:
            self.call(
                "cuMemcpyDtoH_v2", ctypes.c_void_p(into.ctypes.data), memory, ctypes.c_size_t(into.nbytes)
            )

    def launch(self, compiled: Any, launch: Launch, arguments: list[Any]) -> Any:
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        before, after = self.event(), self.event()
        self.call("cuEventRecord", before, None)
        self.call(
            "cuLaunchKernel", compiled[launch.kernel], *launch.grid, *launch.block, 0, None, pointers, None
        )
        self.call("cuEventRecord", after, None)
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
        self.call("cuCtxSynchronize")
