"""The native caller: from Python objects to a kernel and back in a fraction of a microsecond.

Its code (`native_text`) is compiled once per process and shared by all executables; an executable
is a `Context` with a table of `Param`s. The table says what every argument must be; what is exactly
that is called at once, everything else goes back to Python (`arguments`), which handles it or
explains it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from metaschedule.ir import numpy_dtype
from metaschedule.target import native

from .compile import compile_object
from .kernel import ArgSpec, Kernel, align
from .layout import Array, Context, Param, Process, Steps
from .loader import find_symbol, load_object
from .native_text import TEXT
from .sequence_text import TEXT as SEQUENCE_TEXT

INPUT, OUTPUT, BOUND = 0, 1, 2
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # NumPy's flags
METH_FASTCALL = 0x80
EXPORTS = ("call_arrays", "call_pointers", "take", "give", "drain", "prepare", "bench", "run_steps")
_PYTHON = (
    "PyLong_AsVoidPtr PyLong_FromLong PyTuple_New PyTuple_SetItem PyErr_NoMemory PyErr_Clear "
    "PyEval_SaveThread PyEval_RestoreThread PyObject_GetAttr Py_DecRef"
)
PYTHON = _PYTHON.split()
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
PROCESS = Process(requires_grad="requires_grad", false=False)


def param(spec: ArgSpec, kind: int, data: int = 0) -> Param:
    dtype = numpy_dtype(spec.dtype)
    return Param(
        data=data,
        kind=kind,
        descr=id(dtype),
        ndim=len(spec.shape),
        shape=(ctypes.c_int64 * max(1, len(spec.shape)))(*spec.shape),
        nbytes=spec.nbytes,
        flags=C_CONTIGUOUS | ALIGNED | (WRITEABLE if kind == OUTPUT else 0),
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
    """The compiled module: addresses of its functions, as ctypes functions where Python calls
    them."""

    def __init__(self) -> None:
        externals = {
            name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in PYTHON
        }
        for name in ("posix_memalign", "madvise", "free", "clock_gettime"):
            externals[name] = find_symbol(name)
        # Unoptimised: it is in SSA form already, and optimising takes longer than it ever saves.
        code = compile_object(TEXT + SEQUENCE_TEXT, native(), opt=0)
        self._loaded = load_object(code, EXPORTS, externals)
        pointer, i64 = ctypes.c_void_p, ctypes.c_int64
        with_gil = ctypes.PYFUNCTYPE
        self.take = with_gil(pointer, pointer, i64)(self._loaded["take"])
        self.give = with_gil(None, pointer, pointer)(self._loaded["give"])
        self.drain = with_gil(None, pointer)(self._loaded["drain"])
        self.prepare = with_gil(i64, pointer, pointer)(self._loaded["prepare"])
        without_gil = ctypes.CFUNCTYPE
        self.bench = without_gil(ctypes.c_int32, pointer, pointer, pointer, pointer, i64, i64, pointer)(
            self._loaded["bench"]
        )
        self._methods = {
            name: MethodDef(name.encode(), self._loaded[name], METH_FASTCALL, None)
            for name in ("call_arrays", "call_pointers", "run_steps")
        }
        if arrays_as_expected():
            PROCESS.array_type = id(np.ndarray)

    def function(self, name: str, context: Context | Steps) -> Callable[..., Any]:
        """A Python function of the module that works on `context`, which the caller keeps alive."""
        method = self._methods[name]
        return new_function(ctypes.addressof(method), ctypes.addressof(context), None)


@cache
def native_module() -> Native:
    return Native()


def arrays_as_expected() -> bool:
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
