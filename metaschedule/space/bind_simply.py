"""Every loop nest on a GPU, with nothing but bound loops: what is right for all programs and fast for few.

The outermost loops of a nest whose iterations are independent are fused, split by the threads of a block and
bound. A nest without such a loop runs on one thread.
"""

from __future__ import annotations

from ..errors import ScheduleError
from ..ir import Block, Program, Stmt, bodies
from ..schedule import Schedule
from ..target import Target
from .auto_bind import can_bind

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
    depth = len(sch.get_loops(sch.get_block(name)))
    for count in range(depth, 0, -1):
        new = sch.fork()
        try:
            fused = new.fuse(*new.get_loops(new.get_block(name))[:count]) if count > 1 else None
            loop = new.get_loops(new.get_block(name))[0] if fused is None else fused
            if not can_bind(new, loop):  # terms of a reduction, which threads alone may divide
                continue
            outer, inner = new.split(loop, [None, threads])
            new.bind(outer, "blockIdx.x")
            new.bind(inner, "threadIdx.x")
        except ScheduleError:
            continue
        return new
    new = sch.fork()
    try:
        new.bind(
            new.add_unit_loop(new.get_loops(new.get_block(name))[0] if depth else new.get_block(name)),
            "blockIdx.x",
        )
    except ScheduleError:
        return sch
    return new
