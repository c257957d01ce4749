"""Object code into this process: LLJIT with every symbol given explicitly.

Explicit symbols mean no guessing (which libgomp?) and a clear error for a symbol nobody has. A
library's code stays mapped as long as its `Loaded` is referenced.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from metaschedule.target import native

from .compile import _LOCK, target_machine
from .elf import ObjectError, check_object, is_elf, symbols

# Where generated code may find what it calls, in this order. libgcc_s has conversions of float16.
LIBRARIES = ("libm.so.6", "libmvec.so.1", "libc.so.6", "libgcc_s.so.1")
_NAMES = itertools.count()


class Loaded:
    """Code in memory: `loaded["name"]` is the address of an exported symbol."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker

    def __getitem__(self, name: str) -> int:
        return self._tracker[name]


def load_object(
    code: bytes,
    exports: Iterable[str],
    externals: Mapping[str, int] | None = None,
    expected: Iterable[str] = (),
) -> Loaded:
    """Link an object into this process.

    `externals` are addresses of symbols; those it needs besides are looked up in LIBRARIES.
    `expected` are names looked up even if the object's format does not tell what it needs.
    """
    exports = list(exports)
    known = dict(externals or {})
    needed = set(expected)
    if is_elf(code) or native().triple.partition("-")[2].find("linux") >= 0:
        check_object(code, native().arch)
        defined, needed = symbols(code)
        for name in exports:
            if name not in defined:
                raise ObjectError(
                    f"the object does not define {name!r}; it defines {', '.join(sorted(defined))}"
                )
    addresses = {name: known[name] if name in known else find_symbol(name) for name in needed}
    missing = ", ".join(sorted(name for name, address in addresses.items() if not address))
    if missing:
        raise ObjectError(f"the code needs {missing}, which none of {', '.join(LIBRARIES)} provides here")
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in addresses.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with _LOCK:
        try:
            return Loaded(builder.link(jit(), f"metaschedule-{next(_NAMES)}"))
        except RuntimeError as error:
            raise ObjectError(f"LLVM could not link the object: {error}") from None


def find_symbol(name: str) -> int:
    """Address of a function of LIBRARIES, or 0."""
    for library in LIBRARIES:
        handle = open_library(library)
        if handle is None:
            continue
        try:
            return ctypes.cast(getattr(handle, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@cache
def open_library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


@cache
def jit() -> Any:
    """The one LLJIT of the process. It lives until the process ends."""
    return llvm.create_lljit_compiler(target_machine(native()))
