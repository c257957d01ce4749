"""AutoBind: loops that are not bound to a GPU axis yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
        new = bind_outer_loops(sch, block, partial(draw_threads, gpu=target.gpu))
        if new is None:
            bind_unit_loop(sch, block)
        return [new or sch]


def bind_outer_loops(
    sch: Schedule, block: BlockRV, choose_threads: Callable[[Schedule], ExprRV | int]
) -> Schedule | None:
    """As many outer loops of a block as can be, fused, divided into blocks of threads; None if none can."""
    for count in range(len(sch.get_loops(block)), 0, -1):
        new = sch.fork()
        try:
            whole = fuse(new, new.get_loops(block)[:count])
            if not can_bind(new, whole):  # terms of a reduction, which threads alone may divide
                continue
            outer, inner = new.split(whole, [None, choose_threads(new)])
            new.bind(outer, "blockIdx.x")
            new.bind(inner, "threadIdx.x")
        except ScheduleError:
            continue
        return new
    return None


def bind_unit_loop(sch: Schedule, block: BlockRV) -> None:
    """One thread for a block with all its loops."""
    loops = sch.get_loops(block)
    sch.bind(sch.add_unit_loop(loops[0] if loops else block), "blockIdx.x")


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
