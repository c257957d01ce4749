"""OpenCL devices, through pyopencl."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from metaschedule.ir import dense_strides, numpy_dtype
from metaschedule.target import NoDevice
from metaschedule.target.opencl_devices import find_opencl, import_pyopencl, why_useless

from ..kernel import ArgSpec
from .device import Device, DeviceError
from .program import DeviceProgram, Launch

CPU = 2  # CL_DEVICE_TYPE_CPU


class OpenCL(Device):
    """The first OpenCL device, GPUs before others: the one that the target "opencl" describes. Given a
    queue, which arrays of pyopencl have, the device and the context of that one."""

    def __init__(self, queue: Any = None) -> None:
        try:
            cl = self.cl = import_pyopencl()
            device = queue.device if queue else find_opencl()
        except NoDevice as error:
            raise DeviceError(str(error)) from error
        if queue is not None and (complaint := why_useless(device)):
            raise DeviceError(complaint)
        timed = cl.command_queue_properties.PROFILING_ENABLE
        # Kept here because in Intel's OpenCL a queue does not keep its context.
        self.context = queue.context if queue else cl.Context([device])
        self.queue = queue or cl.CommandQueue(self.context, properties=timed)
        self.key = ("opencl", self.queue.int_ptr)
        self.context_key = ("opencl", self.context.int_ptr, device.int_ptr)
        self.alignment = max(16, device.mem_base_addr_align // 8)
        self.options = ["-cl-std=CL1.2"]
        if is_miscompiled(device):
            self.options.append("-cl-opt-disable")
        # Launches are timed by a queue that can tell.
        properties = self.queue.properties
        self.clock = self.queue if properties & timed else cl.CommandQueue(self.context, properties=timed)
        self.any_order = bool(properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)

    def shares_memory_with(self, other: Device) -> bool:
        return isinstance(other, OpenCL) and other.context == self.context

    def compile(self, program: DeviceProgram) -> dict[str, Any]:
        source = program.sources["opencl"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers are talkative
            try:
                built = self.cl.Program(self.context, source).build(options=self.options)
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


def is_miscompiled(device: Any) -> bool:
    """Whether the compiler of a device breaks kernels when it optimises. Intel's for CPUs (2026.22.10) did so
    to 2 of 100 candidates of a convolution: what is fetched into shared memory between two barriers is read
    before it is there, with any width of vectors, and not if the same kernel clears that memory first."""
    return "Intel" in device.platform.name and device.type & CPU != 0
