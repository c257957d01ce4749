"""Every read and write of a flattened program, with the loops and guards around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ... import ir


@dataclass(eq=False, slots=True)
class Use:
    buffer: ir.Buffer
    indices: tuple[ir.Expr, ...]
    loops: tuple[ir.For, ...]
    path: tuple[ir.Stmt, ...]  # every statement around, outermost first, the accessing one last
    guards: tuple[ir.Expr, ...]  # conditions that hold
    is_store: bool


def accesses(program: ir.Program) -> dict[ir.Buffer, list[Use]]:
    """By buffer, in program order."""
    found: dict[ir.Buffer, list[Use]] = {}
    for access in _body(program.body, (), (), ()):
        found.setdefault(access.buffer, []).append(access)
    return found


def _body(
    body: ir.Body, loops: tuple[ir.For, ...], path: tuple[ir.Stmt, ...], guards: tuple[ir.Expr, ...]
) -> Iterator[Use]:
    for s in body:
        here = (*path, s)
        for e in ir.own_expressions(s):
            for x in ir.subexpressions(e):
                if isinstance(x, ir.Load):
                    yield Use(x.buffer, x.indices, loops, here, guards, is_store=False)
        if isinstance(s, ir.Store):
            yield Use(s.buffer, s.indices, loops, here, guards, is_store=True)
        elif isinstance(s, ir.TupleStore):
            yield from _body(s.stores, loops, here, guards)
        elif isinstance(s, ir.For):
            yield from _body(s.body, (*loops, s), here, guards)
        elif isinstance(s, ir.If):
            yield from _body(s.then, loops, here, (*guards, s.cond))
            yield from _body(s.orelse, loops, here, (*guards, ~s.cond))
        elif isinstance(s, ir.While):
            yield from _body(s.body, loops, here, (*guards, s.cond))


def common_loops(group: list[Use]) -> tuple[ir.For, ...]:
    """The loops around all of some accesses."""
    shared: list[ir.For] = []
    for level in zip(*(a.loops for a in group), strict=False):
        if any(loop is not level[0] for loop in level):
            break
        shared.append(level[0])
    return tuple(shared)
