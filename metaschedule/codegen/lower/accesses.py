"""Every read and write of a flattened program, with the loops and guards around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir import (
    Body,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Program,
    Stmt,
    Store,
    TupleStore,
    While,
    own_expressions,
    subexpressions,
)


@dataclass(eq=False, slots=True)
class Use:
    buffer: Buffer
    indices: tuple[Expr, ...]
    loops: tuple[For, ...]
    path: tuple[Stmt, ...]  # every statement around, outermost first, the accessing one last
    guards: tuple[Expr, ...]  # conditions that hold
    is_store: bool


def accesses(program: Program) -> dict[Buffer, list[Use]]:
    """By buffer, in program order."""
    found: dict[Buffer, list[Use]] = {}
    for access in _body(program.body, (), (), ()):
        found.setdefault(access.buffer, []).append(access)
    return found


def _body(
    body: Body, loops: tuple[For, ...], path: tuple[Stmt, ...], guards: tuple[Expr, ...]
) -> Iterator[Use]:
    for s in body:
        here = (*path, s)
        for e in own_expressions(s):
            for x in subexpressions(e):
                if isinstance(x, Load):
                    yield Use(x.buffer, x.indices, loops, here, guards, is_store=False)
        if isinstance(s, Store):
            yield Use(s.buffer, s.indices, loops, here, guards, is_store=True)
        elif isinstance(s, TupleStore):
            yield from _body(s.stores, loops, here, guards)
        elif isinstance(s, For):
            yield from _body(s.body, (*loops, s), here, guards)
        elif isinstance(s, If):
            yield from _body(s.then, loops, here, (*guards, s.cond))
            yield from _body(s.orelse, loops, here, (*guards, ~s.cond))
        elif isinstance(s, While):
            yield from _body(s.body, loops, here, (*guards, s.cond))


def common_loops(group: list[Use]) -> tuple[For, ...]:
    """The loops around all of some accesses."""
    shared: list[For] = []
    for level in zip(*(a.loops for a in group), strict=False):
        if any(loop is not level[0] for loop in level):
            break
        shared.append(level[0])
    return tuple(shared)
