"""Kernels of GPUs in this process: programs as data, executables, devices, NVIDIA's compiler."""

from .executable import DeviceExecutable
from .program import DeviceProgram, Launch, Temporary

__all__ = ["DeviceExecutable", "DeviceProgram", "Launch", "Temporary"]
