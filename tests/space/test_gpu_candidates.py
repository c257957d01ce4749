"""Candidates of the space for GPUs: right on an OpenCL device, accepted by NVIDIA's compiler within the
limits of its devices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen.gpu.generate import generate_device_program
from metaschedule.codegen.gpu.lower import lower_gpu
from metaschedule.codegen.gpu.simulate import simulate
from metaschedule.errors import ScheduleError
from metaschedule.runtime.gpu import DeviceExecutable
from metaschedule.target import resolve
from tests.codegen.gpu.schedules import nvrtc, opencl
from tests.conftest import LONG
from tests.space.candidates import random_inputs
from tests.space.test_candidates import SMALL
from tests.space.test_sketches import TWELVE

CASES = [(name, config) for name in TWELVE for config in SMALL[name]]
# Enough channels for Winograd, in tiles that do not divide.
FILTERED = {"n": 1, "h": 7, "w": 6, "ci": 16, "co": 33, "k": 3, "s": 1, "p": 1}
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


def draw(
    program: ms.ir.Program, target: str, count: int, seed: int = 0, sketches: str = ""
) -> Iterator[ms.Schedule]:
    """So many candidates that the space accepts, of the sketches that have a step of a name."""
    space, rng = ms.space.default(target), random.Random(seed)
    found = [sketch for sketch in space.sketches(program) if sketches in str(sketch)]
    while count:
        try:
            sch = rng.choice(found).apply(program, rng=rng)
            space.check(sch)
        except ScheduleError:
            continue
        count -= 1
        yield sch


@cache
def find_result(program: ms.ir.Program) -> np.ndarray:
    return np.asarray(ms.interpret(program, *random_inputs(program)))


def assert_right(got: Any, program: ms.ir.Program, why: str) -> None:
    wanted = find_result(program)
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=why)


def run_on_opencl(program: ms.ir.Program, sch: ms.Schedule) -> None:
    assert_right(ms.build(sch, target="opencl")(*random_inputs(program)), program, str(sch.trace))


def compile_by_nvidia(sch: ms.Schedule, arch: str) -> None:
    """The same schedule for an architecture; its kernels take no more than the device has."""
    target = resolve(f"cuda:{arch}")
    gpu = target.gpu
    assert gpu is not None
    exe = DeviceExecutable(generate_device_program(sch.program, target))
    blocks = {launch.kernel: int(np.prod(launch.block)) for launch in exe.program.launches}
    for kernel, found in exe.resources().items():
        assert found["shared"] <= gpu.max_shared, sch.trace
        assert found["registers"] <= gpu.max_registers, sch.trace
        assert found["registers"] * blocks[kernel] <= gpu.registers, sch.trace


@pytest.mark.parametrize("name", ["GMM", "C1D", "SFM", "NRM"])
def test_a_candidate_runs_on_opencl(name: str) -> None:
    opencl()
    program = ms.workloads.create(name, **SMALL[name][0])
    for sch in draw(program, "opencl", 1):
        run_on_opencl(program, sch)


def test_filtered_convolutions_run_on_opencl() -> None:
    opencl()
    program = ms.workloads.create("C2D", **FILTERED)
    for sch in draw(program, "opencl", 60 if LONG["long"] else 2, sketches="winograd"):
        run_on_opencl(program, sch)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_candidate_is_compiled_by_nvidia(arch: str) -> None:
    nvrtc()
    program = ms.workloads.create("GMM", **SMALL["GMM"][0])
    for sch in draw(program, f"cuda:{arch}", 1):
        compile_by_nvidia(sch, arch)


@pytest.mark.parametrize(("n", "k"), [(0, 3), (2, 0)], ids=["rows", "terms"])
def test_programs_with_empty_loops(n: int, k: int) -> None:
    opencl()
    x, y = ms.te.placeholder((n, k), name="x"), ms.te.placeholder((k, 3), name="y")
    term = ms.te.reduce_axis(k, name="k")
    z = ms.te.compute((n, 3), lambda i, j: ms.te.sum(x[i, term] * y[term, j], axis=term), name="z")
    program = ms.te.program([x, y], [z])
    for sch in draw(program, "opencl", 1):
        run_on_opencl(program, sch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "config"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_many_candidates_run_on_opencl(name: str, config: dict[str, Any]) -> None:
    opencl()
    program = ms.workloads.create(name, **config)
    for sch in draw(program, "opencl", 200 // len(SMALL[name])):
        run_on_opencl(program, sch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "config"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_many_candidates_are_compiled_by_nvidia(name: str, config: dict[str, Any]) -> None:
    nvrtc()
    program = ms.workloads.create(name, **config)
    for sch in draw(program, "cuda:sm_75", 200 // len(SMALL[name])):
        for arch in ARCHITECTURES:
            compile_by_nvidia(sch, arch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "config"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_candidates_have_no_races(name: str, config: dict[str, Any]) -> None:
    program, target = ms.workloads.create(name, **config), resolve("cuda:sm_80")
    for seed, sch in enumerate(draw(program, "cuda:sm_80", 20)):
        lowered = lower_gpu(sch.program, target)
        got = simulate(lowered, program, *random_inputs(program), seed=seed)
        assert_right(got, program, str(sch.trace))
