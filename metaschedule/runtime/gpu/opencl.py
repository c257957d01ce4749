"""OpenCL devices, through pyopencl."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from metaschedule.ir import dense_strides, numpy_dtype

from ..kernel import ArgSpec
from .device import Device, DeviceError
from .program import DeviceProgram, Launch

INSTALL = "pip install 'metaschedule[opencl]' (pyopencl, and PoCL, which runs kernels on the CPU)"

PROBE = "__kernel void probe(__global int* x) { *x = 1; }"


class OpenCL(Device):
    """The first OpenCL device, GPUs before others: the one that the target "opencl" describes. Given a
    queue, which arrays of pyopencl have, the device and the context of that one."""

    def __init__(self, queue: Any = None) -> None:
        try:
            import pyopencl as cl
        except ImportError as error:
            raise DeviceError(f"OpenCL needs the package pyopencl: {INSTALL}") from error
        self.cl: Any = cl
        timed = cl.command_queue_properties.PROFILING_ENABLE
        if queue is None:
            queue = cl.CommandQueue(cl.Context([self.first_device()]), properties=timed)
        self.queue, self.context = queue, queue.context
        self.key = ("opencl", queue.int_ptr)
        self.context_key = ("opencl", queue.context.int_ptr, queue.device.int_ptr)
        self.alignment = max(16, queue.device.mem_base_addr_align // 8)
        # Launches are timed by a queue that can tell.
        self.clock = queue if queue.properties & timed else cl.CommandQueue(self.context, properties=timed)
        self.check_compiler()
        self.any_order = bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)

    def shares_memory_with(self, other: Device) -> bool:
        return isinstance(other, OpenCL) and other.context == self.context

    def check_compiler(self) -> None:
        """That it compiles anything: one that is older than the CPU that it compiles for may not."""
        device = self.queue.device
        try:
            self.cl.Program(self.context, PROBE).build(devices=[device])
        except self.cl.RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
            raise DeviceError(
                f"the OpenCL compiler of {device.name} ({device.platform.version.strip()}) compiles nothing"
                f"{': ' if lines else ''}{'; '.join(lines)}; a newer version, or another OpenCL, is needed"
            ) from error

    def first_device(self) -> Any:
        try:
            devices = [d for platform in self.cl.get_platforms() for d in platform.get_devices()]
        except self.cl.Error as error:
            raise DeviceError(f"no OpenCL platform here: {INSTALL}") from error
        if not devices:
            raise DeviceError(f"no OpenCL device here: {INSTALL}")
        return min(devices, key=lambda d: bool(d.type & self.cl.device_type.CPU))

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

    def part(self, memory: Any, offset: int, nbytes: int) -> Any:
        return memory.get_sub_region(offset, max(1, nbytes))

    def write(self, memory: Any, data: np.ndarray) -> None:
        if data.nbytes:
            self.cl.enqueue_copy(self.queue, memory, data.view(np.uint8), is_blocking=True)

    def read(self, memory: Any, into: np.ndarray) -> None:
        if into.nbytes:
            self.cl.enqueue_copy(self.queue, into.view(np.uint8), memory, is_blocking=True)

    def launch(self, compiled: Any, launch: Launch, arguments: list[Any], timed: bool = False) -> Any:
        kernel = compiled[launch.kernel]
        kernel.set_args(*arguments)
        sizes = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
        queue = self.clock if timed else self.queue
        event = self.cl.enqueue_nd_range_kernel(queue, kernel, sizes, launch.block)
        if self.any_order and not timed:
            self.cl.enqueue_barrier(queue)
        return event

    def elapsed(self, events: list[Any]) -> float:
        for event in events:
            event.wait()
        return sum((e.profile.end - e.profile.start) * 1e-9 for e in events)

    def finish(self) -> None:
        self.queue.finish()

    def empty_like(self, spec: ArgSpec, example: Any) -> Any:
        from pyopencl import array

        dtype = numpy_dtype(spec.dtype)
        strides = [n * dtype.itemsize for n in spec.strides or dense_strides(spec.shape)]
        if spec.strides is None:
            return array.empty(self.queue, spec.shape, dtype)
        data = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(1, spec.nbytes))
        return array.Array(self.queue, spec.shape, dtype, strides=tuple(strides), data=data)
