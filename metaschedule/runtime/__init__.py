"""Compiled kernels: load, call, time, export."""

from .compile import CompileError, assembly, compile_object, optimize_llvm
from .elf import ObjectError
from .executable import Executable, load
from .failure import Failure, KernelAssertion, KernelDivisionError, KernelError, KernelIndexError
from .kernel import ArgSpec, Kernel, Values
from .loader import load_object
from .storage import StorageError
from .threads import get_num_threads, rest, set_num_threads
from .timing import Timing, random_arrays

__all__ = [
    "ArgSpec",
    "CompileError",
    "Executable",
    "Failure",
    "Kernel",
    "KernelAssertion",
    "KernelDivisionError",
    "KernelError",
    "KernelIndexError",
    "ObjectError",
    "StorageError",
    "Timing",
    "Values",
    "assembly",
    "compile_object",
    "get_num_threads",
    "load",
    "load_object",
    "optimize_llvm",
    "random_arrays",
    "rest",
    "set_num_threads",
]
