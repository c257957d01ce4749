"""Spaces, schedules and code for machines other than this one, on whatever machine the tests run.

A machine is a `Target`, so every one of them has its sketches, replayed and interpreted, here. What this
machine can execute is executed; of the rest there is object code.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program, blocks
from metaschedule.runtime.compile import compile_object
from metaschedule.schedule import BlockRV, Schedule
from metaschedule.space import Space, default
from metaschedule.target import Target, missing_features, resolve
from tests.conftest import LONG
from tests.schedule.checks import inputs_of
from tests.space.candidates import is_buildable
from tests.space.test_candidates import SMALL

MACHINES = {  # 16, 32, 64 and more bytes, 16 and 32 registers, 1 to 64 cores, small and large caches
    "x86-64-v2,cores=1": "the least",
    "x86-64-v2,cores=64,l1=16384,l2=131072,l3=1048576": "many cores, small caches",
    "x86-64-v3,cores=2": "as many are",
    "x86-64-v3,cores=64,l2=4194304,l3=268435456": "many cores, large caches",
    "x86-64-v4,cores=4": "vectors longer than rows",
    "x86-64-v4,cores=1,vector_bytes=32,l1=49152,l2=2097152": "half of the vector, all registers",
    "aarch64,cores=8": "short vectors, many registers",
    "aarch64,cores=4,sve=256": "vectors of a length that is assumed",
    "riscv64,cores=4,l3=262144": "no third cache to speak of",
    "riscv64,cores=2,vlen=1024": "very long vectors",
}
WIDTHS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64,sve=256", "aarch64,sve=512",
          "riscv64,vlen=128", "riscv64,vlen=256", "riscv64,vlen=512")  # fmt: skip
GLANCE = ("DEP", "GRP", "SFM")
CASES = [(name, config) for name, configs in SMALL.items() for config in configs]
TINY = {  # that the interpreter is soon done with
    "DEP": {"n": 1, "h": 3, "w": 4, "c": 5, "k": 3, "s": 1, "p": 1},
    "GMM": {"b": 1, "n": 5, "m": 9, "k": 3},
    "SFM": {"shape": (3, 17)},
}


@lru_cache(maxsize=16)
def known_result(program: Program) -> tuple[list[np.ndarray], Any]:
    """Small integers, and what the interpreter makes of them."""
    inputs = inputs_of(program)
    return inputs, ms.interpret(program, *inputs)


def assert_nothing_refused(space: Space, program: Program) -> None:
    """The default modules know what they may do: none of them tries what is refused."""
    _, refused = space.explore(program)
    found = [f"module {who}: {why} ({times} times)" for (who, why), times in refused.items()]
    assert not found, f"{program.name} for {space.target}: " + "; ".join(found)


def draw(space: Space, program: Program, sketch: ms.Trace, rng: random.Random) -> Schedule:
    """A candidate; the message of one that cannot be replayed names module and machine."""
    try:
        return sketch.apply(program, rng=rng)
    except ScheduleError as error:
        modules = {b.annotations["module"] for b in blocks(program) if "module" in b.annotations}
        raise AssertionError(f"{program.name} for {space.target}, modules {modules}: {error}") from error


@pytest.mark.parametrize("machine", MACHINES)
def test_every_sketch_replays(machine: str) -> None:
    space, rng = default(machine), random.Random(0)
    for name, config in CASES:
        if not (LONG["long"] or name in GLANCE):
            continue
        program = ms.workloads.create(name, **config)
        assert_nothing_refused(space, program)
        found = [draw(space, program, sketch, rng) for sketch in space.sketches(program)]
        assert any(is_buildable(space, sch) for sch in found), f"{name} {config} for {machine}"


@pytest.mark.slow
@pytest.mark.parametrize("machine", WIDTHS)
@pytest.mark.parametrize("name", ms.workloads.names())
def test_every_vector_width(name: str, machine: str) -> None:
    """All sketches of a workload, small and as the paper and networks have it: none is refused, each replays,
    and what the checks of the space let through has code."""
    space, rng, target = default(machine), random.Random(0), resolve(machine)
    for config in [*SMALL[name], *map(dict, ms.workloads.configurations(name))]:
        program = ms.workloads.create(name, **config)
        assert_nothing_refused(space, program)
        for sketch in space.sketches(program):
            sch = draw(space, program, sketch, rng)
            if is_buildable(space, sch):
                assert generate(sch.program, target).llvm


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", TINY)
def test_candidates_mean_what_the_program_does(name: str, machine: str) -> None:
    """Interpreted, and executed or at least compiled."""
    space, rng, target = default(machine), random.Random(1), resolve(machine)
    program = ms.workloads.create(name, **TINY[name])
    inputs, wanted = known_result(program)
    sketches = space.sketches(program)
    for sketch in sketches if LONG["long"] else rng.sample(sketches, min(2, len(sketches))):
        sch = draw(space, program, sketch, rng)
        got = ms.interpret(sch.program, *inputs)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sch.trace))
        if not is_buildable(space, sch):
            continue
        if not missing_features(target):
            got = ms.build(sch, target=target)(*inputs)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sch.trace))
        else:
            assert_object(sch.program, target)


def assert_object(program: Program, target: Target) -> None:
    assert compile_object(generate(program, target).llvm, target)


def test_a_module_that_raises_is_named() -> None:
    """What is refused is a failure of this suite; what is a bug says where it was."""

    def greedy(sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        sch.parallel(sch.get_loops(block)[-1])
        return [sch]

    def buggy(sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        raise KeyError("oops")

    program = ms.workloads.create("GMM", **TINY["GMM"])
    with pytest.raises(AssertionError, match="GMM for .*: module greedy: iterations of the loop over k may"):
        assert_nothing_refused(default("x86-64-v3") + greedy, program)
    with pytest.raises(KeyError) as error:
        (default("x86-64-v3") + buggy).explore(program)
    assert "in module buggy, at block 'matmul' of GMM" in error.value.__notes__
