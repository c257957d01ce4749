"""`Device`: what an executable asks of OpenCL or CUDA. Each is loaded when a kernel is to run on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from metaschedule.target import Target

from ..kernel import ArgSpec
from .program import DeviceProgram, Launch


class DeviceError(RuntimeError):
    """There is no device, or no compiler, for what is to run; the message says what to install."""


class Device(ABC):
    """Memory, kernels and a clock of a device, by one of its queues (CUDA: streams): what is started first
    happens first. `key` says which device and queue, `context_key` which device; `alignment` is that of
    memory that kernels are given."""

    key: Hashable
    context_key: Hashable
    alignment: int

    @abstractmethod
    def compile(self, program: DeviceProgram) -> Any:
        """The kernels of a program, ready to be launched."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """Memory, freed when nothing refers to it any more."""

    @abstractmethod
    def part(self, memory: Any, offset: int, nbytes: int) -> Any:
        """Memory within memory; `offset` is a multiple of the alignment."""

    @abstractmethod
    def write(self, memory: Any, data: np.ndarray) -> None:
        """Fill memory with the bytes of an array without gaps."""

    @abstractmethod
    def read(self, memory: Any, into: np.ndarray) -> None: ...

    @abstractmethod
    def launch(self, compiled: Any, launch: Launch, arguments: list[Any], timed: bool = False) -> Any:
        """Start a kernel; what it returns `elapsed` understands, if it is to be timed."""

    @abstractmethod
    def elapsed(self, events: list[Any]) -> float:
        """Seconds that some launches took, once they have ended."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for all that was started."""

    @abstractmethod
    def empty_like(self, spec: ArgSpec, example: Any) -> Any:
        """An array for an output, of the kind that `example`, an array on this device, is."""

    def shares_memory_with(self, other: Device) -> bool:
        """Whether kernels here may be given memory of another device: of another queue of the same one."""
        return False

    def __str__(self) -> str:
        return " ".join(map(str, self.key)) if isinstance(self.key, tuple) else str(self.key)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The thread may use the device inside."""
        yield


@cache
def open_device(kind: str) -> Device:
    """The device that kernels of a target run on: "opencl" or "cuda"."""
    if kind == "opencl":
        from .opencl import OpenCL

        return OpenCL()
    from .cuda import Cuda

    return Cuda()


def device_of(target: Target) -> Device:
    return open_device(target.kind)
