"""Unrolling as far as a number of copies: what a block's annotation `unroll` asks for.

How far depends on the extents, and the structure of a schedule must not. So the schedule only says the
number, which may be drawn, and the loops are chosen here. From the block outwards, serial loops are unrolled
as long as the copies of the block are no more than that number (`model.spend_copies`).
"""

from __future__ import annotations

from ... import ir
from ...ir.annotations import UNROLL
from .model import resolve_kind, share_copies, spend_copies


def unroll_annotated(program: ir.Program) -> ir.Program:
    """The program with the loops around annotated blocks unrolled."""
    wanted = any(isinstance(s, ir.Block) and UNROLL.is_on(s) for s in ir.walk(program))
    return ir.replace_fields(program, body=unroll_body(program.body, ())[0]) if wanted else program


def unroll_body(body: ir.Body, around: tuple[str, ...]) -> tuple[ir.Body, int | None]:
    """A body inside loops that run as `around`, with its loops unrolled, and how many copies it may have."""
    made: list[ir.Stmt] = []
    asked: list[int | None] = []
    for s in body:
        if isinstance(s, ir.Block):
            made.append(ir.replace_fields(s, body=unroll_body(s.body, around)[0]))
            asked.append(UNROLL.get(s))
        elif isinstance(s, ir.For):
            extent = s.fixed_extent
            kind = resolve_kind(s.kind, extent, around)
            inner, copies = unroll_body(s.body, around if extent == 1 else (*around, kind))
            copies = spend_copies(copies, kind, extent)
            unrolled = s.kind == "serial" and copies is not None
            made.append(ir.replace_fields(s, body=inner, kind="unrolled" if unrolled else s.kind))
            asked.append(copies)
        else:
            made.append(s)
            asked.append(None)
    return tuple(made), share_copies(asked)
