"""`Analytical`: seconds of a program from its loops and the target's description, without measuring.

The time of a store is that of its tiles and loops, joined with that of the traffic between caches, on as many
cores as its parallel loop keeps busy. Constants are those of recent x86 cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Program
from ..schedule import Schedule
from ..target import Target
from .gpu import predict_gpu
from .table import PARALLEL, Table
from .tile import ISSUE, LOOP, TileCosts
from .traffic import traffic_of

CYCLE = 1 / 3.2e9  # seconds
ENTRY = 6.0  # instructions to start a loop
FORK = 1.5e-6  # seconds to start a parallel loop


class Analytical:
    """Predicts seconds; there is nothing to learn."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray:
        """Seconds of each program.

        >>> from metaschedule import Schedule, workloads
        >>> from metaschedule.target import resolve
        >>> plain = Schedule(workloads.create("GMM"))
        >>> fast = plain.fork()
        >>> _ = fast.parallel(fast.get_loops(fast.get_block("matmul"))[1])
        >>> one, two = Analytical(resolve("x86-64-v3,cores=2")).predict([plain, fast])
        >>> bool(1.9 < one / two < 2.1)
        True
        """
        if self.target.gpu is not None:
            return predict_gpu(programs, self.target.gpu).seconds
        table = Table(programs)
        times = Estimate(table, self.target).seconds
        return np.bincount(table.owner, weights=times, minlength=table.count)

    def update(self, programs: Sequence[Program | Schedule], latencies: Sequence[float | None]) -> None:
        """Measurements change nothing."""


class Estimate:
    """Seconds per store of a table, and the figures that they come from."""

    def __init__(self, t: Table, target: Target) -> None:
        self.tiles = TileCosts(t, target)
        self.missing, self.traffic = traffic_of(t, target)
        position = np.arange(t.extent.shape[1])
        # A loop is counted for the first store inside it.
        mine = self.tiles.loops & (position >= t.shared[:, None])
        before = np.concatenate([np.ones((len(t.extent), 1)), np.cumprod(t.extent, axis=1)], axis=1)
        outermost = np.where(self.tiles.loops, position, 0).max(axis=1)[:, None]
        started = np.where(mine, before[:, :-1], 0.0)
        turned = np.where(mine & (position < outermost), before[:, 1:], 0.0)  # the innermost is in the tile's
        self.overhead = (started * ENTRY + turned * LOOP).sum(axis=1) / ISSUE
        self.compute = self.tiles.cycles * self.tiles.trips + self.overhead
        parallel = (t.kind == PARALLEL) & (t.extent > 1)
        chunks = np.where(parallel, t.extent, 1.0).prod(axis=1)
        self.cores = chunks / np.ceil(chunks / target.cores)
        first = parallel.argmax(axis=1)
        starts = np.take_along_axis(before, first[:, None], 1)[:, 0]
        self.forks = np.where(parallel.any(axis=1) & (first >= t.shared), starts, 0.0)
        cycles = np.hypot(self.compute, self.traffic)
        self.seconds = cycles * CYCLE / self.cores + self.forks * FORK
