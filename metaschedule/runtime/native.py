"""The native caller: from Python objects to a kernel and back in a fraction of a microsecond.

Its code (`c/`) is compiled once per machine (`toolchain`) and shared by all executables; an executable
is a `Context` with a table of `Param`s. The table says what every argument must be; what is exactly
that is called at once, everything else goes back to Python (`arguments`), which handles it or
explains it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from metaschedule.ir import numpy_dtype

from .kernel import ArgSpec, Kernel, align
from .layout import Array, Context, Param, Process, Steps, c_header
from .toolchain import load_library

INPUT, OUTPUT, BOUND = 0, 1, 2
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # NumPy's flags
METH_FASTCALL = 0x80
METHODS = ("call_arrays", "call_pointers", "run_steps")
SOURCES = [Path(__file__).parent / "c" / name for name in ("caller.c", "sequence.c", "watch.c")]
# DLPack's type code of a dtype; with the number of bits it is what DLTensor.dtype holds.
DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


# Own function objects: the attributes of ctypes.pythonapi are shared with everyone in the process.
capsule_pointer: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
new_function: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
PROCESS = Process(requires_grad="requires_grad", py_false=False)


def param(spec: ArgSpec, kind: int, data: int = 0) -> Param:
    dtype = numpy_dtype(spec.dtype)
    strides = None
    if spec.strides is not None:
        strides = (ctypes.c_int64 * len(spec.shape))(*[n * dtype.itemsize for n in spec.strides])
    return Param(
        data=data,
        kind=kind,
        descr=id(dtype),
        # No array has -1 dimensions: memory that does not begin with the first element is for the slow path.
        ndim=-1 if spec.span[0] else len(spec.shape),
        shape=(ctypes.c_int64 * max(1, len(spec.shape)))(*spec.shape),
        strides=strides,
        nbytes=spec.nbytes,
        flags=(0 if strides else C_CONTIGUOUS) | ALIGNED | (WRITEABLE if kind == OUTPUT else 0),
        dlpack_type=dlpack_type(spec.dtype),
        alignment_mask=dtype.itemsize - 1,
    )


def dlpack_type(dtype: str) -> int:
    """DLTensor.dtype as an integer: code, bits, lanes.

    >>> hex(dlpack_type("float32"))
    '0x12002'
    """
    bits = 8 * numpy_dtype(dtype).itemsize
    return DLPACK_CODES[dtype.rstrip("0123456789")] | bits << 8 | 1 << 16


class Native:
    """The compiled C files: ctypes functions of what Python calls."""

    def __init__(self) -> None:
        library = load_library("native", SOURCES, {"layout.h": c_header()})
        pointer, i64 = ctypes.c_void_p, ctypes.c_int64
        with_gil = ctypes.PYFUNCTYPE
        self.take: Any = with_gil(pointer, pointer, i64)(("take", library))
        self.give: Any = with_gil(None, pointer, pointer)(("give", library))
        self.drain: Any = with_gil(None, pointer)(("drain", library))
        self.prepare: Any = with_gil(i64, pointer, pointer)(("prepare", library))
        self.digest: Any = with_gil(i64, pointer, i64)(("digest", library))
        self.are_same: Any = with_gil(i64, ctypes.py_object, pointer)(("are_same", library))
        without_gil = ctypes.CFUNCTYPE
        double = ctypes.c_double
        self.bench: Any = without_gil(
            ctypes.c_int32, pointer, pointer, pointer, pointer, i64, i64, double, pointer
        )(("bench", library))
        self._methods = {
            name: MethodDef(name.encode(), ctypes.cast(library[name], pointer), METH_FASTCALL, None)
            for name in METHODS
        }
        if has_known_array_layout():
            PROCESS.array_type = id(np.ndarray)

    def function(self, name: str, context: Context | Steps) -> Callable[..., Any]:
        """A Python function of the module that works on `context`, which the caller keeps alive."""
        method = self._methods[name]
        return new_function(ctypes.addressof(method), ctypes.addressof(context), None)


@cache
def native_module() -> Native:
    return Native()


def has_known_array_layout() -> bool:
    """Whether NumPy's array objects have the layout that the native caller reads.

    It is part of NumPy's ABI; should a build differ, calls take the slow path and stay right.
    """
    if sys.implementation.name != "cpython":
        return False
    for a in (np.zeros((3, 5), np.float32), np.zeros(7, np.int8)[1:], np.zeros((4, 2), np.int16).T):
        if a.__sizeof__() < ctypes.sizeof(Array):
            return False
        head = Array.from_address(id(a))
        if (head.type, head.data, head.ndim) != (id(np.ndarray), a.ctypes.data, a.ndim):
            return False
        if tuple((ctypes.c_int64 * a.ndim).from_address(head.shape)) != a.shape:
            return False
        flags = C_CONTIGUOUS * a.flags.c_contiguous | ALIGNED * a.flags.aligned | WRITEABLE
        if head.descr != id(a.dtype) or head.flags & (C_CONTIGUOUS | ALIGNED | WRITEABLE) != flags:
            return False
    return True


def adopt_tensors(tensor_type: type) -> None:
    """Let the native caller read tensors of this type through DLPack's C interface, if it has
    one."""
    capsule = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    if capsule is None or PROCESS.tensor_type:
        return
    try:
        api = capsule_pointer(capsule, b"dlpack_exchange_api")
    except ValueError:
        return
    # { major, minor, older api, allocate, from object, to object, describe object, stream }
    major = ctypes.c_uint32.from_address(api).value
    describe = ctypes.c_void_p.from_address(api + 40).value
    if major == 1 and describe:
        PROCESS.tensor_export = describe
        PROCESS.tensor_type = id(tensor_type)


def context(entry: int, params: Sequence[Param], kernel: Kernel) -> Context:
    """An executable's table: `entry` is the kernel's address."""
    return Context(
        entry=entry,
        params=(Param * max(1, len(params)))(*params),
        count=len(params),
        call_count=sum(p.kind != BOUND for p in params),
        shared=align(kernel.shared_bytes),
        private=align(kernel.private_bytes),
        max_threads=kernel.max_threads,
        cores=kernel.target.cores,
        process=ctypes.pointer(PROCESS),
    )
