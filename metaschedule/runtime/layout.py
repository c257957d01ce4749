"""The structures that Python, the native caller and kernels share, declared once.

ctypes lays them out for Python; `c_header` declares them for the C files, so that no field is written twice.
"""

from __future__ import annotations

import ctypes
from typing import Any

pointer, i64, i32, f64 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_double


class Process(ctypes.Structure):
    """What all executables share: OpenMP (`threads` fills it in) and the types of arrays."""

    _fields_ = [
        ("gomp_parallel", pointer),
        ("thread_num", pointer),
        ("num_threads", pointer),
        ("default_threads", i64),
        ("array_type", pointer),
        ("tensor_type", pointer),
        ("tensor_export", pointer),
        ("requires_grad", ctypes.py_object),
        ("py_false", ctypes.py_object),
    ]


class Param(ctypes.Structure):
    """A parameter of a kernel as the native caller checks it."""

    _fields_ = [
        ("data", pointer),  # of a bound constant
        ("kind", i64),
        ("descr", pointer),  # NumPy's dtype object
        ("ndim", i64),
        ("shape", ctypes.POINTER(i64)),
        ("strides", ctypes.POINTER(i64)),  # in bytes; null: dense and row-major
        ("nbytes", i64),
        ("flags", i64),
        ("dlpack_type", i64),
        ("alignment_mask", i64),
    ]


class Context(ctypes.Structure):
    """An executable as the native caller sees it. `free` heads the list of idle workspaces."""

    _fields_ = [
        ("entry", pointer),
        ("params", ctypes.POINTER(Param)),
        ("count", i64),
        ("call_count", i64),
        ("free", pointer),
        ("shared", i64),
        ("private", i64),
        ("max_threads", i64),
        ("cores", i64),
        ("threads", i64),  # 0: the process's default, at most `cores`
        ("process", ctypes.POINTER(Process)),
    ]


class Runtime(ctypes.Structure):
    """What a kernel is told about threads (see `kernel`)."""

    _fields_ = [
        ("gomp_parallel", pointer),
        ("thread_num", pointer),
        ("num_threads", pointer),
        ("threads", i32),
        ("value", i64),  # that a failed check was about
    ]


class Argument(ctypes.Structure):
    """Where a step of a sequence finds an argument: so far behind one of the addresses of the call."""

    _fields_ = [("base", i64), ("offset", i64)]


class SequenceStep(ctypes.Structure):
    """A kernel of a sequence. Its first argument is its workspace."""

    _fields_ = [
        ("entry", pointer),
        ("arguments", ctypes.POINTER(Argument)),
        ("count", i64),
        ("max_threads", i64),
    ]


class Steps(ctypes.Structure):
    """Kernels that run one after the other."""

    _fields_ = [
        ("steps", ctypes.POINTER(SequenceStep)),
        ("count", i64),
        ("bases", i64),
        ("most_arguments", i64),
        ("process", ctypes.POINTER(Process)),
        ("parallel", i64),  # how many have parallel loops
        ("clock", ctypes.POINTER(f64)),  # NULL, or for a time before the first step and after each
        # What calls have taken, in seconds, by which `sequence.c` chooses between several threads and one:
        ("usual", f64),  # by several, undisturbed
        ("together", f64),  # by several lately, on average
        ("alone", f64),  # by one
        ("late", f64),  # how many of the last were disturbed, about
        ("until", f64),  # the time until which one thread is used
        ("rest", f64),  # how long that was for
        ("hold", i64),  # calls for which several threads are used whatever happens
    ]


class Workspace(ctypes.Structure):
    """The head of a workspace, 64 bytes before its memory."""

    _fields_ = [("next", pointer), ("size", i64)]


class Region(ctypes.Structure):
    """So many bytes of memory."""

    _fields_ = [("start", pointer), ("size", i64)]


class Watched(ctypes.Structure):
    """Objects at places of a list, and two sets of regions with their digests (see `watch`)."""

    _fields_ = [
        ("places", ctypes.POINTER(i64)),
        ("objects", ctypes.POINTER(pointer)),
        ("count", i64),
        ("headers", ctypes.POINTER(Region)),
        ("headers_count", i64),
        ("headers_digest", i64),
        ("samples", ctypes.POINTER(Region)),
        ("samples_count", i64),
        ("samples_digest", i64),
    ]


class Array(ctypes.Structure):
    """The head of a NumPy array: part of NumPy's ABI, and checked before it is relied upon."""

    _fields_ = [
        ("references", i64),
        ("type", pointer),
        ("data", pointer),
        ("ndim", i32),
        ("shape", pointer),
        ("strides", pointer),
        ("base", pointer),
        ("descr", pointer),
        ("flags", i32),
    ]


class Tensor(ctypes.Structure):
    """DLPack's DLTensor. `dtype` is code, bits and lanes in one word."""

    _fields_ = [
        ("data", pointer),
        ("device_type", i32),
        ("device_id", i32),
        ("ndim", i32),
        ("dtype", i32),
        ("shape", ctypes.POINTER(i64)),
        ("strides", ctypes.POINTER(i64)),
        ("byte_offset", i64),
    ]


STRUCTURES = (
    Process, Param, Context, Runtime, Argument, SequenceStep, Steps, Workspace, Region, Watched, Array,
    Tensor,
)  # fmt: skip
C_TYPES: dict[type, str] = {
    i64: "int64_t", i32: "int32_t", f64: "double", ctypes.py_object: "PyObject *", pointer: "void *",
}  # fmt: skip


def c_type(kind: type) -> str:
    """
    >>> c_type(ctypes.POINTER(Param)), c_type(pointer), c_type(i32)
    ('Param *', 'void *', 'int32_t')
    """
    target: Any = getattr(kind, "_type_", None) if issubclass(kind, ctypes._Pointer) else None
    if target:
        return f"{C_TYPES.get(target, target.__name__)} *"
    return C_TYPES[kind]


def c_header() -> str:
    """The structures for C: layout.h."""
    lines = ["#pragma once", "#include <stdint.h>", "typedef struct PyObject PyObject;"]
    for structure in STRUCTURES:
        fields = "".join(f"    {c_type(kind)} {name};\n" for name, kind, *_ in structure._fields_)
        lines.append(f"typedef struct {{\n{fields}}} {structure.__name__};")
    return "\n".join(lines) + "\n"
