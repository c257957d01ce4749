"""Unrolling as far as a number of steps: what a block's annotation `unroll` asks for.

How far depends on the extents, and the structure of a schedule must not. So the schedule only says the
number, which may be drawn, and the loops are chosen here. From the block outwards, serial loops are unrolled
as long as the copies of the block are no more than that number; vectorized loops in between do not count.
"""

from __future__ import annotations

from ...ir import Block, Body, For, Program, Stmt, changed, walk
from ...ir.annotations import UNROLL


def unroll_annotated(program: Program) -> Program:
    """The program with the loops around annotated blocks unrolled."""
    wanted = any(isinstance(s, Block) and UNROLL.is_on(s) for s in walk(program))
    return changed(program, body=unrolled(program.body)[0]) if wanted else program


def unrolled(body: Body) -> tuple[Body, int | None]:
    """A body with its loops unrolled, and how many more copies the loop around it may make: None for none."""
    made: list[Stmt] = []
    budgets: list[int | None] = []
    for s in body:
        if isinstance(s, Block):
            budgets.append(UNROLL.get(s))
            made.append(changed(s, body=unrolled(s.body)[0]))
            continue
        if not isinstance(s, For):
            budgets.append(None)
            made.append(s)
            continue
        inside, budget = unrolled(s.body)
        extent, kind = s.fixed_extent, s.kind
        if budget is not None and kind != "vectorized":
            budget = budget // extent if extent and kind in ("serial", "unrolled") else 0
            if kind == "serial" and budget:
                kind = "unrolled"
        budgets.append(budget or None)
        made.append(changed(s, body=inside, kind=kind))
    return tuple(made), None if None in budgets or not budgets else min(b for b in budgets if b is not None)
