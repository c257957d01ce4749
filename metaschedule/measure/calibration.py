"""A kernel whose length depends on nothing but how fast the cores run: independent chains of multiply-adds.

It touches no memory, so that neither its data nor where that lies matters: if it takes longer than it did,
the machine is slower than it was. Cores were clocked down, share their units with others, or belong to a
virtual machine that was not running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from ..codegen import generate
from ..runtime import Executable, Kernel
from ..script import parse
from ..target import Target
from .watch import ThreadWatch

STEPS = 5_000  # about 10 us
CALLS = 3  # of which the shortest counts
DISTURBED = 2  # calls: enough to see that the machine is too busy to tell
REMEMBERED = 128  # calibrations: what was usual longer ago no longer is
SLOW = 1.15  # times the usual length


def chains_script(threads: int, chains: int, lanes: int, steps: int) -> str:
    """Independent chains of fused multiply-adds on every core: nothing but arithmetic."""
    return f"""
@ms.program
def fma_chains(X: T.Tensor(({lanes},), "float32"), Y: T.Tensor(({lanes},), "float32"),
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


def chains_of(target: Target) -> int:
    """How many chains keep all units of a core busy: some registers hold the operands."""
    return min(12, target.vector_registers - 4)


def calibration_kernel(target: Target, threads: int) -> Kernel:
    return generate(parse(chains_script(threads, chains_of(target), target.lanes("float32"), STEPS)), target)


class Calibration:
    """How fast the machine is now, beside what it was."""

    def __init__(self, kernel: Kernel, threads: int, watch: ThreadWatch) -> None:
        self._run = Executable(kernel, threads=threads)
        shapes = [(spec.shape, spec.dtype) for spec in (*kernel.inputs, *kernel.outputs)]
        self._arguments = [np.full(shape, 0.5, dtype) for shape, dtype in shapes]  # sums that stay finite
        self._known: deque[float] = deque(maxlen=REMEMBERED)
        self._watch = watch
        self._run(*self._arguments)
        watch.follow()

    def slowdown(self, rest: Callable[[], None]) -> float | None:
        """How many times as long the kernel takes as it usually does; None if it was always interrupted.

        `rest` is what to do after an interruption.
        """
        times: list[float] = []
        disturbed = 0
        while len(times) < CALLS and disturbed < DISTURBED:
            sample = self._watch.time(lambda: self._run(*self._arguments))
            if sample.disturbed:
                disturbed += 1
                rest()
            else:
                times.append(sample.seconds)
        if not times:
            return None
        self._known.append(min(times))
        return min(times) / min(self._known)
