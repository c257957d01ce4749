"""The structures that Python, the native caller and kernels share, declared once.

ctypes lays them out for Python; `llvm_types` and `expand` give them to LLVM text by the same names,
so that no offset is written twice.
"""

from __future__ import annotations

import ctypes
import re

pointer, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


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
        ("false", ctypes.py_object),
    ]


class Param(ctypes.Structure):
    """A parameter of a kernel as the native caller checks it."""

    _fields_ = [
        ("data", pointer),  # of a bound constant
        ("kind", i64),
        ("descr", pointer),  # NumPy's dtype object
        ("ndim", i64),
        ("shape", ctypes.POINTER(i64)),
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


class Step(ctypes.Structure):
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
        ("steps", ctypes.POINTER(Step)),
        ("count", i64),
        ("bases", i64),
        ("most_arguments", i64),
        ("process", ctypes.POINTER(Process)),
    ]


class Workspace(ctypes.Structure):
    """The head of a workspace, 64 bytes before its memory."""

    _fields_ = [("next", pointer), ("size", i64)]


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


STRUCTURES = {
    s.__name__: s for s in (Process, Param, Context, Runtime, Argument, Step, Steps, Workspace, Array, Tensor)
}
FIELD = re.compile(r"^ *(%[\w.]+) = (get|at) %(\w+)\.(\w+), (%[\w.]+)$", re.MULTILINE)


def llvm_type(kind: type) -> str:
    return {i64: "i64", i32: "i32"}.get(kind, "ptr")


def llvm_types() -> str:
    """The structures as LLVM's type definitions."""
    return "".join(
        f"%{name} = type {{ {', '.join(llvm_type(f[1]) for f in s._fields_)} }}\n"
        for name, s in STRUCTURES.items()
    )


def expand(text: str) -> str:
    """LLVM text with fields by name: `%x = get %Context.free, %ctx` loads one, `at` is its address.

    >>> print(expand("%n = at %Runtime.threads, %rt"))
    %n = getelementptr %Runtime, ptr %rt, i32 0, i32 3
    """

    def one(match: re.Match[str]) -> str:
        result, operation, structure, field, base = match.groups()
        fields = STRUCTURES[structure]._fields_
        index = [f[0] for f in fields].index(field)
        place = f"getelementptr %{structure}, ptr {base}, i32 0, i32 {index}"
        if operation == "at":
            return f"{result} = {place}"
        kind = llvm_type(fields[index][1])
        return f"{result}.at = {place}\n{result} = load {kind}, ptr {result}.at"

    return FIELD.sub(one, text)
