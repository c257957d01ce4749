"""AutoBind: loops that are not bound to a GPU axis yet."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import GPU_AXES
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Gpu, Target
from .stage import fuse

SIZES = (16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class AutoBind:
    """Fuse the outermost loops whose iterations are independent, and divide them into blocks of a drawn
    number of threads. A nest without such a loop runs on one thread."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        if target.gpu is None or not is_unbound(sch, block):
            return [sch]
        for count in range(len(sch.get_loops(block)), 0, -1):
            new = sch.fork()
            try:
                loops = new.get_loops(block)[:count]
                whole = fuse(new, loops)
                if not can_bind(new, whole):
                    continue
                outer, inner = new.split(whole, [None, draw_threads(new, target.gpu)])
                new.bind(outer, "blockIdx.x")
                new.bind(inner, "threadIdx.x")
            except ScheduleError:
                continue
            return [new]
        loops = sch.get_loops(block)
        sch.bind(sch.add_unit_loop(loops[0] if loops else block), "blockIdx.x")
        return [sch]


def draw_threads(sch: Schedule, gpu: Gpu) -> ExprRV:
    """How many threads a block has."""
    sizes = [n for n in SIZES if n <= gpu.max_threads] or [1]
    return sch.sample_categorical(sizes, [1 / len(sizes)] * len(sizes))


def is_unbound(sch: Schedule, block: BlockRV) -> bool:
    return not any(sch.get(loop).kind in GPU_AXES for loop in sch.get_loops(block))


def can_bind(sch: Schedule, loop: LoopRV) -> bool:
    trial = sch.fork()
    try:
        trial.bind(loop, "blockIdx.x")
    except ScheduleError:
        return False
    return True
