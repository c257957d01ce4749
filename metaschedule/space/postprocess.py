"""Post-processors and checks: what every schedule of a space goes through at the end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..codegen.gpu.lower import LoweredGpu, lower_gpu
from ..codegen.gpu.model import buffer_bytes
from ..codegen.lower.model import count_copies
from ..errors import ScheduleError
from ..ir import Block, Program
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
        size = sum(b.size * b.item_bytes for b in state.allocs)
        if size > self.most_bytes:
            raise ScheduleError(f"the buffers take {size} bytes, more than {self.most_bytes}")


@dataclass(frozen=True)
class BuildableOnGpu:
    """Refuse what is no kernel of the target: unbound loops, races, too many threads or too much shared
    memory; and what does not fit the registers of a thread."""

    def __call__(self, sch: Schedule, target: Target) -> None:
        lowered, gpu = lower_candidate(sch.program, target), target.gpu
        # A device that runs one warp at a time (a CPU) has memory instead of more registers.
        if gpu is None or gpu.registers <= gpu.max_registers * gpu.warp:
            return
        for kernel in lowered.kernels:
            words = sum([-(-buffer_bytes(b) // 4) for b in kernel.local])
            if words > gpu.max_registers:
                raise ScheduleError(f"a thread would need {words} registers, more than {gpu.max_registers}")


@lru_cache(maxsize=64)
def lower_candidate(program: Program, target: Target) -> LoweredGpu:
    """The kernels of a candidate: checks and what ranks candidates ask for the same."""
    return lower_gpu(program, target, checked=False)
