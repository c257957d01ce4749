"""Instructions on tiles where processes, threads and libraries share the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.target import missing_features, resolve

TARGET = resolve("x86-64-v4,+amx-tile,+amx-int8,cores=2")
needs_tiles = pytest.mark.skipif(bool(missing_features(TARGET)), reason="no tiles of AMX here")

PRODUCT = """
def product(A: T.Tensor((4, 16, 256), "int8"), B: T.Tensor((64, 16, 4), "int8"),
            C: T.Output((4, 16, 16), "int32")):
    for z in T.parallel(4):
        for v in T.vectorized(256):
            C[z, v // 16, v % 16] = 0
        for k in range(4):
            for v in T.vectorized(256):
                C[z, v // 16, v % 16] = T.instruction("x86.tdpbssd", C[z, v // 16, v % 16], ARGUMENTS)
""".replace(
    "ARGUMENTS",
    ", ".join(
        [f"A[z, v // 16, k * 64 + {n}]" for n in range(64)]
        + [f"B[k * 16 + {n // 4}, v % 16, {n % 4}]" for n in range(64)]
    ),
)


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-128, 128, shape).astype("int8") for shape in ((4, 16, 256), (64, 16, 4)))
    return a, b


def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype("int32") @ b.astype("int32").transpose(0, 2, 1).reshape(256, 16)


def kernel() -> ms.Executable:
    return ms.build(ms.Schedule(ms.parse(PRODUCT)), target=TARGET)


def test_results_that_other_threads_have_beside_are_not_touched() -> None:
    """They start in their tiles, and each is stored once; the shapes are configured before the loop."""
    words = [line.split()[0] for line in kernel().source("asm").splitlines() if "tmm" in line]
    assert words == ["tilezero", "tileloadd", "tileloadd", "tdpbssd", "tilestored"]


@needs_tiles
def test_threads_and_forks_have_tiles_of_their_own() -> None:
    run = kernel()

    def call(seed: int) -> bool:
        a, b = operands(seed)
        return np.array_equal(run(a, b), expected(a, b))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(40)))
    alone = kernel()
    alone.threads = 1
    child = os.fork()
    if child == 0:
        a, b = operands(0)
        os._exit(0 if np.array_equal(alone(a, b), expected(a, b)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_tiles
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_an_exported_library_asks_for_tiles_itself(tmp_path: Path) -> None:
    path = kernel().export_library(tmp_path / "product.so")
    a, b = operands(1)
    a.tofile(tmp_path / "a")
    b.tofile(tmp_path / "b")
    script = f"""
import ctypes
library = ctypes.CDLL({str(path)!r})
a, b = ((ctypes.c_char * size).from_buffer_copy(open({str(tmp_path)!r} + "/" + name, "rb").read())
        for name, size in (("a", 4 * 16 * 256), ("b", 64 * 16 * 4)))
c = (ctypes.c_int * (4 * 16 * 16))()
assert library.product(a, b, c) == 0
open({str(tmp_path / "c")!r}, "wb").write(c)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.fromfile(tmp_path / "c", "int32").reshape(4, 16, 16), expected(a, b))
