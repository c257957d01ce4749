"""Programs for GPUs: `lower` (program to kernels), `emit` (kernels to CUDA C and OpenCL C)."""

from .generate import device_executable, generate_device_program

__all__ = ["device_executable", "generate_device_program"]
