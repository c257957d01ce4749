"""What a machine can do: fused multiply-adds per second, measured now."""

from __future__ import annotations

from ..codegen import executable
from ..script import parse
from ..target import Target


def peak_script(threads: int, chains: int, lanes: int, steps: int) -> str:
    """Independent chains of fused multiply-adds on every core: nothing but arithmetic."""
    return f"""
@ms.program
def fma_peak(X: T.Tensor(({lanes},), "float32"), Y: T.Tensor(({lanes},), "float32"),
             Z: T.Output(({threads}, {chains}, {lanes}), "float32")):
    acc = T.alloc(({threads}, {chains}, {lanes}), "float32")
    for t in T.parallel({threads}):
        for c in T.unrolled({chains}):
            for v in T.vectorized({lanes}):
                acc[t, c, v] = X[v]
        for k in range({steps}):
            for c in T.unrolled({chains}):
                for v in T.vectorized({lanes}):
                    acc[t, c, v] = acc[t, c, v] * X[v] + Y[v]
        for c in T.unrolled({chains}):
            for v in T.vectorized({lanes}):
                Z[t, c, v] = acc[t, c, v]
"""


def measured_peak(target: Target, steps: int = 50_000, rounds: int = 3) -> float:
    """GFLOPS in float32 on all cores of a target that this machine can run; the best of some rounds."""
    lanes = target.lanes("float32")
    chains = min(12, target.vector_registers - 4)
    run = executable(parse(peak_script(target.cores, chains, lanes, steps)), target, threads=target.cores)
    best = min(run.benchmark().min for _ in range(rounds))
    return 2 * target.cores * chains * lanes * steps / best / 1e9
