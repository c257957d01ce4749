"""NVIDIA's driver as far as `runtime/gpu/cuda.py` calls it, without a GPU: memory is the host's, and kernels
are their CUDA text, compiled by g++ (`host.h`). What the calls mean is as NVIDIA documents it."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SIGNATURE = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(([^)]*)\)')


def compile_for_host(source: str, folder: Path) -> ctypes.CDLL:
    """A library with a function `start_NAME(grid, block, arguments)` for every kernel."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    entries = ['#include "host.h"', source]
    for name, parameters in SIGNATURE.findall(source):
        types = [
            p.replace("__restrict__", "").strip().rpartition("*")[0] + "*" for p in parameters.split(",")
        ]
        given = ", ".join(f"*({kind}*)arguments[{n}]" for n, kind in enumerate(types))
        entries.append(
            f'extern "C" int start_{name}(const int* grid, const int* block, void** arguments) '
            f"{{ return run_blocks(grid, block, [=] {{ {name}({given}); }}); }}"
        )
    text = "\n".join(entries)
    stem = folder / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    library = stem.with_suffix(".so")
    stem.with_suffix(".cpp").write_text(text)
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{HERE}"]
    subprocess.run([compiler, *options, str(stem.with_suffix(".cpp")), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


class Driver:
    """Every function returns 0, or the number of an error. `log` has what was called, `sources` what a
    binary was made of."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, list[str]()
        self.memory: dict[int, Any] = {}
        self.contexts: list[int] = []
        self.objects: list[Any] = []  # by handle - 1
        self.sources: dict[bytes, str] = {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(type(self), f"do_{name}", None)
        if function is None:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.log.append(name)
            return function(self, *args) or 0

        return call

    def keep(self, thing: Any) -> int:
        self.objects.append(thing)
        return len(self.objects)

    def do_cuInit(self, flags: int) -> None: ...

    def do_cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0 if ordinal == 0 else 101

    def do_cuGetErrorString(self, code: int, text: Any) -> None:
        text._obj.value = f"error number {code}".encode()

    def do_cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:
        context._obj.value = 1000 + device.value

    def do_cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.contexts.append(context.value)

    def do_cuCtxPopCurrent_v2(self, context: Any) -> None:
        context._obj.value = self.contexts.pop()

    def do_cuModuleLoadData(self, module: Any, image: bytes) -> int:
        module._obj.value = self.keep(compile_for_host(self.sources[image], self.folder))
        return self.needs_context()

    def do_cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        found = getattr(self.objects[module.value - 1], f"start_{name.decode()}", None)
        function._obj.value = self.keep(found)
        return 0 if found is not None else 500

    def do_cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        memory = (ctypes.c_uint8 * (size.value + 512))()
        place = -(-ctypes.addressof(memory) // 512) * 512
        ctypes.memset(ctypes.addressof(memory), 0xFF, size.value + 512)
        self.memory[place] = memory
        address._obj.value = place
        return self.needs_context()

    def do_cuMemFree_v2(self, address: Any) -> int:
        return 0 if self.memory.pop(address.value, None) is not None else 1

    def do_cuMemcpyHtoDAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> int:
        ctypes.memmove(to.value, source.value, size.value)
        return self.needs_context()

    def do_cuMemcpyDtoHAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> int:
        ctypes.memmove(to.value, source.value, size.value)
        return self.needs_context()

    def do_cuStreamSynchronize(self, stream: Any) -> int:
        return self.needs_context()

    def do_cuLaunchKernel(self, function: Any, *args: Any) -> int:
        grid, block = (ctypes.c_int * 3)(*args[:3]), (ctypes.c_int * 3)(*args[3:6])
        shared, stream, arguments, extra = args[6:]
        assert shared == 0
        assert extra is None
        self.log.append(f"stream {stream.value or 0}")
        failed = self.objects[function.value - 1](grid, block, arguments)
        return 719 if failed else self.needs_context()

    def do_cuEventCreate(self, event: Any, flags: int) -> None:
        event._obj.value = self.keep("event")

    def do_cuEventRecord(self, event: Any, stream: Any) -> None: ...

    def do_cuEventSynchronize(self, event: Any) -> None: ...

    def do_cuEventElapsedTime(self, passed: Any, before: Any, after: Any) -> None:
        passed._obj.value = 0.25  # milliseconds

    def do_cuEventDestroy_v2(self, event: Any) -> None: ...

    def needs_context(self) -> int:
        """What most functions say where no context is current: error 201."""
        return 0 if self.contexts else 201
