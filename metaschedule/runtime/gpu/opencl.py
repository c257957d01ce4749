"""OpenCL devices, through pyopencl."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .device import Device, DeviceError
from .program import DeviceProgram, Launch

INSTALL = "pip install 'metaschedule[opencl]' (pyopencl, and PoCL, which runs kernels on the CPU)"


class OpenCL(Device):
    """The first OpenCL device, GPUs before others: the one that the target "opencl" describes."""

    def __init__(self) -> None:
        try:
            import pyopencl as cl
        except ImportError as error:
            raise DeviceError(f"OpenCL needs the package pyopencl: {INSTALL}") from error
        self.cl: Any = cl
        try:
            devices = [d for platform in cl.get_platforms() for d in platform.get_devices()]
        except cl.Error as error:
            raise DeviceError(f"no OpenCL platform here: {INSTALL}") from error
        if not devices:
            raise DeviceError(f"no OpenCL device here: {INSTALL}")
        device = min(devices, key=lambda d: bool(d.type & cl.device_type.CPU))
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)

    def compile(self, program: DeviceProgram) -> dict[str, Any]:
        source = program.sources["opencl"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers are talkative
            try:
                built = self.cl.Program(self.context, source).build(options=["-cl-std=CL1.2"])
            except self.cl.RuntimeError as error:
                raise RuntimeError(
                    f"{program.name}: the OpenCL compiler refused the kernel: {error}"
                ) from error
            return {launch.kernel: self.cl.Kernel(built, launch.kernel) for launch in program.launches}

    def allocate(self, nbytes: int) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(16, nbytes))

    def write(self, memory: Any, data: np.ndarray) -> None:
        if data.nbytes:
            self.cl.enqueue_copy(self.queue, memory, data.view(np.uint8), is_blocking=True)

    def read(self, memory: Any, into: np.ndarray) -> None:
        if into.nbytes:
            self.cl.enqueue_copy(self.queue, into.view(np.uint8), memory, is_blocking=True)

    def launch(self, compiled: Any, launch: Launch, arguments: list[Any]) -> Any:
        kernel = compiled[launch.kernel]
        kernel.set_args(*arguments)
        sizes = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
        return self.cl.enqueue_nd_range_kernel(self.queue, kernel, sizes, launch.block)

    def elapsed(self, events: list[Any]) -> float:
        for event in events:
            event.wait()
        return sum((e.profile.end - e.profile.start) * 1e-9 for e in events)

    def finish(self) -> None:
        self.queue.finish()
