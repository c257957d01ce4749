"""Arrays that are on a device already, as callers pass them: kernels use their memory as it is.

OpenCL: arrays of pyopencl. CUDA: torch's tensors, and whatever has `__cuda_array_interface__` (CuPy) or gives
DLPack. Work goes to the queue, or stream, that their owner uses: torch's current stream, CuPy's, an array's
own queue. So nobody has to wait, and what the owner does next sees the results.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from metaschedule.ir import check_dtype, dense_strides

from ..arguments import ArgumentFacts, Label, is_tensor, read, read_capsule, read_tensor, wrong_device
from .cuda import Cuda, Memory
from .device import Device

CUDA_DEVICES = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
LEGACY = 1  # the default stream, as DLPack and `__cuda_array_interface__` call it


@dataclass(slots=True, kw_only=True)
class DeviceFacts(ArgumentFacts):
    """An array on a device. Its address is that in the memory of `of`."""

    device: Device
    memory: Any  # what a launch is given
    of: Hashable

    @property
    def space(self) -> object:
        return self.of


def read_for(kind: str, value: Any, label: Label) -> ArgumentFacts:
    """An argument of kernels for "opencl" or "cuda": on the host, or on such a device."""
    if kind == "opencl" and is_opencl_array(value):
        return read_opencl(value, label)
    if kind == "cuda":
        if is_tensor(value) and value.device.type == "cuda":
            return read_cuda_tensor(value, label)
        if not is_tensor(value) and hasattr(value, "__cuda_array_interface__"):
            return read_interface(value, label)
        if not is_tensor(value) and hasattr(value, "__dlpack_device__"):
            device, ordinal = value.__dlpack_device__()
            if int(device) in CUDA_DEVICES:
                return read_cuda_dlpack(value, label, ordinal)
    elif hasattr(value, "__cuda_array_interface__"):
        raise wrong_device(label, "a CUDA device")
    return read(value, label)


# --- OpenCL ---


def is_opencl_array(value: Any) -> bool:
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def read_opencl(array: Any, label: Label) -> DeviceFacts:
    cl: Any = sys.modules["pyopencl"]
    if not isinstance(array.base_data, cl.Buffer):
        raise TypeError(f"{label}: expected an array in a pyopencl.Buffer, got {type(array.base_data)}")
    device = opencl_device(array.queue or queue_of(array.context))
    if array.queue is not None:
        for event in array.events:  # of other queues
            event.wait()
    try:
        dtype = check_dtype(array.dtype)
    except ValueError:
        dtype = str(array.dtype)
    check_alignment(label, array.offset, device.alignment)
    memory = array.base_data
    if array.offset:
        memory = device.part(memory, array.offset, memory.size - array.offset)
    strides = None if array.flags.c_contiguous else tuple(array.strides)
    space = ("opencl", array.base_data.int_ptr)
    return DeviceFacts(
        array.offset, tuple(array.shape), dtype, strides, False, array, device=device, memory=memory, of=space
    )


@lru_cache(maxsize=16)
def queue_of(context: Any) -> Any:
    """A queue for arrays that have none."""
    cl: Any = sys.modules["pyopencl"]
    return cl.CommandQueue(context)


@lru_cache(maxsize=16)
def opencl_device(queue: Any) -> Device:
    from .opencl import OpenCL

    return OpenCL(queue)


# --- CUDA ---


@lru_cache(maxsize=64)
def cuda_device(ordinal: int, stream: int) -> Device:
    return Cuda(ordinal, stream)


def read_cuda_tensor(tensor: Any, label: Label) -> DeviceFacts:
    torch: Any = sys.modules["torch"]
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return on_cuda(read_tensor(tensor, label), label, tensor.device.index or 0, stream)


def read_interface(array: Any, label: Label) -> DeviceFacts:
    """By `__cuda_array_interface__`, version 2 or 3. CuPy's arrays do not say which device they are on there,
    and which stream only when asked to."""
    found = array.__cuda_array_interface__
    if found.get("mask") is not None:
        raise TypeError(f"{label}: expected an array without a mask, got a masked array")
    (address, readonly), shape, strides = found["data"], tuple(found["shape"]), found.get("strides")
    dtype = np.dtype(found["typestr"])
    dense = tuple([n * dtype.itemsize for n in dense_strides(shape)])
    strides = None if strides is None or tuple(strides) == dense else tuple(strides)
    stream = found.get("stream") or 0
    if type(array).__module__.partition(".")[0] == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream().ptr
    facts = ArgumentFacts(address or 0, shape, str(dtype), strides, bool(readonly), array)
    return on_cuda(facts, label, int(getattr(getattr(array, "device", None), "id", 0)), stream)


def read_cuda_dlpack(value: Any, label: Label, ordinal: int) -> DeviceFacts:
    """Its producer makes the default stream wait for what it has started."""
    return on_cuda(read_capsule(value, label, stream=LEGACY), label, ordinal, LEGACY)


def on_cuda(facts: ArgumentFacts, label: Label, ordinal: int, stream: int) -> DeviceFacts:
    """The same facts of an array on a CUDA device."""
    device = cuda_device(ordinal, 0 if stream == LEGACY else stream)
    if 0 not in facts.shape:
        check_alignment(label, facts.address, device.alignment)
    known = {f.name: getattr(facts, f.name) for f in fields(ArgumentFacts)}
    return DeviceFacts(**known, device=device, memory=Memory(facts.address), of=("cuda", ordinal))


def check_alignment(label: Label, address: int, alignment: int) -> None:
    """Kernels load vectors, and OpenCL's have no arguments that begin anywhere in a buffer."""
    if address % alignment:
        raise ValueError(
            f"{label}: expected memory of the device aligned to {alignment} bytes, "
            f"got an array that begins {address % alignment} behind; pass a copy"
        )
