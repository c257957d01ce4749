"""What a machine can do: fused multiply-adds per second, measured now."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from ..codegen import executable
from ..runtime import rest
from ..script import parse
from ..target import Target
from .calibration import chains_of, chains_script
from .watch import Sample, Watch

CALLS = 10  # per round, that nothing disturbed
LONGEST = 0.2  # seconds for a round, on a busy machine
REST = 1e-3  # seconds, after a disturbed call


def measured_peak(target: Target, steps: int = 50_000, rounds: int = 3) -> float:
    """GFLOPS in float32 on all cores of a target that this machine can run; the best of some rounds.

    On a machine so busy that the cores never run together, one core's, times their number.
    """
    return peak_of(target, target.cores, steps, rounds) or (
        target.cores * (peak_of(target, 1, steps, rounds, at_any_rate=True) or 0.0)
    )


def peak_of(target: Target, threads: int, steps: int, rounds: int, at_any_rate: bool = False) -> float | None:
    """GFLOPS on so many cores; None if all calls were disturbed, unless it is wanted `at_any_rate`."""
    lanes, chains = target.lanes("float32"), chains_of(target)
    run = executable(parse(chains_script(threads, chains, lanes, steps)), target, threads=threads)
    specs = (*run.kernel.inputs, *run.kernel.outputs)
    call = partial(run, *[np.full(spec.shape, 0.5, spec.dtype) for spec in specs])
    call()
    watch, samples = Watch(), list[Sample]()
    for _ in range(rounds):
        undisturbed, deadline = 0, time.monotonic() + LONGEST
        while undisturbed < CALLS and time.monotonic() < deadline:
            samples.append(sample := watch.timed(call))
            if sample.disturbed:
                rest(threads, REST)
            else:
                undisturbed += 1
    if all(sample.disturbed for sample in samples) and not at_any_rate:
        return None
    return 2 * threads * chains * lanes * steps / min(samples).seconds / 1e9
