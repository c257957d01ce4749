"""Models whose kernels run on a GPU: the same plans, carried out by a device.

On CUDA, the tensors of a model are on the device: kernels get their addresses, and are started in torch's
current stream. An OpenCL device has memory of its own, so that tensors of the host are copied: before a row
of kernels what it reads, after it what it has written.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..ir import numpy_dtype
from ..runtime.gpu import DeviceExecutable
from ..runtime.gpu.arrays import cuda_device
from ..runtime.gpu.cuda import ALIGNMENT, Memory
from ..runtime.gpu.device import Device, device_of
from ..runtime.gpu.sequence import DeviceSequence
from ..runtime.sequence import KernelCall, Place
from ..target import Target
from .graph import Spec, map_argument
from .plan import CONSTANTS, FIRST, MEMORY, EagerStep, KernelStep, Plan, Ref
from .runner import Runner, dense


def device_runner(plan: Plan, target: Target, device: torch.device) -> Runner:
    """A runner for tensors that are on a device of torch's."""
    return CudaRunner(plan, device) if device.type == "cuda" else OpenCLRunner(plan, target)


class DeviceRunner(Runner):
    def _call(self, step: KernelStep) -> Any:
        executable: Any = self.plan.kernels[step.kernel].kernel
        assert isinstance(executable, DeviceExecutable)
        return KernelCall(executable, step.arguments, step.workspace)


class CudaRunner(DeviceRunner):
    def __init__(self, plan: Plan, device: torch.device) -> None:
        plan.constants[:] = [aligned(t) for t in plan.constants]
        super().__init__(plan, device)

    def _sequence(self, steps: Sequence[KernelStep]) -> Any:
        return CudaSequence(DeviceSequence([self._call(s) for s in steps]), self.plan.constants, self.device)

    def _dense(self, tensor: torch.Tensor) -> torch.Tensor:
        return aligned(dense(tensor))

    def _keep(self, memory: torch.Tensor) -> None:
        """Kernels may still be using it: torch's allocator gives it to the same stream only."""


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where kernels can load vectors from it."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


class CudaSequence:
    """Kernels of a model in torch's current stream."""

    def __init__(
        self, kernels: DeviceSequence, constants: Sequence[torch.Tensor], device: torch.device
    ) -> None:
        self.kernels, self.constants, self.device = kernels, constants, device

    def __call__(self, threads: int, *bases: int) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        device = cuda_device(self.device.index or 0, stream)

        def memory_of(place: Place, nbytes: int) -> Memory:
            if place.base == CONSTANTS:
                return Memory(self.constants[place.offset].data_ptr())
            return Memory(bases[place.base - 1] + place.offset)

        with device.entered():
            self.kernels.run(device, memory_of)


class OpenCLRunner(DeviceRunner):
    """One call at a time: the memory of the device is that of the runner."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.lock = threading.Lock()
        self.mirror = Mirror(plan, target)
        super().__init__(plan)

    def _sequence(self, steps: Sequence[KernelStep]) -> Any:
        return MirroredSequence(DeviceSequence([self._call(s) for s in steps]), self.mirror)

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        with self.lock:
            return super()._run(inputs)


class Mirror:
    """Memory of a device for the bases of a plan."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.device: Device = device_of(target)
        eager = [spec for step in plan.steps if isinstance(step, EagerStep) for spec in step.results]
        sizes = [plan.memory, *map(nbytes_of, [*plan.inputs, *plan.returned, *eager])]
        self.sizes = dict(enumerate(sizes, MEMORY))
        self.results = {FIRST + len(plan.inputs) + n for n in range(len(plan.returned))}
        self.memory: dict[int, Any] = {}
        self.parts: dict[tuple[Place, int], Any] = {}
        self.constants: dict[int, Any] = {}
        self.plan = plan
        refs: list[Ref] = []
        where = [(s.args, s.kwargs) for s in plan.steps if isinstance(s, EagerStep)]
        writes = [write.output for write in plan.writes if write.output is not None]
        map_argument([where, [o.source for o in (*plan.outputs, *writes)]], Ref, refs.append)
        self.is_read = any(ref.place.base == MEMORY for ref in refs)  # what kernels leave there, by torch

    def at(self, base: int) -> Any:
        if base not in self.memory:
            self.memory[base] = self.device.allocate(self.sizes[base])
        return self.memory[base]

    def of(self, place: Place, nbytes: int) -> Any:
        """The memory of a place: always a part of its base's, since OpenCL does not define what happens if a
        kernel is given both memory and a part of it."""
        if place.base != CONSTANTS:
            if (place, nbytes) not in self.parts:
                self.parts[place, nbytes] = self.device.part(self.at(place.base), place.offset, nbytes)
            return self.parts[place, nbytes]
        if place.offset not in self.constants:
            tensor = self.plan.constants[place.offset].contiguous()
            memory = self.constants[place.offset] = self.device.allocate(tensor.nbytes)
            self.device.write(memory, host_bytes(tensor.data_ptr(), tensor.nbytes))
        return self.constants[place.offset]


class MirroredSequence:
    """Kernels of a model on a device with memory of its own."""

    def __init__(self, kernels: DeviceSequence, mirror: Mirror) -> None:
        self.kernels, self.mirror = kernels, mirror
        reads, writes = set[int](), set[int]()
        for call in kernels.calls:
            count = len(call.executable.program.inputs)
            reads |= {place.base for place in call.arguments[:count]}
            writes |= {place.base for place in call.arguments[count:]}
        self.before = sorted((reads | writes) - mirror.results - {CONSTANTS, MEMORY})
        self.after = sorted(writes - {CONSTANTS, MEMORY}) + ([MEMORY] if mirror.is_read else [])

    def __call__(self, threads: int, *bases: int) -> None:
        mirror = self.mirror
        with mirror.device.entered():
            for base in self.before:
                mirror.device.write(mirror.at(base), host_bytes(bases[base - 1], mirror.sizes[base]))
            self.kernels.run(mirror.device, mirror.of)
            for base in self.after:
                mirror.device.read(mirror.at(base), host_bytes(bases[base - 1], mirror.sizes[base]))


def nbytes_of(spec: Spec) -> int:
    shape, dtype = spec
    return int(np.prod(shape, dtype=np.int64)) * numpy_dtype(dtype).itemsize


def host_bytes(address: int, size: int) -> np.ndarray:
    """Memory of the host as an array of bytes."""
    memory: Any = (ctypes.c_uint8 * size).from_address(address) if size else bytearray()
    return np.frombuffer(memory, np.uint8)
