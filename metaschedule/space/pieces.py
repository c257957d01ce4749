"""Programs of many blocks, piece by piece.

Choices for blocks that do not touch are independent, so a long program is cut into pieces of consecutive
statements, each is explored as a program of its own, and a sketch of the whole is one of each piece, one
after the other. That takes as long as there are pieces; equal pieces are explored once.

    for ...: a[i] = x[i] + 1.0        piece 1: x in, b out
    for ...: b[i] = a[i] * 2.0
    ---------------------------       cut where the least passes from one side to the other
    for ...: c[i] = sum(b[i, k])      piece 2: b in, c out
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import ir
from ..schedule import BlockRV, Schedule, Trace
from ..schedule.primitive.base import Handle, map_handles
from ..schedule.primitive.query import GetBlock
from ..schedule.trace import Instruction

MOST_BLOCKS = 32  # of a piece, and of a program that is not cut


@dataclass(frozen=True)
class Sketch:
    """What a space makes of a program: the steps, the names of the blocks that their handles stand for, and
    how many of the program's own blocks are left at the end."""

    trace: Trace
    names: dict[Handle, str]
    left: int

    @staticmethod
    def of(sch: Schedule) -> Sketch:
        values = sch.state.values
        names: dict[Handle, str] = {h: name for h, name in values.items() if isinstance(h, BlockRV)}
        left = sum(name in sch.state.nodes for name in block_names(sch.state.original))
        return Sketch(sch.trace.without_dead(), names, left)


def block_names(program: ir.Program) -> list[str]:
    return [b.name for b in ir.blocks(program)]


# --- cutting --------------------------------------------------------------------------------------


def pieces(program: ir.Program) -> list[ir.Program]:
    """The program in pieces of a bounded number of blocks, or itself if it is small enough. A statement that
    has more blocks than that inside is a piece of its own."""
    sizes = [len(ir.blocks(s)) for s in program.body]
    names = block_names(program)
    if sum(sizes) <= MOST_BLOCKS or program.annotations or len(set(names)) < len(names):
        return [program]
    uses = [buffers_used(s) for s in program.body]
    crossing = bytes_crossing(program, uses)
    cuts = [0]
    while (end := furthest_reach(sizes, cuts[-1])) < len(sizes):
        first = cuts[-1] + max(1, (end - cuts[-1]) // 2)
        cuts.append(min(range(first, end + 1), key=lambda at: (crossing[at], -at)))
    return [piece(program, uses, *span) for span in itertools.pairwise([*cuts, len(sizes)])]


def furthest_reach(sizes: Sequence[int], start: int) -> int:
    """Where a piece that starts there ends at the latest."""
    end, count = start + 1, sizes[start]
    while end < len(sizes) and count + sizes[end] <= MOST_BLOCKS:
        count, end = count + sizes[end], end + 1
    return end


def piece(program: ir.Program, uses: Sequence[dict[ir.Buffer, bool]], start: int, end: int) -> ir.Program:
    """Some statements as a program: what others touch, too, is an input or an output."""
    body = program.body[start:end]
    outside = {b for touched in (*uses[:start], *uses[end:]) for b in touched} | set(program.params)
    written = ir.buffers_written(body)
    found = dict.fromkeys(b for touched in uses[start:end] for b in touched)
    passed = [b for b in found if b in outside and b.data is None]
    return ir.Program(
        program.name,
        tuple([b for b in passed if b not in written]),
        tuple([b for b in passed if b in written]),
        body,
        tuple([b for b in program.allocs if b in found and (b.data is not None or b not in outside)]),
    )


def buffers_used(s: ir.Stmt) -> dict[ir.Buffer, bool]:
    """The buffers that a statement touches, and whether it writes them."""
    found = {e.buffer: False for e in ir.expressions(s) if isinstance(e, ir.Load)}
    return found | {x.buffer: True for x in ir.walk(s) if isinstance(x, ir.Store)}


def bytes_crossing(program: ir.Program, uses: Sequence[dict[ir.Buffer, bool]]) -> list[float]:
    """How many bytes of intermediate results are alive before each statement; infinitely many where a buffer
    is written before and after."""
    at: dict[ir.Buffer, list[tuple[int, bool]]] = {}
    for n, touched in enumerate(uses):
        for b, is_written in touched.items():
            at.setdefault(b, []).append((n, is_written))
    alive = [0] * (len(uses) + 1)  # how both numbers change there
    rewritten = [0] * (len(uses) + 1)
    for b in (*program.outputs, *program.allocs):
        touches = at.get(b, [])
        writes = [n for n, is_written in touches if is_written]
        if touches and b.data is None:
            alive[touches[0][0] + 1] += b.size * b.item_bytes
            alive[touches[-1][0] + 1] -= b.size * b.item_bytes
        if writes:
            rewritten[writes[0] + 1] += 1
            rewritten[writes[-1] + 1] -= 1
    totals = zip(itertools.accumulate(alive), itertools.accumulate(rewritten))
    return [math.inf if forbidden else size for size, forbidden in totals]


# --- putting together -----------------------------------------------------------------------------


def join_traces(program: ir.Program, parts: Sequence[tuple[ir.Program, Sketch]]) -> Trace:
    """The steps for all pieces of a program, one piece after the other. A sketch may have been made on
    another program of the same structure as the piece."""
    steps: list[Instruction] = []
    handles = itertools.count()
    before = 0  # how many blocks are left of the pieces before
    for part, sketch in parts:
        origin = sketch.trace.program
        assert origin is not None
        own = dict(zip(block_names(origin), block_names(part), strict=True))
        new: dict[Handle, Handle] = {}
        made: dict[str, Handle] = {}  # blocks that the steps have made, by name
        for step in sketch.trace.instructions:
            looked_up = step.primitive
            if isinstance(looked_up, GetBlock) and looked_up.name not in own:
                # Its name here may be another, so it is called by the handle it was made with.
                new[step.outputs[0]] = made[looked_up.name]
                continue
            for h in step.outputs:
                new[h] = type(h)(next(handles))
                if h in sketch.names:
                    made[sketch.names[h]] = new[h]
            operands = map_handles(looked_up.operands(), new.__getitem__)
            primitive: Any = type(looked_up)
            if isinstance(looked_up, GetBlock):
                operands = own[looked_up.name], before + (looked_up.index or 0)
            step_outputs = tuple([new[h] for h in step.outputs])
            steps.append(Instruction(primitive(*operands), step_outputs, step.decision))
        before += sketch.left
    return Trace(tuple(steps), program)
