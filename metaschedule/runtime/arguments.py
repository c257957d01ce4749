"""What was passed to an executable: read it without copying, or say exactly why not.

The native caller handles the common case; everything else comes here. Each kind of array (NumPy,
torch, anything with DLPack) is read into the same `ArgumentFacts`, and one function compares those with
what is expected, so that all kinds get the same errors.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaschedule.ir import check_dtype, dense_strides, numpy_dtype, reach

from .kernel import ArgSpec
from .layout import Tensor
from .native import DLPACK_CODES, capsule_pointer

CPU_DEVICES = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost (pinned memory of the host)
DEVICES = {
    1: "cpu",
    2: "cuda",
    3: "cpu",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    14: "oneapi",
}
DLPACK_NAMES = {code: name for name, code in DLPACK_CODES.items()}
MOST_WORK = 1 << 14  # steps to find out whether two arrays have elements in common
READ_ONLY = 1  # flag of DLManagedTensorVersioned

capsule_is_named: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


@dataclass(slots=True)
class ArgumentFacts:
    """An array as found. `keep` holds its memory while it is used."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None  # in bytes; None: dense and row-major
    readonly: bool
    keep: Any

    @property
    def space(self) -> object:
        """What the address is one of: arrays in different spaces share no memory."""
        return None

    def array(self) -> np.ndarray:
        """Its memory, which must be of a dtype that we know, as a NumPy array."""
        dtype = numpy_dtype(self.dtype)
        strides = self.strides or [n * dtype.itemsize for n in dense_strides(self.shape)]
        low, high = reach(self.shape, strides)
        size = high - 1 + dtype.itemsize - low if 0 not in self.shape else 0
        memory: Any = (ctypes.c_char * size).from_address(self.address + low)
        return np.ndarray(self.shape, dtype, memory, -low, strides)


@dataclass(slots=True)
class Label:
    """How errors name an argument."""

    role: str  # "input" or "output" or "constant"
    spec: ArgSpec
    position: int | None = None

    def __str__(self) -> str:
        where = "" if self.position is None else f" (argument {self.position})"
        return f"{self.role} {self.spec.name!r}{where}"


def address_of(
    value: Any, label: Label, read_value: Callable[[Any, Label], ArgumentFacts] | None = None
) -> ArgumentFacts:
    """ArgumentFacts about an argument that is as expected, or a TypeError or ValueError that names it.
    `read_value` finds them, if not the reader of what is in the memory of the host."""
    spec = label.spec
    facts = (read_value or read)(value, label)
    if facts.dtype != spec.dtype:
        raise TypeError(
            f"{label}: expected dtype {spec.dtype}, got {facts.dtype}; "
            f"convert it first ({convert(value, spec.dtype)})"
        )
    if facts.shape != spec.shape:
        raise ValueError(f"{label}: expected shape {spec.shape}, got {facts.shape}")
    if label.role != "constant":  # which is copied
        check_strides(facts, label, value)
    if facts.readonly and label.role == "output":
        raise ValueError(f"{label}: expected a writable array, got a read-only one; pass a copy")
    if facts.address % numpy_dtype(spec.dtype).itemsize:
        raise ValueError(
            f"{label}: expected memory aligned to {numpy_dtype(spec.dtype).itemsize} bytes, "
            f"got address {facts.address:#x}; pass a copy"
        )
    return facts


def check_overlap(facts: Sequence[ArgumentFacts], labels: Sequence[Label]) -> None:
    """Kernels assume that an output shares no memory with any other argument."""
    ends = [label.spec.span for label in labels]
    spans = [(f.address + low, f.address + high) for f, (low, high) in zip(facts, ends)]
    for i, output in enumerate(labels):
        if output.role != "output" or not output.spec.nbytes:
            continue
        for j, other in enumerate(labels):
            if i == j or not other.spec.nbytes or (other.role == "output" and j > i):
                continue
            if facts[i].space != facts[j].space:
                continue
            if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1] and share_elements(facts[i], facts[j]):
                raise ValueError(
                    f"{output} overlaps {other} in memory: expected separate arrays; "
                    f"kernels do not work in place, pass a copy of one"
                )


def share_elements(a: ArgumentFacts, b: ArgumentFacts) -> bool:
    """Whether two arrays whose memory begins before the other's ends have an element in common: neighbouring
    columns of one matrix have not."""
    if a.strides is None and b.strides is None:
        return True
    try:
        shares_memory: Any = np.shares_memory
        return shares_memory(a.array(), b.array(), max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True


def check_strides(facts: ArgumentFacts, label: Label, value: Any) -> None:
    """That elements are as far apart as a kernel expects; a kernel for any other layout is another."""
    spec, size = label.spec, numpy_dtype(label.spec.dtype).itemsize
    if facts.strides is None and spec.strides is None:
        return
    expected = spec.strides or dense_strides(spec.shape)
    got = facts.strides or tuple([n * size for n in dense_strides(spec.shape)])
    steps = zip(spec.shape, expected, got, strict=True)
    if 0 in spec.shape or all(extent == 1 or want * size == have for extent, want, have in steps):
        return
    found = f"{tuple([n // size for n in got])}"
    if any(n % size for n in got):
        found = f"{got} in bytes"
    if spec.strides is not None:
        raise ValueError(
            f"{label}: expected strides {expected}, got {found}; pass an array with these strides "
            f"(exe.{label.role}s[i].empty() makes one), or build the kernel for its layout"
        )
    fix = "np.ascontiguousarray(x)" if isinstance(value, np.ndarray) else "x.contiguous()"
    fix = "a fresh array" if label.role == "output" else fix
    raise ValueError(
        f"{label}: expected C-contiguous (row-major) memory, strides {expected}, got {found}; pass {fix}, "
        "or build the kernel for this layout"
    )


def read(value: Any, label: Label) -> ArgumentFacts:
    if isinstance(value, np.ndarray):
        return read_numpy(value, label)
    if is_tensor(value):
        return read_torch(value, label)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return read_dlpack(value, label)
    raise TypeError(
        f"{label}: expected {label.spec.dtype}{list(label.spec.shape)} as a NumPy array, a torch "
        f"tensor or anything with __dlpack__, got {type(value).__name__}; "
        f"np.asarray(x, dtype={label.spec.dtype!r}) makes one"
    )


def read_numpy(array: np.ndarray, label: Label) -> ArgumentFacts:
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{label}: expected an array without a mask, got a masked array; pass x.filled()")
    try:
        dtype = check_dtype(array.dtype)
    except ValueError:
        dtype = str(array.dtype)
    address, readonly = array.__array_interface__["data"]
    strides = None if array.flags.c_contiguous else array.strides
    return ArgumentFacts(address, array.shape, dtype, strides, readonly, array)


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    # isinstance would call torch's metaclass, which takes a microsecond.
    return torch is not None and getattr(torch, "Tensor", None) in type(value).__mro__


def read_torch(tensor: Any, label: Label) -> ArgumentFacts:
    if tensor.device.type != "cpu":
        raise wrong_device(label, str(tensor.device))
    return read_tensor(tensor, label)


def read_tensor(tensor: Any, label: Label) -> ArgumentFacts:
    """A tensor of torch on any device."""
    torch: Any = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_neg():
        raise ValueError(f"{label}: expected a dense tensor, got {tensor.layout}; pass x.to_dense()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{label}: expected a tensor outside autograd, got one that requires a gradient; "
            f"pass x.detach(), or call under torch.no_grad()"
        )
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:
        raise TypeError(f"{label}: expected a tensor with memory, got {type(tensor).__name__}") from error
    size = tensor.element_size()
    strides = None if tensor.is_contiguous() else tuple([n * size for n in tensor.stride()])
    return ArgumentFacts(address, tuple(tensor.shape), dtype, strides, False, tensor)


class VersionedHead(ctypes.Structure):
    """What precedes the DLTensor in a capsule of DLPack 1.0 or later."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


def read_dlpack(value: Any, label: Label) -> ArgumentFacts:
    device_type, device_id = value.__dlpack_device__()
    if int(device_type) not in CPU_DEVICES:
        raise wrong_device(
            label, f"{DEVICES.get(int(device_type), f'device type {device_type}')}:{device_id}"
        )
    return read_capsule(value, label)


def read_capsule(value: Any, label: Label, **given: Any) -> ArgumentFacts:
    """What the DLPack capsule of an array says. `given` are arguments of `__dlpack__`."""
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 0), **given)
        except TypeError:  # a producer older than DLPack 1.0
            capsule = value.__dlpack__(**given)
    except BufferError as error:
        kind = type(value).__name__
        raise ValueError(f"{label}: {kind} does not give its memory: {error}") from error
    readonly = False
    if capsule_is_named(capsule, b"dltensor_versioned"):
        at = capsule_pointer(capsule, b"dltensor_versioned")
        head = VersionedHead.from_address(at)
        if head.major != 1:
            raise TypeError(f"{label}: expected DLPack 1, got version {head.major}.{head.minor}")
        readonly = bool(head.flags & READ_ONLY)
        tensor = Tensor.from_address(at + ctypes.sizeof(VersionedHead))
    elif capsule_is_named(capsule, b"dltensor"):
        tensor = Tensor.from_address(capsule_pointer(capsule, b"dltensor"))
    else:
        raise TypeError(f"{label}: {type(value).__name__}.__dlpack__() returned no DLPack capsule")
    ndim = tensor.ndim
    shape = tuple(tensor.shape[:ndim]) if ndim else ()
    size = (tensor.dtype >> 8 & 0xFF) // 8
    strides = tuple([n * size for n in tensor.strides[:ndim]]) if ndim and tensor.strides else None
    # The capsule, not taken over, frees the tensor when it goes.
    return ArgumentFacts(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        dlpack_dtype(tensor),
        strides,
        readonly,
        capsule,
    )


def dlpack_dtype(tensor: Tensor) -> str:
    code, bits, lanes = tensor.dtype & 0xFF, tensor.dtype >> 8 & 0xFF, tensor.dtype >> 16
    name = DLPACK_NAMES.get(code, f"dlpack type {code} ")
    if lanes != 1:
        return f"{name}{bits}x{lanes}"
    return name if name == "bool" else f"{name}{bits}"


def wrong_device(label: Label, device: str) -> ValueError:
    return ValueError(
        f"{label}: expected an array in the CPU's memory, got one on {device}; move it to the CPU first"
    )


def convert(value: Any, dtype: str) -> str:
    if is_tensor(value):
        return f"x.to(torch.{dtype})"
    return "x.astype(ml_dtypes.bfloat16)" if dtype == "bfloat16" else f"x.astype({dtype!r})"
