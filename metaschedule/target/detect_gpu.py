"""GPUs of this machine: the first CUDA device by the driver, the first OpenCL device by pyopencl.

Neither is asked before a target needs it. The driver is called through ctypes, because it comes with the
device and not with a package. What a device does not tell (rates, latencies, bandwidth of caches) is that
of its architecture.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from typing import Any

from .gpu import Gpu, NoDevice
from .gpus import assume_architecture, describe, rates
from .opencl_devices import find_opencl

# CUdevice_attribute of the driver's interface.
MAX_THREADS, MAX_SHARED, WARP, CLOCK_KHZ, MULTIPROCESSORS = 1, 8, 10, 13, 16
MEMORY_KHZ, BUS_BITS, L2, RESIDENT_THREADS, MAJOR, MINOR = 36, 37, 38, 39, 75, 76
SHARED, REGISTERS, SHARED_OPTIN, RESIDENT_BLOCKS, RESERVED_SHARED = 81, 82, 97, 106, 111
OPENCL_CPU = 2  # CL_DEVICE_TYPE_CPU
DRIVERS = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


@cache
def detect_cuda() -> Gpu:
    """The first CUDA device, as the driver describes it."""
    missing = "no CUDA device here ({}); name what to compile for, as cuda:sm_86"
    driver = load_driver()
    if driver is None:
        raise NoDevice(missing.format("NVIDIA's driver, libcuda.so.1, is not installed"))
    if code := driver.cuInit(0):
        raise NoDevice(missing.format(f"the driver's cuInit says error {code}"))
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise NoDevice(missing.format("the driver finds none"))
    return describe_cuda(driver, 0)


def load_driver() -> Any | None:
    """NVIDIA's driver library, if there is one."""
    for name in DRIVERS:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def describe_cuda(driver: Any, ordinal: int) -> Gpu:
    """A device by the driver's attributes; what an old driver does not know is as in the table."""
    device = ctypes.c_int()
    if code := driver.cuDeviceGet(ctypes.byref(device), ordinal):
        raise NoDevice(f"the driver's cuDeviceGet says error {code}")

    def ask(attribute: int, otherwise: int) -> int:
        value = ctypes.c_int()
        code = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        return otherwise if code or value.value <= 0 else value.value

    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, 256, device)
    major, minor = ask(MAJOR, 7), ask(MINOR, 0)
    base = assume_architecture(major, minor)
    clock = ask(CLOCK_KHZ, int(base.clock / 1e3)) * 1e3
    count = ask(MULTIPROCESSORS, base.multiprocessors)
    # Two transfers a clock of the memory's bus; newer drivers no longer tell its clock.
    memory = 2e3 * ask(MEMORY_KHZ, 0) * ask(BUS_BITS, 0) / 8
    return replace(
        base,
        device=name.value.decode(errors="replace") or base.device,
        arch=f"sm_{major}{minor}",
        clock=clock,
        multiprocessors=count,
        warp=ask(WARP, base.warp),
        max_threads=ask(MAX_THREADS, base.max_threads),
        max_shared=ask(MAX_SHARED, base.max_shared),
        max_shared_optin=ask(SHARED_OPTIN, base.max_shared_optin),
        resident_threads=ask(RESIDENT_THREADS, base.resident_threads),
        resident_blocks=ask(RESIDENT_BLOCKS, base.resident_blocks),
        registers=ask(REGISTERS, base.registers),
        shared=ask(SHARED, base.shared),
        reserved_shared=ask(RESERVED_SHARED, base.reserved_shared),
        l2=ask(L2, base.l2),
        dram_bandwidth=memory or base.dram_bandwidth,
        l2_bandwidth=base.l2_bandwidth * clock * count / (base.clock * base.multiprocessors),
    )


@cache
def detect_opencl() -> Gpu:
    """The first OpenCL device that compiles a kernel, GPUs before others."""
    device = find_opencl()
    return describe_opencl(device, is_cpu=bool(device.type & OPENCL_CPU))


def describe_opencl(device: Any, is_cpu: bool) -> Gpu:
    """A device by what OpenCL tells of it."""
    name, count = str(device.name).strip(), int(device.max_compute_units)
    clock = (device.max_clock_frequency or 1000) * 1e6
    limits = {
        "language": "opencl",
        "device": name,
        "multiprocessors": count,
        "max_threads": int(device.max_work_group_size),
        "max_shared": int(device.local_mem_size),
        "max_shared_optin": int(device.local_mem_size),
        "clock": clock,
    }
    if not is_cpu:
        vendor = str(device.vendor).lower()
        base = describe("w6600" if "amd" in vendor or "advanced micro" in vendor else "rtx-3090")
        scale = clock * count / (base.clock * base.multiprocessors)
        return replace(
            base,
            arch="",
            l2=int(device.global_mem_cache_size) or base.l2,
            l2_bandwidth=base.l2_bandwidth * scale,
            **limits,
        )
    # A core runs the threads of a block side by side in the lanes of its vectors, one block at a time, and
    # shared memory is memory like any other: nothing is hidden by other blocks.
    lanes = max(1, int(device.native_vector_width_float))
    cache_bytes = int(device.global_mem_cache_size) or 1 << 20
    return replace(
        describe("w6600"),
        arch="",
        warp=lanes,
        resident_threads=int(device.max_work_group_size),
        resident_blocks=1,
        shared=int(device.local_mem_size),
        registers=lanes * 32,
        register_unit=1,
        max_registers=32,
        max_private=1 << 20,  # on the stack of one thread of the CPU, of 8 MiB, among other things
        issues=2,
        load_units=2 * lanes,
        rates=rates(2 * lanes, float64=lanes, int32=2 * lanes, special=lanes / 4),
        latency_shared=5,
        latency_l2=40,
        latency_dram=300,
        banks=2 * lanes,
        l1=32 << 10,
        l1_bytes=8 * lanes,
        l2=cache_bytes,
        l2_bandwidth=32 * clock * count,
        dram_bandwidth=20e9,
        line=int(device.global_mem_cacheline_size) or 64,
        sector=int(device.global_mem_cacheline_size) or 64,
        **limits,
    )
