"""Executables outside the process that made them: saved files, and libraries that C programs
use."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from handmade_kernels import add, exponential, fails, parallel, scratch, vector_exp

from metaschedule.runtime import Executable, StorageError, load
from metaschedule.runtime.export import c_string
from metaschedule.target import resolve

ROOT = Path(__file__).parent.parent.parent
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def bound_adder() -> Executable:
    b = np.full((4, 6), 10, np.float32)
    return Executable(add(), constants={"B": b}, threads=1, script="the script")


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "add.ms"
    bound_adder().save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["add.ms"]
    exe = load(path)
    a = np.ones((4, 6), np.float32)
    assert (exe(a) == 11).all()
    assert exe.threads == 1
    assert exe.source() == "the script"
    assert exe.kernel == add()
    assert "add:" in exe.source("asm")


def test_loaded_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "add.ms"
    bound_adder().save(path)
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import numpy as np\n"
        "from metaschedule.runtime import load\n"
        f"print(load({str(path)!r})(np.ones((4, 6), np.float32)).sum())\n"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "264.0", done.stderr


def test_saved_bfloat16_constants(tmp_path: Path) -> None:
    b = np.arange(4).astype(ml_dtypes.bfloat16)
    Executable(add((4,), "bfloat16"), constants={"B": b}).save(tmp_path / "x")
    np.testing.assert_array_equal(load(tmp_path / "x")(np.zeros(4, ml_dtypes.bfloat16)), b)


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "add.ms"
    bound_adder().save(path)
    data = path.read_bytes()
    for size in (0, 10, 35, 36, 200, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(StorageError, match=r"add\.ms: (not a saved executable|truncated)"):
            load(path)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StorageError, match="truncated or damaged"):
        load(path)
    path.write_bytes(data[:8] + struct.pack("<I", 99) + data[12:])
    with pytest.raises(StorageError, match="saved with format 99, this version reads 2"):
        load(path)
    path.write_text("import this")
    with pytest.raises(StorageError, match="not a saved executable"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


def test_code_for_another_machine(tmp_path: Path) -> None:
    target = resolve("aarch64" if resolve().arch == "x86_64" else "x86-64-v3")
    Executable(add(target=target)).save(tmp_path / "x")
    with pytest.raises(RuntimeError, match=r"compiled for .*; this machine lacks architecture"):
        load(tmp_path / "x")


def run_c(folder: Path, library: Path, program: str, *flags: str) -> str:
    """What a C program prints that is linked against the library; warnings are errors."""
    (folder / "main.c").write_text(program)
    build = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c", library.name]
    command = [*build, *flags, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    ran = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@needs_cc
def test_a_c_program_without_python(tmp_path: Path) -> None:
    library = Executable(add()).export_library(tmp_path / "add.so")
    header = (tmp_path / "add.h").read_text()
    assert "int add(const float *A, const float *B, float *C);" in header
    assert "A: input, float32[4, 6]" in header
    program = """
#include <stdio.h>
#include "add.h"
int main(void) {
    float a[24], b[24], c[24];
    for (int i = 0; i < 24; i++) { a[i] = i; b[i] = 100; }
    int status = add(a, b, c);
    printf("%d %s %g %g", status, add_message(status), c[0], c[23]);
    return 0;
}
"""
    assert run_c(tmp_path, library, program) == "0 ok 100 123"
    dynamic = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True)
    if dynamic.returncode == 0:
        exported = {line.split()[-1] for line in dynamic.stdout.splitlines()}
        assert exported == {"add", "add_message"}


@needs_cc
def test_constants_are_in_the_library(tmp_path: Path) -> None:
    library = bound_adder().export_library(tmp_path / "libplus-ten.so")
    program = """
#include <stdio.h>
#include "plus_ten.h"
int main(void) {
    float a[24] = {1}, c[24];
    int status = plus_ten(a, c);
    printf("%d %g %g", status, c[0], c[23]);
    return 0;
}
"""
    assert run_c(tmp_path, library, program) == "0 11 10"


@needs_cc
def test_threads_and_workspace_in_c(tmp_path: Path) -> None:
    Executable(parallel(), threads=2).export_library(tmp_path / "par.so")
    library = Executable(scratch()).export_library(tmp_path / "twice.so")
    program = """
#include <pthread.h>
#include <stdio.h>
#include "par.h"
#include "twice.h"
static void *work(void *seed) {
    float a[100], c[100];
    long bad = 0;
    for (int n = 0; n < 1000; n++) {
        for (int i = 0; i < 100; i++) a[i] = i + *(int *)seed;
        if (twice(a, c)) bad++;
        for (int i = 0; i < 100; i++) bad += c[i] != 2 * a[i];
    }
    return (void *)bad;
}
int main(void) {
    static float a[1000], c[1001];
    if (par(a, c)) return 1;
    printf("%g %g", c[999], c[1000] >= 1 && c[1000] <= 2 ? 1.0 : 0.0);
    pthread_t threads[4];
    int seeds[4] = {0, 1, 2, 3};
    long bad = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, &seeds[i]);
    for (int i = 0; i < 4; i++) { void *r; pthread_join(threads[i], &r); bad += (long)r; }
    printf(" %ld", bad);
    return 0;
}
"""
    assert run_c(tmp_path, library, program, "par.so", "-lpthread") == "1 1 0"


@needs_cc
def test_assertions_and_math_in_c(tmp_path: Path) -> None:
    Executable(exponential()).export_library(tmp_path / "e.so", name="my_exp")
    library = Executable(fails()).export_library(tmp_path / "fails.so")
    program = """
#include <stdio.h>
#include "fails.h"
#include "my_exp.h"
int main(void) {
    int32_t x = 2, y;
    float z = 0, e, n;
    my_exp(&z, &e, &n);
    printf("%s|%s|%s|%g", fails_message(fails(&x, &y)), fails_message(-1), fails_message(77), e);
    return 0;
}
"""
    expected = "y must be positive|out of memory|unknown status|1"
    assert run_c(tmp_path, library, program, "e.so") == expected


@needs_cc
def test_an_exported_library_works_in_python_too(tmp_path: Path) -> None:
    library = Executable(add()).export_library(str(tmp_path / "add.so"))
    function = ctypes.CDLL(str(library)).add
    a, c = np.ones((4, 6), np.float32), np.zeros((4, 6), np.float32)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, a, c)]
    assert function(*pointers) == 0
    assert (c == 2).all()


@needs_cc
@pytest.mark.skipif(not resolve().has("avx2"), reason="the kernel is written for AVX2")
def test_vector_math(tmp_path: Path) -> None:
    exe = Executable(vector_exp())
    x, y = np.linspace(-3, 3, 8, dtype=np.float32), np.empty(8, np.float32)
    np.testing.assert_allclose(exe(x), np.exp(x), rtol=1e-6)
    library = exe.export_library(tmp_path / "vexp.so")
    function = ctypes.CDLL(str(library)).vexp
    assert function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)) == 0
    np.testing.assert_array_equal(y, exe(x))


def test_export_mistakes(tmp_path: Path) -> None:
    exe = Executable(add())
    with pytest.raises(ValueError, match="must be an identifier of C, got 'int'; 'int_' is one"):
        exe.export_library(tmp_path / "x.so", name="int")
    with pytest.raises(RuntimeError, match="needs a C compiler; 'no-such-cc' is not installed"):
        exe.export_library(tmp_path / "x.so", cc="no-such-cc")


@needs_cc
def test_a_compiler_that_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed:"):
        Executable(add()).export_library(tmp_path / "x.so", cc="false")


def test_messages_as_c_text() -> None:
    assert c_string('a "b" ??/ \\ ü\n') == '"a \\042b\\042 \\077\\077/ \\134 \\303\\274\\012"'
