"""What a machine can do: fused multiply-adds, or another instruction, per second, measured now."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ..codegen import executable
from ..ir import INDEX, HardwareInstruction, Load, Program, Var, find_instruction, numpy_dtype, substitute
from ..runtime import rest
from ..script import parse
from ..target import Target
from .calibration import chains_of, chains_script
from .watch import Sample, ThreadWatch

CALLS = 10  # per round, that nothing disturbed
LONGEST = 0.2  # seconds for a round, on a busy machine
REST = 1e-3  # seconds, after a disturbed call


def measure_peak(target: Target, steps: int = 50_000, rounds: int = 3) -> float:
    """GFLOPS in float32 on all cores of a target that this machine can run; the best of some rounds.

    On a machine so busy that the cores never run together, one core's, times their number.
    """
    lanes, chains = target.lanes("float32"), chains_of(target)

    def program(threads: int) -> Program:
        return parse(chains_script(threads, chains, lanes, steps))

    return peak_of(program, 2 * chains * lanes * steps, target, rounds)


def instruction_peak(name: str, target: Target, steps: int = 50_000, rounds: int = 3) -> float:
    """Billions of operations per second of a loop of nothing but an instruction, on all cores: a product and
    its addition are two.

    >>> instruction_peak("x86.vpdpbusd.512", resolve("native"))  # doctest: +SKIP
    932.1
    """
    known = find_instruction(name)
    chains = target.matrix_registers // 2 if known.tiles else chains_of(target)

    def program(threads: int) -> Program:
        return parse(instruction_chains(known, threads, chains, steps))

    return peak_of(program, 2 * chains * known.products * steps, target, rounds)


def instruction_chains(known: HardwareInstruction, threads: int, chains: int, steps: int) -> str:
    """Independent chains of an instruction that adds to its accumulator, on every core. One operand changes
    with the steps, the other with the chains, so that no part of it can be done once for many."""
    accumulated, *operands = (e for e in known.arguments if isinstance(e, Load))
    lane = Var("v", INDEX)
    digits = (lane,) if len(accumulated.indices) == 1 else (lane // known.columns, lane % known.columns)
    values = {v: e for v, e in zip(accumulated.indices, digits, strict=True) if isinstance(v, Var)}
    inputs: list[str] = []
    args = ["acc[t, c, v]"]
    for r, (at, copies) in zip(known.registers[1:], (("k % 2", 2), ("c", chains)), strict=True):
        mine = [e for e in operands if e.buffer.name == r.name]
        inputs.append(f'{r.name}: T.Tensor({(copies, *mine[0].buffer.shape)}, "{r.dtype}")')
        args += [f"{r.name}[{at}, {', '.join(str(substitute(i, values)) for i in e.indices)}]" for e in mine]
    shape = f"({threads}, {chains}, {known.lanes})"
    return f"""
@ms.program
def instruction_chains({", ".join(inputs)}, Z: T.Output({shape}, "{known.dtype}")):
    acc = T.alloc({shape}, "{known.dtype}")
    for t in T.parallel({threads}):
        for c in T.unrolled({chains}):
            for v in T.vectorized({known.lanes}):
                acc[t, c, v] = 0
        for k in range({steps}):
            for c in T.unrolled({chains}):
                for v in T.vectorized({known.lanes}):
                    acc[t, c, v] = T.instruction("{known.name}", {", ".join(args)})
        for c in T.unrolled({chains}):
            for v in T.vectorized({known.lanes}):
                Z[t, c, v] = acc[t, c, v]
"""


def peak_of(program: Callable[[int], Program], operations: int, target: Target, rounds: int) -> float:
    """The rate of a program for so many threads, each of which does so many operations."""
    whole = rate_of(program(target.cores), operations, target, target.cores, rounds)
    if whole is None:
        whole = rate_of(program(1), operations, target, 1, rounds, at_any_rate=True)
        whole = target.cores * (whole or 0.0)
    return whole


def rate_of(
    program: Program, operations: int, target: Target, threads: int, rounds: int, at_any_rate: bool = False
) -> float | None:
    """Billions per second on so many cores; None if all calls were disturbed, unless it is wanted
    `at_any_rate`."""
    run = executable(program, target, threads=threads)
    specs = (*run.kernel.inputs, *run.kernel.outputs)
    call = partial(run, *[np.full(spec.shape, 0.5, numpy_dtype(spec.dtype)) for spec in specs])
    call()
    watch, samples = ThreadWatch(), list[Sample]()
    for _ in range(rounds):
        undisturbed, deadline = 0, time.monotonic() + LONGEST
        while undisturbed < CALLS and time.monotonic() < deadline:
            samples.append(sample := watch.time(call))
            if sample.disturbed:
                rest(threads, REST)
            else:
                undisturbed += 1
    if all(sample.disturbed for sample in samples) and not at_any_rate:
        return None
    return threads * operations / min(samples).seconds / 1e9
