"""What candidates are compared with: the program as written, without vectors, threads or fused operations."""

from __future__ import annotations

import math

from ..codegen import generate
from ..errors import ScheduleError
from ..ir import Block, Program, as_int, blocks
from ..runtime import Kernel
from ..schedule import LoopRV, Schedule
from ..target import Target, native
from .numerics import MANY

MOST_PARTS = 1 << 24  # elements


def reference_kernel(program: Program, target: Target) -> Kernel:
    """Sums keep their order, term by term, but the last of the loops over elements goes inside them.

    That is where memory is contiguous: a matrix product of 4 GFLOP takes 0.7 s so, and 20 s as written. Very
    long sums are computed in parts: a candidate has many accumulators, and of millions of terms the sum in
    one of them is the less exact.
    """
    sch = Schedule(program)
    for block in blocks(program):
        kinds = [it.kind for it in block.iters]
        try:
            loops = sch.get_loops(sch.get_block(block.name))
            if "reduce" in kinds and len(loops) == len(kinds):
                terms = [loops[i] for i, kind in enumerate(kinds) if kind == "reduce"]
                if "spatial" in kinds:
                    last = max(i for i, kind in enumerate(kinds) if kind == "spatial")
                    sch.reorder(*terms, loops[last])
                sum_in_parts(sch, block, terms)
        except ScheduleError:
            continue  # it takes longer, that is all
    return generate(sch.program, target if target.gpu is None else native(), fma=False)


def sum_in_parts(sch: Schedule, block: Block, terms: list[LoopRV]) -> None:
    """As many parts as each has terms, if these are many."""
    sizes = {"reduce": 1, "spatial": 1}
    for it in block.iters:
        sizes[it.kind] *= as_int(it.extent) or 1
    parts = math.isqrt(sizes["reduce"])
    if sizes["reduce"] >= MANY and parts * sizes["spatial"] <= MOST_PARTS:
        whole = sch.fuse(*terms) if len(terms) > 1 else terms[0]
        sch.rfactor(sch.split(whole, [parts, None])[0])
