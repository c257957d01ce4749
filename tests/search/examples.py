"""A small program, and a small space for it."""

from __future__ import annotations

import metaschedule as ms
from metaschedule.ir import Program
from metaschedule.schedule import Schedule


def small(n: int = 24) -> Program:
    return ms.workloads.create("GMM", b=1, n=n, m=16, k=16)


def tiled(sch: Schedule) -> None:
    """A space of 8 * 2 candidates."""
    _, i, j, k = sch.get_loops(sch.get_block("matmul"))
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2))
    sch.reorder(i0, k, i1, j)
    sch.unroll(sch.split(j, [None, sch.sample_categorical([4, 8], [0.5, 0.5])])[1])
