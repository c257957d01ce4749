"""A large matrix product for sm_86: a candidate that keeps the arithmetic busy is in the space."""

from __future__ import annotations

import re

import pytest

import metaschedule as ms
from metaschedule import ir
from metaschedule.codegen.gpu.lower import lower_gpu
from metaschedule.codegen.gpu.model import THREADS, GpuKernel
from metaschedule.runtime.gpu import DeviceExecutable
from metaschedule.target import Gpu, resolve
from tests.codegen.gpu.schedules import nvrtc

TARGET = resolve("cuda:sm_86")
# 16 x 16 threads, each with 2 x 2 virtual threads of 4 x 4 results; chunks of 2 x 4 terms, all unrolled.
DECISIONS = [[16, 16], [4, 4], [1, 1], [2, 2], [4], [2], 2, 2, 0, 2, 0, 3]


def candidate(ahead: int = 0) -> ms.Schedule:
    program = ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024)
    (sketch,) = ms.space.default(TARGET).sketches(program)
    sites = list(sketch.decisions)
    decisions = [*DECISIONS[:-2], ahead, DECISIONS[-1]]
    return sketch.with_decisions(dict(zip(sites, decisions, strict=True))).apply(program)


def test_a_thread_has_8_by_8_results_and_wide_loads() -> None:
    nvrtc()
    exe = ms.build(candidate(), target=TARGET)
    assert isinstance(exe, DeviceExecutable)
    (found,) = exe.resources().values()
    assert found["spilled"] == 0
    assert found["registers"] <= 128  # two blocks of 256 threads on a multiprocessor
    ptx = exe.source("ptx")
    products = len(re.findall(r"\bfma\.rn\.f32", ptx))
    wide = len(re.findall(r"\bld\.shared\.v4\.f32", ptx))
    assert products == 16 * wide  # results of 8 x 8 for 8 + 8 operands
    assert not re.search(r"\bld\.shared\.f32", ptx)


def test_chunks_are_fetched_ahead_without_registers() -> None:
    nvrtc()
    exe = ms.build(candidate(ahead=1), target=TARGET)
    assert isinstance(exe, DeviceExecutable)
    (found,) = exe.resources().values()
    assert found["spilled"] == 0
    ptx = exe.source("ptx")
    assert "cp.async.ca.shared.global" in ptx
    assert len(re.findall(r"\bbar\.sync", ptx)) == 2  # before the loop, and once in it
    older = ms.build(candidate(ahead=1), target="cuda:sm_75").source("ptx")
    assert "cp.async" not in older


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_barriers_wait_for_the_next_chunk_alone(ahead: int) -> None:
    nvrtc()
    exe = ms.build(candidate(ahead=ahead), target=TARGET)
    assert isinstance(exe, DeviceExecutable)
    assert next(iter(exe.resources().values()))["spilled"] == 0
    assert re.findall(r"cp\.async\.wait_group (\d)", exe.source("ptx")) == ["0", str(ahead - 1)]


def test_the_inner_loop_has_no_bank_conflicts() -> None:
    gpu = TARGET.gpu
    assert gpu is not None
    (kernel,) = lower_gpu(candidate().program, TARGET).kernels
    loads = [
        e
        for s in ir.walk(kernel.body)
        if isinstance(s, ir.Store) and s.buffer.scope == "local"
        for e in ir.subexpressions(s.value)
        if isinstance(e, ir.Load) and e.buffer.scope == "shared"
    ]
    assert {e.buffer.name for e in loads} == {"X_shared", "Y_shared"}
    for load in loads:
        assert count_conflicts(load, kernel, gpu, lanes=4) == 1


def count_conflicts(load: ir.Load, kernel: GpuKernel, gpu: Gpu, lanes: int) -> int:
    """How often a warp reads a bank for one load of so many neighbouring elements: a part of the warp that
    reads 128 bytes goes at once, threads that read the same elements are served together."""
    at_once = gpu.shared_bytes // (4 * lanes)
    worst = 0
    for first in range(0, gpu.warp, at_once):
        rows: dict[int, set[int]] = {}
        for thread in range(first, first + at_once):
            place = address_of(load, thread, kernel) // lanes * lanes
            for word in range(place, place + lanes):
                rows.setdefault(word % gpu.banks, set()).add(word)
        worst = max(worst, *[len(words) for words in rows.values()])
    return worst


def address_of(load: ir.Load, thread: int, kernel: GpuKernel) -> int:
    """Of one thread of block 0, all loops being at their start."""
    axes = kernel.axes
    values: dict[ir.Var, ir.Expr] = {v: ir.const(0) for index in load.indices for v in ir.free_vars(index)}
    for key, var in axes.vars.items():
        if axes.base[key] == THREADS[0]:
            values[var] = ir.const(thread // axes.strides[key] % axes.extents[key])
    place = 0
    for index, stride in zip(load.indices, load.buffer.strides, strict=True):
        found = ms.arith.simplify(ir.substitute(index, values), ms.arith.Domain())
        number = ir.as_int(found)
        assert number is not None
        place += number * stride
    return place


@pytest.mark.parametrize("threads", [64, 256])
def test_launch_bounds_are_stated(threads: int) -> None:
    from tests.codegen.gpu.schedules import bound_product

    program = ms.workloads.create("GMM", b=1, n=64, m=64, k=8)
    source = ms.build(bound_product(program, threads), target=TARGET).source("cuda")
    assert re.search(rf"__launch_bounds__\({threads}(, \d+)?\)", source)


def test_results_are_stored_as_vectors() -> None:
    nvrtc()
    ptx = ms.build(candidate(ahead=1), target=TARGET).source("ptx")
    assert len(re.findall(r"\bst\.global\.v4\.f32", ptx)) == 8 * 8 // 4
    assert not re.search(r"\bst\.global\.f32", ptx)
