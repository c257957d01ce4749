"""What candidates are compared with: the program as written, without vectors, threads or fused operations."""

from __future__ import annotations

from ..codegen import generate
from ..errors import ScheduleError
from ..ir import Program, blocks
from ..runtime import Kernel
from ..schedule import Schedule
from ..target import Target


def reference_kernel(program: Program, target: Target) -> Kernel:
    """Sums keep their order, term by term, but the last of the loops over elements goes inside them.

    That is where memory is contiguous: a matrix product of 4 GFLOP takes 0.7 s so, and 20 s as written.
    """
    sch = Schedule(program)
    for block in blocks(program):
        kinds = [it.kind for it in block.iters]
        try:
            loops = sch.get_loops(sch.get_block(block.name))
            if "reduce" in kinds and "spatial" in kinds and len(loops) == len(kinds):
                terms = [loops[i] for i, kind in enumerate(kinds) if kind == "reduce"]
                last = max(i for i, kind in enumerate(kinds) if kind == "spatial")
                sch.reorder(*terms, loops[last])
        except ScheduleError:
            continue  # it takes longer, that is all
    return generate(sch.program, target, fma=False)
