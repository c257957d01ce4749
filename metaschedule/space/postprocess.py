"""Post-processors and checks: what every schedule of a space goes through at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..codegen.lower.model import count_copies
from ..errors import ScheduleError
from ..ir import Block, numpy_dtype
from ..ir.annotations import UNROLL
from ..schedule import Schedule
from ..target import Target
from .block_predicates import reduction_loops


@dataclass(frozen=True)
class RewriteReductionBlock:
    """Take the initialisation of every reduction out of its reduction loops."""

    def __call__(self, sch: Schedule, target: Target) -> None:
        state = sch.state
        for name in [k for k, n in state.nodes.items() if isinstance(n, Block) and n.init]:
            node: Block = state.nodes[name]
            reducing = reduction_loops(sch, node.name)
            block = sch.get_block(str(name))
            loops = sch.get_loops(block)
            first = next((loop for loop in loops if sch.get(loop).var in reducing), None)
            if first is not None:
                try:
                    sch.decompose_reduction(block, first)
                except ScheduleError:
                    continue  # other blocks share the loop: the test for the first term stays


@dataclass(frozen=True)
class Buildable:
    """Refuse what takes too long to compile or too much memory to run: copies that unrolling makes, in
    hardware vectors, and buffers."""

    most_copies: int = 2048
    most_bytes: int = 1 << 33

    def __call__(self, sch: Schedule, target: Target) -> None:
        state = sch.state
        for name in [k for k, n in state.nodes.items() if isinstance(n, Block) and not state.children[k]]:
            node: Block = state.nodes[name]
            loops = [(state.nodes[key].kind, state.fixed_extent(key)) for key in state.loops_around(name)]
            lanes = max([target.lanes(r.buffer.dtype) for r in node.writes], default=1)
            copies = count_copies(loops, UNROLL.get(node), lanes)
            if copies > self.most_copies:
                raise ScheduleError(
                    f"unrolling makes {copies} copies of block {name!r}, more than {self.most_copies}"
                )
        size = sum(math.prod(b.shape) * numpy_dtype(b.dtype).itemsize for b in state.allocs)
        if size > self.most_bytes:
            raise ScheduleError(f"the buffers take {size} bytes, more than {self.most_bytes}")
