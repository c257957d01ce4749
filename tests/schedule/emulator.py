"""Kernels for another architecture, run by qemu: compiled here, linked with a C program that feeds them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from metaschedule.ir import numpy_dtype
from metaschedule.runtime import Kernel
from metaschedule.runtime.compile import compile_object

MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
struct runtime {{ void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
                  int (*num)(void), (*count)(void); int32_t threads; }};
int32_t {entry}(void **, void *, struct runtime *);
static void parallel(void (*body)(void *), void *data, unsigned n, unsigned flags) {{ body(data); }}
static int num(void) {{ return 0; }}
static int count(void) {{ return 1; }}
static struct runtime serial = {{parallel, num, count, 1}};
static size_t sizes[] = {{{sizes}}};
int main(void) {{
    void *args[{params}], *workspace = aligned_alloc(64, {workspace});
    for (int n = 0; n < {params}; n++) args[n] = aligned_alloc(64, (sizes[n] + 127) / 64 * 64);
    for (;;) {{
        for (int n = 0; n < {inputs}; n++)
            if (fread(args[n], 1, sizes[n], stdin) != sizes[n]) return 0;
        if ({entry}(args, workspace, &serial)) return 3;
        for (int n = {inputs}; n < {params}; n++) fwrite(args[n], 1, sizes[n], stdout);
    }}
}}
"""


@functools.cache
def why_not(arch: str) -> str:
    """What is missing for running code of an architecture."""
    programs = (f"qemu-{arch}", f"{arch}-linux-gnu-gcc")
    lacks = [name for name in programs if shutil.which(name) is None]
    return f"no {' and no '.join(lacks)}: apt-get install qemu-user gcc-{arch}-linux-gnu" if lacks else ""


def run_emulated(kernel: Kernel, calls: Sequence[Sequence[np.ndarray]]) -> list[tuple[np.ndarray, ...]]:
    """The outputs of every call, with one thread."""
    arch = kernel.target.arch
    if reason := why_not(arch):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.o").write_bytes(compile_object(kernel.llvm, kernel.target))
        main = MAIN.format(
            entry=kernel.entry,
            sizes=", ".join(str(spec.nbytes) for spec in kernel.params),
            params=len(kernel.params),
            inputs=len(kernel.inputs),
            workspace=kernel.workspace_bytes(1) // 64 * 64 + 64,
        )
        (folder / "main.c").write_text(main)
        link = [f"{arch}-linux-gnu-gcc", "-static", "-O1", "-o", "program", "main.c", "kernel.o", "-lm"]
        subprocess.run(link, cwd=folder, check=True, capture_output=True)
        data = b"".join(np.ascontiguousarray(a).tobytes() for args in calls for a in args)
        command = [f"qemu-{arch}", "-cpu", "max", "./program"]
        done = subprocess.run(command, cwd=folder, check=True, input=data, capture_output=True)
    results: list[tuple[np.ndarray, ...]] = []
    at = 0
    for _ in calls:
        outputs: list[np.ndarray] = []
        for spec in kernel.outputs:
            flat = np.frombuffer(done.stdout, numpy_dtype(spec.dtype), spec.size, at)
            outputs.append(flat.reshape(spec.shape))
            at += spec.nbytes
        results.append(tuple(outputs))
    return results
