"""What a machine can do: fused multiply-adds per second, measured now."""

from __future__ import annotations

from ..codegen import executable
from ..measure.calibration import chains_of, chains_script
from ..script import parse
from ..target import Target


def measured_peak(target: Target, steps: int = 50_000, rounds: int = 3) -> float:
    """GFLOPS in float32 on all cores of a target that this machine can run; the best of some rounds."""
    lanes = target.lanes("float32")
    chains = chains_of(target)
    run = executable(parse(chains_script(target.cores, chains, lanes, steps)), target, threads=target.cores)
    best = min(run.benchmark().min for _ in range(rounds))
    return 2 * target.cores * chains * lanes * steps / best / 1e9
