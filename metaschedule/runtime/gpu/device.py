"""`Device`: what an executable asks of OpenCL or CUDA. Each is loaded when a kernel is to run on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np

from metaschedule.target import Target

from .program import DeviceProgram, Launch


class DeviceError(RuntimeError):
    """There is no device, or no compiler, for what is to run; the message says what to install."""


class Device(ABC):
    """Memory, kernels and a clock."""

    @abstractmethod
    def compile(self, program: DeviceProgram) -> Any:
        """The kernels of a program, ready to be launched."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Any: ...

    @abstractmethod
    def write(self, memory: Any, data: np.ndarray) -> None:
        """Fill memory with the bytes of an array without gaps."""

    @abstractmethod
    def read(self, memory: Any, into: np.ndarray) -> None: ...

    @abstractmethod
    def launch(self, compiled: Any, launch: Launch, arguments: list[Any]) -> Any:
        """Start a kernel; what it returns `elapsed` understands."""

    @abstractmethod
    def elapsed(self, events: list[Any]) -> float:
        """Seconds that some launches took, once they have ended."""

    @abstractmethod
    def finish(self) -> None: ...


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
