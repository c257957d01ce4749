"""Every loop nest on a GPU, with nothing but bound loops: what is right for all programs and fast for few.

The outermost loops of a nest whose iterations are independent are fused, split by the threads of a block and
bound. A nest without such a loop runs on one thread.
"""

from __future__ import annotations

from ..errors import ScheduleError
from ..ir import Block, Program, Stmt, bodies
from ..schedule import Schedule
from ..target import Target
from .auto_bind import bind_outer_loops, bind_unit_loop

THREADS = 128  # of a block: four warps, and few enough for every device


def bind_simply(program: Program, target: Target) -> Schedule:
    """The loops as written, bound."""
    assert target.gpu is not None
    sch = Schedule(program)
    threads = min(THREADS, target.gpu.max_threads)
    for s in program.body:
        block = find_block(s)
        if block is not None:
            sch = bind_nest(sch, block.name, threads)
    return sch


def find_block(s: Stmt) -> Block | None:
    """The first block of a statement."""
    if isinstance(s, Block):
        return s
    return next((found for body in bodies(s) for x in body if (found := find_block(x)) is not None), None)


def bind_nest(sch: Schedule, name: str, threads: int) -> Schedule:
    """The nest around a block with as many of its outer loops bound as can be."""
    new = sch.fork()
    block = new.get_block(name)
    if (bound := bind_outer_loops(new, block, lambda _: threads)) is not None:
        return bound
    try:
        bind_unit_loop(new, block)
    except ScheduleError:
        return sch
    return new
