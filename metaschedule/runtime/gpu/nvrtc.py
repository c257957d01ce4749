"""NVIDIA's compiler as a library (NVRTC), by ctypes: no driver and no device are needed.

From the wheel `nvidia-cuda-nvrtc-cu12` (sm_50 on) or `nvidia-cuda-nvrtc` (CUDA 13, sm_75 on), or the
library of an installed toolkit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import shutil
import site
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from metaschedule.target import Target

from .device import DeviceError

INSTALL = "pip install 'metaschedule[cuda]' (nvidia-cuda-nvrtc-cu12)"
DEFAULT_ARCH = "sm_80"  # of a target that is no NVIDIA GPU, to look at what NVIDIA's compiler makes of it
WHEELS = (
    "nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
    "nvidia/cu13/lib/libnvrtc.so.*",
    "nvidia/*/lib/libnvrtc.so.*",
)


@dataclass(frozen=True)
class CudaBinary:
    """What the compiler made: `resources` by kernel (registers, shared, spilled: bytes; stack)."""

    ptx: str
    cubin: bytes
    resources: dict[str, dict[str, int]]
    arch: str


@cache
def load_nvrtc() -> Any:
    """The library, or a message that says what to install."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    for pattern in WHEELS:
        for place in places:
            for path in sorted(Path(place).glob(pattern)) if Path(place).is_dir() else ():
                if ".alt." not in path.name and "builtins" not in path.name:
                    return ctypes.CDLL(str(path))
    name = ctypes.util.find_library("nvrtc")
    if name is None:
        raise DeviceError(f"NVIDIA's compiler NVRTC is not installed: {INSTALL}")
    return ctypes.CDLL(name)


def architecture(target: Target) -> str:
    found = target.gpu.arch if target.gpu is not None else ""
    return found if found.startswith("sm_") else DEFAULT_ARCH


def compile_cuda(source: str, target: Target | str) -> CudaBinary:
    """PTX and machine code of CUDA C for a target, or an architecture by name."""
    return _compile(source, target if isinstance(target, str) else architecture(target))


@lru_cache(maxsize=64)
def _compile(source: str, arch: str) -> CudaBinary:
    lib = load_nvrtc()
    program = ctypes.c_void_p()
    check(lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
        given = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        code = lib.nvrtcCompileProgram(program, len(options), given)
        log = read(lib, program, "ProgramLog").decode(errors="replace")
        if code:
            raise RuntimeError(f"NVRTC refused the kernels for {arch}: {log.strip() or error_text(code)}")
        ptx, cubin = read(lib, program, "PTX"), read(lib, program, "CUBIN")
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
    return CudaBinary(ptx.decode(), cubin, parse_resources(log), arch)


def read(lib: Any, program: Any, what: str) -> bytes:
    size = ctypes.c_size_t()
    check(getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(lib, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw if what == "CUBIN" else buffer.value


def check(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC: {error_text(code)}")


def error_text(code: int) -> str:
    f = load_nvrtc().nvrtcGetErrorString
    f.restype = ctypes.c_char_p
    return f(code).decode()


def parse_resources(log: str) -> dict[str, dict[str, int]]:
    """What ptxas reports of each kernel.

    >>> parse_resources('''ptxas info : Compiling entry function 'f' for 'sm_80'
    ... ptxas info : Function properties for f
    ...     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    ... ptxas info : Used 10 registers, used 1 barriers, 512 bytes smem, 372 bytes cmem[0]''')
    {'f': {'registers': 10, 'shared': 512, 'spilled': 8, 'stack': 8}}
    """
    found: dict[str, dict[str, int]] = {}
    kernel = ""
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = match[1]
            found[kernel] = {"registers": 0, "shared": 0, "spilled": 0, "stack": 0}
        elif kernel and (
            match := re.search(r"(\d+) bytes stack frame, (\d+).*?(\d+) bytes spill loads", line)
        ):
            found[kernel] |= {"stack": int(match[1]), "spilled": int(match[2]) + int(match[3])}
        elif kernel and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            found[kernel] |= {"registers": int(match[1]), "shared": int(shared[1]) if shared else 0}
    return found


def disassemble(cubin: bytes) -> str:
    """Machine code as text, by a disassembler of NVIDIA's toolkit."""
    tool = shutil.which("nvdisasm") or shutil.which("cuobjdump")
    if tool is None:
        raise DeviceError(
            "no disassembler here: nvdisasm or cuobjdump of NVIDIA's toolkit must be on the PATH"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        options = ["-sass"] if tool.endswith("cuobjdump") else []
        return subprocess.run([tool, *options, file.name], capture_output=True, text=True, check=True).stdout
