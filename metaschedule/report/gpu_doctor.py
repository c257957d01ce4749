"""Whether a GPU does what it should: one command for whoever has one, that runs everything and reports.

Of each kind of device (CUDA, OpenCL): is it there, does its compiler take a kernel, does that run, is the
result right, do the device's events time it, does a matrix product with tiles in shared memory work, and
shared memory beyond what a block has without asking. What cannot be tried says what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..build import build
from ..cost import Analytical
from ..errors import ScheduleError
from ..interpreter import interpret
from ..ir import Program
from ..runtime.gpu.device import DeviceError, open_device
from ..runtime.gpu.nvrtc import INSTALL as INSTALL_NVRTC
from ..runtime.gpu.nvrtc import compile_cuda, load_nvrtc
from ..schedule import Schedule
from ..script import parse
from ..target import NoDevice, Target, resolve
from ..workloads import create
from .doctor import Finding

log = logging.getLogger("metaschedule")
KINDS = ("cuda", "opencl")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
PROBE = """
@ms.program
def probe(X: T.Tensor((1000,), "float32"), Y: T.Output((1000,), "float32")):
    for i0 in T.bind(8, "blockIdx.x"):
        for i1 in T.bind(128, "threadIdx.x"):
            with T.block("Y"):
                v = T.spatial(1000, i0 * 128 + i1)
                T.where(i0 * 128 + i1 < 1000)
                Y[v] = X[v] * 2.0 + 1.0
"""


def examine_gpus() -> Iterator[Finding]:
    """All findings."""
    yield check_nvrtc()
    for kind in KINDS:
        found = detect(kind)
        yield found
        if found.ok:
            yield from examine_device(resolve(kind))


def detect(kind: str) -> Finding:
    try:
        target = resolve(kind)
        return Finding(f"{kind} device", True, str(target.gpu), {"target": target.to_json()})
    except (NoDevice, ValueError) as error:
        return Finding(f"{kind} device", None, str(error))


def check_nvrtc() -> Finding:
    """NVIDIA's compiler, for every architecture; no device is needed."""
    try:
        load_nvrtc()
    except DeviceError as error:
        return Finding("nvrtc", None, str(error))
    failed: dict[str, str] = {}
    for arch in ARCHITECTURES:
        try:
            made = build(Schedule(parse(PROBE)), target=f"cuda:{arch}")
            compile_cuda(made.source("cuda"), arch)
        except Exception as error:
            log.debug("nothing compiles for %s", arch, exc_info=True)
            failed[arch] = f"{type(error).__name__}: {error}"
    if failed:
        return Finding("nvrtc", False, "; ".join(f"{arch}: {why}" for arch, why in failed.items()), failed)
    return Finding("nvrtc", True, f"compiles for {', '.join(ARCHITECTURES)}")


def examine_device(target: Target) -> Iterator[Finding]:
    kind = target.kind
    checks: list[tuple[str, Callable[[Target], str]]] = [
        ("opens", open_it),
        ("runs", run_probe),
        ("verify", verify_product),
        ("benchmark", time_product),
        ("shared memory", use_shared),
        ("shared memory, asked for", use_more_shared),
    ]
    for name, check in checks:
        try:
            yield Finding(f"{kind} {name}", True, check(target))
        except SkippedCheck as why:
            yield Finding(f"{kind} {name}", None, str(why))
        except Exception as error:  # whatever a driver does is a finding
            log.debug("%s: %s fails", kind, name, exc_info=True)
            yield Finding(f"{kind} {name}", False, f"{type(error).__name__}: {error}"[:500])


class SkippedCheck(Exception):
    """What this device has nothing to try for."""


def open_it(target: Target) -> str:
    open_device(target.kind)
    if target.kind == "cuda":
        try:
            load_nvrtc()
        except DeviceError as error:
            raise DeviceError(f"the device is there, its compiler is not: {INSTALL_NVRTC}") from error
    return "opens"


def run_probe(target: Target) -> str:
    x = np.arange(1000, dtype="float32")
    exe: Any = build(Schedule(parse(PROBE)), target=target)
    compare(exe(x), 2 * x + 1)
    return "a kernel with a tail of threads runs, the result is right"


def verify_product(target: Target) -> str:
    program = create("GMM", b=1, n=33, m=65, k=17)
    exe: Any = build(program, target=target)
    x, y = random_inputs(program)
    compare(exe(x, y), np.asarray(interpret(program, x, y)), 1e-4)
    return "a matrix product of sizes that nothing divides agrees with the interpreter"


def time_product(target: Target) -> str:
    program = create("GMM", b=1, n=512, m=512, k=512)
    sch = tiled(program, 32, 8, 8)
    exe: Any = build(sch, target=target)
    x, y = random_inputs(program)
    compare(exe(x, y), x @ y, 1e-2)
    seconds = exe.benchmark(x, y).median
    if not seconds > 0:
        raise RuntimeError(f"the device's events say {seconds} seconds")
    predicted = float(Analytical(target).predict([sch])[0])
    rate = 2 * 512**3 / seconds / 1e9
    return (
        f"512^3 in tiles of shared memory: {1e6 * seconds:.0f} us by the device's events, {rate:.0f} GFLOPS "
        f"(predicted: {1e6 * predicted:.0f} us)"
    )


def use_shared(target: Target) -> str:
    gpu = target.gpu
    assert gpu is not None
    return fill_shared(target, min(gpu.max_shared, 48 << 10))


def use_more_shared(target: Target) -> str:
    gpu = target.gpu
    assert gpu is not None
    if gpu.max_shared_optin <= max(gpu.max_shared, 48 << 10):
        raise SkippedCheck(f"a block has {gpu.max_shared} bytes, and no more if it asks")
    try:
        return fill_shared(target, gpu.max_shared_optin)
    except ScheduleError as error:
        raise SkippedCheck(f"not generated: {error.message}") from error


def fill_shared(target: Target, size: int) -> str:
    """Threads pass a whole buffer of shared memory to each other."""
    count = size // 4 // 64 * 64
    text = f"""
@ms.program
def reverse(X: T.Tensor(({count},), "float32"), Y: T.Output(({count},), "float32")):
    S = T.alloc(({count},), "float32", scope="shared")
    for b in T.bind(1, "blockIdx.x"):
        for t in T.bind(64, "threadIdx.x"):
            for i in range({count // 64}):
                with T.block("S"):
                    v = T.spatial({count}, i * 64 + t)
                    S[v] = X[v]
        for t in T.bind(64, "threadIdx.x"):
            for i in range({count // 64}):
                with T.block("Y"):
                    v = T.spatial({count}, i * 64 + t)
                    Y[v] = S[{count - 1} - v]
"""
    x = np.arange(count, dtype="float32")
    exe: Any = build(Schedule(parse(text)), target=target)
    compare(exe(x), x[::-1])
    return f"{4 * count} bytes of a block pass values between its threads"


def tiled(program: Program, tile: int, side: int, depth: int) -> Schedule:
    """A matrix product with operands in shared memory and results in registers."""
    sch = Schedule(program)
    block = sch.get_block("matmul")
    result = sch.cache_write(block, 0, "local")
    b, i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, [None, side, tile // side])
    j0, j1, j2 = sch.split(j, [None, side, tile // side])
    k0, k1 = sch.split(k, [None, depth])
    sch.reorder(b, i0, j0, k0, i1, j1, k1, i2, j2)
    blocks = sch.fuse(b, i0, j0)
    sch.bind(blocks, "blockIdx.x")
    for operand in (0, 1):
        fetch = sch.cache_read(block, operand, "shared")
        sch.compute_at(fetch, k0)
        _, threads = sch.split(sch.fuse(*sch.get_loops(fetch)[2:]), [None, side * side])
        sch.bind(threads, "threadIdx.x")
    sch.bind(sch.fuse(i1, j1), "threadIdx.x")
    sch.unroll(i2)
    sch.unroll(j2)
    sch.reverse_compute_at(result, blocks)
    x, y = sch.get_loops(result)[-2:]
    x1, x2 = sch.split(x, [side, None])
    y1, y2 = sch.split(y, [side, None])
    sch.reorder(x1, y1, x2, y2)
    sch.bind(sch.fuse(x1, y1), "threadIdx.x")
    return sch


def random_inputs(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype("float32") for b in program.inputs]


def compare(found: Any, right: np.ndarray, tolerance: float = 1e-5) -> None:
    worst = float(np.abs(np.asarray(found) - right).max())
    if not worst <= tolerance * max(1.0, float(np.abs(right).max())):
        raise RuntimeError(f"the result is wrong by {worst:.3g}")
