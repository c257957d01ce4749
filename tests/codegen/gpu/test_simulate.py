"""Kernels simulated with threads in any order: right ones give the oracle's results, wrong ones are found."""

from __future__ import annotations

import random
import textwrap
from collections import Counter

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen.gpu.lower import LoweredGpu, lower_gpu
from metaschedule.codegen.gpu.model import Barrier
from metaschedule.codegen.gpu.simulate import RaceError, simulate
from metaschedule.errors import ScheduleError
from metaschedule.interpreter import InterpreterError
from metaschedule.target import resolve
from tests.codegen.gpu.mutants import mutate
from tests.codegen.gpu.schedules import tiled_product

TARGET = resolve("cuda:sm_80")
TINY = {
    "GMM": {"b": 1, "n": 5, "m": 7, "k": 6},
    "C1D": {"n": 1, "l": 9, "ci": 2, "co": 3, "k": 3, "s": 2, "p": 1},
    "SFM": {"shape": (2, 11)},
    "NRM": {"b": 2, "m": 3, "n": 7},
    "FDENSE": {"m": 3, "n": 5, "k": 6},
}


def inputs_of(program: ms.ir.Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype(b.dtype) for b in program.inputs]


def draw(program: ms.ir.Program, rng: random.Random) -> LoweredGpu:
    """A candidate of the default space, lowered."""
    space = ms.space.default(TARGET)
    sketches = space.sketches(program)
    while True:
        try:
            sch = rng.choice(sketches).apply(program, rng=rng)
            space.check(sch)
        except ScheduleError:
            continue
        return lower_gpu(sch.program, TARGET)


def is_wrong(lowered: LoweredGpu, program: ms.ir.Program, seed: int) -> str:
    """What the simulation finds; empty if nothing."""
    inputs = inputs_of(program)
    try:
        found = simulate(lowered, program, *inputs, seed=seed)
    except RaceError:
        return "race"
    except InterpreterError:
        return "access"
    return "" if np.allclose(found, ms.interpret(program, *inputs), rtol=1e-4, atol=1e-4) else "result"


@pytest.mark.parametrize("name", TINY)
def test_candidates_have_no_races(name: str) -> None:
    program, rng = ms.workloads.create(name, **TINY[name]), random.Random(0)
    for seed in range(2):
        assert not is_wrong(draw(program, rng), program, seed)


def find_mutants(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """How many mistakes of so many are found, by what; and those that are not."""
    rng, found, missed = random.Random(seed), Counter[str](), list[str]()
    names = list(TINY)
    while found.total() + len(missed) < count:
        number = found.total() + len(missed)
        program = ms.workloads.create(names[number % len(names)], **TINY[names[number % len(names)]])
        kind = ("barrier", "index", "predicate")[rng.randrange(3)]
        lowered = mutate(draw(program, rng), kind, rng)
        if lowered is None:
            continue
        how = is_wrong(lowered, program, number)
        if how:
            found[f"{kind}: {how}"] += 1
        else:
            missed.append(f"{kind} in\n" + "\n".join(map(str, lowered.kernels)))
    return found, missed


def test_mistakes_are_found() -> None:
    found, missed = find_mutants(10, 0)
    assert len(missed) <= 1, "\n".join([str(found), *missed])


@pytest.mark.slow
def test_most_mistakes_are_found() -> None:
    found, missed = find_mutants(200, 1)
    print(found, len(missed))
    assert len(missed) <= 10, "\n".join([str(found), *missed])


def test_a_missing_barrier_is_a_race() -> None:
    text = """
    def f(A: T.Tensor((8,)), B: T.Output((8,))):
        S = T.alloc((8,), "float32", scope="shared")
        for b in T.bind(1, "blockIdx.x"):
            for t in T.bind(8, "threadIdx.x"):
                with T.block("S"):
                    i = T.spatial(8, t)
                    S[i] = A[i]
            for t in T.bind(8, "threadIdx.x"):
                with T.block("B"):
                    i = T.spatial(8, t)
                    B[i] = S[7 - i]
    """
    program = ms.parse(textwrap.dedent(text))
    data = np.arange(8, dtype="float32")
    assert np.array_equal(simulate(lower_gpu(program, TARGET), program, data), data[::-1])
    with pytest.raises(InterpreterError, match="no barrier|before it was written"):
        simulate(lower_gpu(program, TARGET, synced=False), program, data)


def pipelined_product(ahead: int) -> ms.Schedule:
    program = ms.workloads.create("GMM", b=1, n=16, m=16, k=40)
    sch = tiled_product(program, tile=16, side=4)
    _, chunks, *_ = sch.get_loops(sch.get_block("matmul"))
    sch.annotate(chunks, "double_buffer", ahead)
    return sch


@pytest.mark.parametrize("ahead", [1, 2, 3, 4, 9])
def test_chunks_have_arrived(ahead: int) -> None:
    sch = pipelined_product(ahead)
    program = sch.state.original
    lowered = lower_gpu(sch.program, TARGET)
    (kernel,) = lowered.kernels
    chunks = min(ahead, 4) + 1  # of five iterations
    assert {b.shape[0] for b in kernel.shared} == {chunks}
    waits = [s.under_way for s in ms.ir.walk(kernel.program) if isinstance(s, Barrier)]
    assert waits == [0, chunks - 2]
    inputs = inputs_of(program)
    found = simulate(lowered, program, *inputs, seed=ahead)
    assert np.allclose(found, ms.interpret(program, *inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_chunks_that_are_under_way_are_not_read(ahead: int) -> None:
    sch = pipelined_product(ahead)
    lowered = lower_gpu(sch.program, TARGET)
    for barrier in ms.ir.walk(lowered.kernels[0].program):
        if isinstance(barrier, Barrier):
            barrier.under_way += 1
    with pytest.raises(RaceError, match="under way"):
        simulate(lowered, sch.state.original, *inputs_of(sch.state.original))


def test_blocks_are_not_ordered() -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    sch = ms.Schedule(program)
    loops = sch.get_loops(sch.get_block("matmul"))
    sch.bind(loops[1], "blockIdx.x")
    lowered = lower_gpu(sch.program, TARGET)
    kernel = lowered.kernels[0]
    (zeroed,) = [kernel.axes.vars[key] for key in kernel.axes.among(("blockIdx.x",))]
    body = ms.ir.Substitute({zeroed: ms.ir.const(0)}).body(kernel.body)
    kernel.program = ms.ir.replace_fields(kernel.program, body=kernel.axes.loops(body))
    with pytest.raises(RaceError):
        simulate(lowered, program, *inputs_of(program))
