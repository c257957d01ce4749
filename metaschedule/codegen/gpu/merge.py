"""One nest of loops bound to GPU axes as what one thread does.

Every loop bound to an axis becomes the variable of that axis. A statement outside of all loops over
`threadIdx.x` ran once in the serial program: thread 0 runs it. One that fills memory private to threads is
run by all, each for its own.
"""

from __future__ import annotations

from ... import ir
from .model import BLOCKS, THREADS, Axes, refuse


def bound_loops(s: ir.Stmt) -> list[ir.For]:
    return [x for x in ir.walk(s) if isinstance(x, ir.For) and x.kind in ir.GPU_AXES]


def find_axes(s: ir.Stmt, program: ir.Program) -> Axes:
    """The axes of a nest, or an error that underlines what cannot be a kernel."""
    loops = bound_loops(s)
    if not loops:
        first = next((x for x in ir.walk(s) if isinstance(x, ir.For) and x.fixed_extent != 1), None)
        has_blocks = any(isinstance(x, ir.Block) for x in ir.walk(s))
        if has_blocks and first is not None:
            raise refuse(
                f"the loop over {first.var.name} is not bound to an axis of the GPU",
                program,
                {first: "no loop of this nest is bound"},
                "bind loops to blockIdx and threadIdx, or build the program instead of a schedule",
            )
    extents: dict[str, int] = {}
    for loop in loops:
        size = loop.fixed_extent
        if size is None:
            raise refuse(
                f"the extent of the loop over {loop.var.name}, bound to {loop.kind}, is not a constant",
                program,
                {loop: "its extent is an expression"},
            )
        if extents.setdefault(loop.kind, size) != size:
            raise refuse(
                f"{loop.kind} has extents {extents[loop.kind]} and {size} in one kernel",
                program,
                {loop: f"extent {size}"},
                "a kernel has one number of threads: split the loops alike, or make two kernels",
            )
    check_outermost(s, program)
    return Axes(extents)


def cut_axes(axes: Axes, flat: ir.Program) -> Axes:
    """The same axes with digits where the indices of a program without blocks divide them."""
    bound = {s.var: s.kind for s in ir.walk(flat) if isinstance(s, ir.For) and s.kind in ir.GPU_AXES}
    found: dict[str, set[int]] = {}
    for e in ir.expressions(flat):
        if not isinstance(e, ir.Binary) or e.op not in ("//", "%") or not isinstance(e.a, ir.Var):
            continue
        divisor = ir.as_int(e.b)
        if e.a in bound and divisor is not None and divisor > 1:
            found.setdefault(bound[e.a], set()).add(divisor)
    cuts: dict[str, list[int]] = {}
    for axis, divisors in found.items():
        chain: list[int] = []
        size = axes.whole[axis]
        for divisor in sorted(divisors, reverse=True):
            if size % divisor == 0 and divisor < size:
                chain.append(divisor)
                size = divisor
        cuts[axis] = chain
    return Axes(axes.whole, cuts)


def check_outermost(s: ir.Stmt, program: ir.Program) -> None:
    """Blocks run in no order: no loop that is not bound may be around them."""
    has_blocks = any(loop.kind in BLOCKS for loop in bound_loops(s))
    while has_blocks and isinstance(s, ir.For) and any(x.kind in BLOCKS for x in bound_loops(s)):
        if s.kind not in BLOCKS and s.fixed_extent != 1:
            raise refuse(
                f"the loop over {s.var.name} is around loops bound to blockIdx and is not bound itself",
                program,
                {s: "serial, and outside of the blocks"},
                "bind it to an axis of blockIdx, or reorder it inside",
            )
        inner = [x for x in s.body if bound_loops(x)]
        if len(s.body) > 1 and any(x.kind in BLOCKS for y in inner for x in bound_loops(y)):
            raise refuse(
                "a statement stands beside a loop bound to blockIdx inside of one kernel",
                program,
                {s: "blocks would run a part of this loop only"},
                "let the loops bound to blockIdx be outermost",
            )
        if not inner:
            return
        s = inner[0]


class Merge(ir.Rewriter):
    """Bound loops as variables, inside loops over the axes that it has met (`have`)."""

    def __init__(self, axes: Axes, values: dict[ir.Var, ir.Expr], have: frozenset[str]) -> None:
        self.axes, self.values, self.have = axes, values, have

    def expr(self, e: ir.Expr) -> ir.Expr:
        return ir.substitute(e, self.values) if self.values else e

    def body(self, body: ir.Body) -> ir.Body:
        new: list[ir.Stmt] = []
        for s in body:
            if bound_loops(s):
                if isinstance(s, ir.For) and s.kind in ir.GPU_AXES:
                    values = self.values | {s.var: self.axes.value(s.kind)}
                    new += Merge(self.axes, values, self.have | {s.kind}).body(s.body)
                else:
                    result = self.stmt(s)
                    new += result if isinstance(result, tuple) else (result,)
            else:
                plain = ir.Substitute(self.values).body((s,))
                new += self.guard(plain)
        return tuple(new)

    def guard(self, body: ir.Body) -> ir.Body:
        missing = [key for key in self.axes.among(THREADS) if self.axes.base[key] not in self.have]
        stores = [x for x in ir.walk(body) if isinstance(x, ir.Store)]
        if not missing or (stores and all(x.buffer.scope == "local" for x in stores)):
            return body
        return (ir.If(ir.all_of([ir.binary("==", self.axes.vars[key], 0) for key in missing]), body),)


def merge_axes(s: ir.Stmt, axes: Axes) -> ir.Body:
    """What one thread does of a nest, inside loops over all axes."""
    return axes.loops(Merge(axes, {}, frozenset()).body((s,)))
