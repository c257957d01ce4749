"""What the machine is given to do: register tiles stay in registers, other machines get code too.

Read in the assembly for named targets, so that these tests say the same on every machine.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from metaschedule import workloads
from metaschedule.codegen import generate
from metaschedule.ir import Program
from metaschedule.runtime.compile import assembly
from metaschedule.target import resolve
from tests.codegen.compiled import check, kernel
from tests.workloads.references import stand_in

LOCAL_MATMUL = """
for i0, j0 in T.grid(4, {columns}):
    with T.block("tile"):
        ti = T.spatial(4, i0)
        tj = T.spatial({columns}, j0)
        L = T.alloc((6, {width}), "float32", scope="local")
        for r in T.unrolled(6):
            for c in T.vectorized({width}):
                with T.block("zero"):
                    vr = T.spatial(6, r)
                    vc = T.spatial({width}, c)
                    L[vr, vc] = 0.0
        for k in range(32):
            for r in T.unrolled(6):
                for c in T.vectorized({width}):
                    with T.block("update"):
                        vr = T.spatial(6, r)
                        vc = T.spatial({width}, c)
                        vi = T.spatial({n}, ti * 6 + r)
                        vj = T.spatial(96, tj * {width} + c)
                        vk = T.reduce(32, k)
                        T.where(ti * 6 + r < {n})
                        L[vr, vc] = L[vr, vc] + A[vi, vk] * B[vk, vj]
        for r in T.unrolled(6):
            for c in T.vectorized({width}):
                with T.block("C"):
                    vr = T.spatial(6, r)
                    vc = T.spatial({width}, c)
                    vi = T.spatial({n}, ti * 6 + r)
                    vj = T.spatial(96, tj * {width} + c)
                    T.where(ti * 6 + r < {n})
                    C[vi, vj] = L[vr, vc]
"""

REVISITED_MATMUL = """
for i, j in T.grid(24, 96):
    C[i, j] = 0.0
for k0, i0, j0 in T.grid(4, 4, {columns}):
    for k1 in range(32):
        for r in T.unrolled(6):
            for c in T.vectorized({width}):
                with T.block("update"):
                    vi = T.spatial(24, i0 * 6 + r)
                    vj = T.spatial(96, j0 * {width} + c)
                    vk = T.reduce(128, k0 * 32 + k1)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

CONVOLUTION = """
for h, w0, o0 in T.grid(2, 3, 2):
    for w1 in T.unrolled(5):
        for o1 in T.vectorized(16):
            with T.block("zero"):
                vh = T.spatial(2, h)
                vw = T.spatial(13, w0 * 5 + w1)
                vo = T.spatial(32, o0 * 16 + o1)
                T.where(w0 * 5 + w1 < 13)
                C[vh, vw, vo] = 0.0
    for kh, kw, ci in T.grid(3, 3, 24):
        for w1 in T.unrolled(5):
            for o1 in T.vectorized(16):
                with T.block("update"):
                    vh = T.spatial(2, h)
                    vw = T.spatial(13, w0 * 5 + w1)
                    vo = T.spatial(32, o0 * 16 + o1)
                    rh = T.reduce(3, kh)
                    rw = T.reduce(3, kw)
                    rc = T.reduce(24, ci)
                    T.where(w0 * 5 + w1 < 13)
                    C[vh, vw, vo] = C[vh, vw, vo] + X[vh * 2 + rh, vw * 2 + rw, rc] * W[rh, rw, rc, vo]
"""


def matmul(body: str, width: int, n: int = 24) -> Program:
    k = 128 if "k0" in body else 32
    text = body.format(width=width, columns=96 // width, n=n)
    return kernel(f"A[{n}, {k}], B[{k}, 96] -> C[{n}, 96]", text)


def convolution() -> Program:
    return kernel("X[5, 27, 24], W[3, 3, 24, 32] -> C[2, 13, 32]", CONVOLUTION)


def text_for(program: Program, target: str) -> str:
    made = generate(program, resolve(target))
    return assembly(made.llvm, made.target)


def inner_loops(text: str) -> list[list[str]]:
    """The innermost loops with a multiply-add: from a label to a jump back to it, no label between."""
    found: list[list[str]] = []
    label, body = "", []
    for line in text.splitlines():
        code = line.split("#")[0].strip()
        if code.endswith(":"):
            label, body = code[:-1], []
        elif code and not code.startswith("."):
            body.append(code)
            if code.startswith("j") and code.split()[-1] == label:
                if any(s.startswith("vfmadd") for s in body):
                    found.append(body)
                body = []
    return found


def check_register_tile(loop: list[str], rows: int, vectors: int, register: str) -> None:
    """One step of the reduction: a broadcast per row, a load per vector, and nothing else of memory."""
    fmas = [s for s in loop if s.startswith("vfmadd")]
    steps, rest = divmod(len(fmas), rows * vectors)
    assert steps
    assert rest == 0
    assert all(register in s for s in fmas)
    touching = [s for s in loop if "(" in s and not s.startswith(("lea", "prefetch"))]
    stores = [s for s in touching if re.search(r"\)$", s)]
    assert stores == []
    assert not [s for s in loop if "%rsp" in s]
    broadcasts = [s for s in touching if s.startswith("vbroadcast") or "{1to" in s]
    assert len(broadcasts) == rows * steps
    assert len(touching) - len(broadcasts) == vectors * steps


@pytest.mark.parametrize("body", [LOCAL_MATMUL, REVISITED_MATMUL], ids=["local", "revisited"])
def test_matmul_keeps_its_tile_in_registers(body: str) -> None:
    program = matmul(body, 16)
    loops = inner_loops(text_for(program, "x86-64-v3"))
    assert loops
    for loop in loops:
        check_register_tile(loop, 6, 2, "%ymm")
    check(program)


def test_matmul_with_a_tail() -> None:
    """Full tiles as above; the tail (5 rows) is a smaller tile in registers too."""
    program = matmul(LOCAL_MATMUL, 16, n=23)
    loops = inner_loops(text_for(program, "x86-64-v3"))
    fmas = [sum(s.startswith("vfmadd") for s in loop) for loop in loops]
    rows = [6 if n % 12 == 0 else 5 for n in fmas]
    assert set(rows) == {5, 6}
    for loop, height in zip(loops, rows, strict=True):
        check_register_tile(loop, height, 2, "%ymm")
    check(program)


def test_convolution_keeps_its_tile_in_registers() -> None:
    program = convolution()
    loops = inner_loops(text_for(program, "x86-64-v3"))
    full = [loop for loop in loops if sum(s.startswith("vfmadd") for s in loop) % 10 == 0]
    assert full
    for loop in full:
        check_register_tile(loop, 5, 2, "%ymm")
    check(program)


@pytest.mark.parametrize("body", [LOCAL_MATMUL, REVISITED_MATMUL], ids=["local", "revisited"])
def test_avx512_uses_wide_registers(body: str) -> None:
    loops = inner_loops(text_for(matmul(body, 32), "x86-64-v4"))
    assert loops
    for loop in loops:
        check_register_tile(loop, 6, 2, "%zmm")


def test_without_fma_nothing_is_fused() -> None:
    made = generate(matmul(LOCAL_MATMUL, 16), resolve("x86-64-v3"), fma=False)
    text = assembly(made.llvm, made.target)
    assert "vfmadd" not in text
    assert "vmulps" in text


# --- other machines -----------------------------------------------------------------------------

QUICK = ("GMM", "T2D", "SFM")
FUSED = {"aarch64": r"\bfml[as]\b|\bfmadd\b", "riscv64": r"\bvfmacc|\bvfmadd|\bfmadd\.s"}


def small(name: str) -> Program:
    return workloads.create(name, **stand_in(name, workloads.configurations(name)[0]))


@pytest.mark.parametrize("target", ["aarch64", "riscv64", "x86-64", "x86-64-v4"])
@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in workloads.names()],
)
def test_cross_compiling(name: str, target: str) -> None:
    """Assembly of every workload as written."""
    text = text_for(small(name), target)
    assert re.search(rf"^ms_{name}:", text, re.M)


@pytest.mark.parametrize("target", FUSED)
@pytest.mark.parametrize("body", [LOCAL_MATMUL, REVISITED_MATMUL], ids=["local", "revisited"])
def test_vectors_of_other_machines(body: str, target: str) -> None:
    text = text_for(matmul(body, 16), target)
    assert re.search(FUSED[target], text)
    if target == "aarch64":
        assert re.search(r"fmla\s+v\d+\.4s", text)
    else:
        assert re.search(r"vfma(cc|dd)\.v[vf]", text)


@pytest.mark.parametrize(
    ("target", "pattern"),
    [("aarch64,sve=256", r"fml?a\w*\s+z\d+\.s"), ("riscv64,vlen=256", r"vsetivli\s+zero, 8, e32, m1")],
)
def test_vectors_of_assumed_length(target: str, pattern: str) -> None:
    """8 float32 in one register of 256 bits."""
    assert re.search(pattern, text_for(matmul(LOCAL_MATMUL, 8), target))


@pytest.mark.parametrize("target", ["aarch64", "aarch64,sve=256", "riscv64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "float64"])
def test_every_dtype_elsewhere(dtype: str, target: str) -> None:
    program = kernel(f"A:{dtype}[37], I:int64[37] -> C:{dtype}[37], D[37]", """
    for v in T.vectorized(37):
        C[v] = T.select(v < 30, A[I[v]], A[v])
        if v % 3 == 0:
            D[v] = T.cast(A[36 - v], "float32")
    """)  # fmt: skip
    assert "ms_f:" in text_for(program, target)


def test_a_running_maximum_takes_three_instructions() -> None:
    """It keeps a NaN, and is the machine's own instruction nevertheless."""
    program = kernel("A[16, 8] -> M[8]", """
    for v in T.vectorized(8):
        M[v] = A[0, v]
    for i in range(16):
        for v in T.vectorized(8):
            M[v] = T.max(M[v], A[i, v])
    """)  # fmt: skip
    made = generate(program, resolve("x86-64-v3,cores=1"))
    text = assembly(made.llvm, made.target)
    assert "vmaxps" in text
    assert not re.search(r"vcmpltps|vcmpgtps|vorps", text)


@pytest.mark.parametrize("rest", [5, 13])
def test_a_tail_of_lanes_keeps_its_accumulators_in_registers(rest: int) -> None:
    """Of the masked accesses only those of the results are left."""
    program = kernel(f"A[6, 32], B[32, {rest}] -> C[6, {rest}]", f"""
    L = T.alloc((6, 16), "float32", scope="local")
    for i in T.unrolled(6):
        for j in T.vectorized(16):
            if j < {rest}:
                L[i, j] = 0.0
    for k in range(32):
        for i in T.unrolled(6):
            for j in T.vectorized(16):
                if j < {rest}:
                    L[i, j] = L[i, j] + A[i, k] * B[k, j]
    for i in T.unrolled(6):
        for j in T.vectorized(16):
            if j < {rest}:
                C[i, j] = L[i, j]
    """)  # fmt: skip
    made = generate(program, resolve("x86-64-v3,cores=1"))
    text = assembly(made.llvm, made.target)
    assert len(re.findall(r"vmaskmovps\s+%ymm", text)) <= 2 * 6  # stores
    rng = np.random.default_rng(0)
    check(program, *[rng.integers(-4, 5, b.shape).astype("float32") for b in program.inputs])
