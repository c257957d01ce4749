"""Expressions too large for one stage, in several.

A loop in Python writes an expression of a thousand steps as easily as one of ten. What reads expressions
later goes into them as deep as they are, and sees a part that is used twice twice; so `compute` makes a stage
of its own of what has become too deep or too large, and reads that:

    x + 1.0 + 1.0 + ...     -->     y_part = x + 1.0 + 1.0 ...;  y = y_part + 1.0 + ...

Refuses: what is evaluated under a condition only (a branch of `select`), where it might read out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import ir
from .reduction import Component, parts

MOST_DEPTH = 64
MOST_NODES = 1024
MOST_UNCUT_DEPTH = 160  # of what cannot be cut: series in a branch are 70 deep (erfc), or 132 (i1)
MOST_UNCUT_NODES = 1 << 16  # of it: long, as a choice among hundreds of tensors, is no error


class Extent(NamedTuple):
    """Of an expression, written out as a tree."""

    depth: int
    nodes: int

    @property
    def is_large(self) -> bool:
        return self.depth > MOST_DEPTH or self.nodes > MOST_NODES


def measure_extent(e: ir.Expr, known: dict[ir.Expr, Extent]) -> Extent:
    """The extent of an expression; `known`: of those that were asked for before, and of their parts."""
    waiting = [e]
    while waiting:
        x = waiting[-1]
        unknown = [part for part in parts(x) if part not in known]
        if unknown:
            waiting += unknown
            continue
        known[x] = around([known[part] for part in parts(x)])
        waiting.pop()
    return known[e]


def around(inner: list[Extent]) -> Extent:
    depth = 1 + max([part.depth for part in inner], default=0)
    return Extent(depth, 1 + sum([part.nodes for part in inner]))


def certain_operands(e: ir.Expr) -> tuple[ir.Expr, ...]:
    """The parts of an expression that are evaluated wherever it is."""
    if isinstance(e, ir.Select):
        return (e.cond,)
    if isinstance(e, ir.Binary) and e.op in ("and", "or"):
        return (e.a,)
    return () if isinstance(e, (ir.Load, ir.Var, Component)) else ir.operands(e)


def cut(value: ir.Expr, name: str, stage: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """`value` with parts replaced by reads of stages, which `stage` makes, so that it is not too large."""
    known: dict[ir.Expr, Extent] = {}
    if not measure_extent(value, known).is_large:
        return value
    new: dict[ir.Expr, ir.Expr] = {}
    waiting = [value]
    while waiting:
        e = waiting[-1]
        if unknown := [x for x in certain_operands(e) if x not in new]:
            waiting += unknown
            continue
        waiting.pop()
        if e in new:
            continue
        made = e if isinstance(e, (ir.Var, Component)) else ir.map_operands(e, lambda x: new.get(x, x))
        if measure_extent(made, known).is_large:
            made = cut_into_stages(made, stage, known)
        extent = measure_extent(made, known)
        if extent.depth > MOST_UNCUT_DEPTH or extent.nodes > MOST_UNCUT_NODES:
            raise ValueError(
                f"{name}: an expression of {extent.nodes} operations, {extent.depth} inside each "
                "other, in a reduction, an index or under a condition: compute parts of it as tensors first"
            )
        new[e] = made
    return new[value]


def cut_into_stages(e: ir.Expr, stage: Callable[[ir.Expr], ir.Expr], known: dict[ir.Expr, Extent]) -> ir.Expr:
    """`e` with its large operands read from stages, those that are evaluated wherever it is."""
    certain = set(certain_operands(e))
    return ir.map_operands(e, lambda x: stage(x) if x in certain and is_worth_a_stage(x, known) else x)


def is_worth_a_stage(e: ir.Expr, known: dict[ir.Expr, Extent]) -> bool:
    """Whether reading an expression instead of computing it makes what is around it much smaller."""
    extent = known[e]
    return extent.depth > MOST_DEPTH // 2 or extent.nodes > MOST_NODES // 4
