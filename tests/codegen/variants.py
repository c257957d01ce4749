"""Programs with other loops: random splits that need not divide, fusions, orders and loop kinds.

`random_variant` rewrites the loop nests of a program made by `te` the way a schedule would, without one:
a split makes bindings `i0 * f + i1` and the predicate that goes with them (or starts the last tile
early, where that is legal), a fused loop is taken apart by `//` and `%`, spatial loops change places,
every loop gets a kind. What the program computes stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from metaschedule import ir

Draw = Callable[[st.SearchStrategy[Any]], Any]
MOST_COPIES = 48  # of a body by nested unrolled loops, and elements of a vectorised one


@dataclass(eq=False)
class Nest:
    """The loops around one block, outermost first."""

    block: ir.Block
    loops: list[ir.For]
    reduces: set[ir.Var] = field(default_factory=set)  # loops that bind a reduction iterator
    predicate: list[ir.Expr] = field(default_factory=list)
    values: dict[ir.Var, ir.Expr] = field(default_factory=dict)  # what became of the original loops

    def replace(self, old: ir.Var, value: ir.Expr) -> None:
        self.values = {v: ir.substitute(e, {old: value}) for v, e in self.values.items()}
        self.predicate = [ir.substitute(e, {old: value}) for e in self.predicate]
        self.loops = [ir.replace_fields(f, extent=ir.substitute(f.extent, {old: value})) for f in self.loops]

    def statement(self) -> ir.Stmt:
        block = self.block
        made: ir.Stmt = ir.replace_fields(
            block,
            bindings=tuple(ir.substitute(e, self.values) for e in block.bindings),
            predicate=(*(ir.substitute(e, self.values) for e in block.predicate), *self.predicate),
        )
        for f in reversed(self.loops):
            made = ir.For(f.var, f.extent, (made,), f.kind)
        return made


def nest_of(s: ir.Stmt) -> Nest | None:
    loops: list[ir.For] = []
    while isinstance(s, ir.For) and len(s.body) == 1:
        loops.append(s)
        s = s.body[0]
    if not isinstance(s, ir.Block) or not s.iters or not loops:
        return None
    nest = Nest(s, loops)
    for it, binding in zip(s.iters, s.bindings, strict=True):
        if it.kind == "reduce":
            nest.reduces |= set(ir.free_vars(binding))
    nest.values = {f.var: f.var for f in loops}
    return nest


def random_variant(draw: Draw, program: ir.Program) -> ir.Program:
    """A program that computes what `program` does, with other loops."""
    body: list[ir.Stmt] = []
    for s in program.body:
        nest = nest_of(s)
        if nest is not None:
            Transform(draw, nest).run()
        body.append(s if nest is None else nest.statement())
    return ir.replace_fields(program, body=tuple(body))


class Transform:
    """Random changes to one nest."""

    def __init__(self, draw: Draw, nest: Nest) -> None:
        self.draw, self.nest = draw, nest

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def run(self) -> None:
        nest = self.nest
        movable = all(f.fixed_extent is not None for f in nest.loops)
        if len(nest.loops) > 1 and self.pick((0, 0, 0, 1)):
            self.fuse(self.draw(st.integers(0, len(nest.loops) - 2)))
        for f in list(nest.loops):
            if f.fixed_extent and self.pick((0, 1, 1)):
                tiles = self.split(f)
                if self.pick((0, 0, 1)):
                    self.split(self.pick(tiles))
        if movable and self.pick((0, 1)):
            self.reorder()
        self.mark()

    def fuse(self, at: int) -> None:
        nest = self.nest
        outer, inner = nest.loops[at], nest.loops[at + 1]
        m = inner.fixed_extent
        same = (outer.var in nest.reduces) == (inner.var in nest.reduces)
        if not m or not outer.fixed_extent or not same:
            return
        both = ir.For(ir.Var(f"{outer.var.name}_{inner.var.name}"), ir.as_expr(outer.fixed_extent * m), ())
        if outer.var in nest.reduces:
            nest.reduces.add(both.var)
        nest.loops[at : at + 2] = [both]
        nest.replace(outer.var, both.var // m)
        nest.replace(inner.var, both.var % m)

    def split(self, f: ir.For) -> tuple[ir.For, ir.For]:
        """`f` in tiles; the last is cut off by a predicate, or begins early. The new loops."""
        nest, n = self.nest, f.fixed_extent
        assert n
        factor = self.draw(st.integers(1, min(n + 3, 20)))
        tiles = -(-n // factor)
        outer = ir.For(ir.Var(f.var.name + "0"), ir.as_expr(tiles), ())
        inner = ir.For(ir.Var(f.var.name + "1"), ir.as_expr(factor), ())
        reduces = f.var in nest.reduces
        whole = not nest.reduces  # every instance stores a final value
        if n >= factor and whole and not reduces and self.pick((0, 0, 1)):
            value = ir.minimum(outer.var * factor, n - factor) + inner.var
        else:
            value = outer.var * factor + inner.var
            if tiles * factor > n or self.pick((0, 1)):
                nest.predicate.append(value < n)
        if reduces:
            nest.reduces |= {outer.var, inner.var}
        at = next(k for k, g in enumerate(nest.loops) if g.var is f.var)
        nest.loops[at : at + 1] = [outer, inner]
        nest.replace(f.var, value)
        return outer, inner

    def reorder(self) -> None:
        """Any order in which the reduction loops are as they were among themselves."""
        nest = self.nest
        order = self.draw(st.permutations(range(len(nest.loops))))
        loops = [nest.loops[k] for k in order]
        reduces = iter([f for f in nest.loops if f.var in nest.reduces])
        nest.loops = [next(reduces) if f.var in nest.reduces else f for f in loops]

    def mark(self) -> None:
        nest, copies, lanes = self.nest, 1, 1
        marked: list[ir.For] = []
        for f in nest.loops:
            kinds = ["serial", "vectorized", "unrolled", "vectorized"]
            if f.var not in nest.reduces:
                kinds.append("parallel")
            kind = self.pick(kinds)
            n = ir.as_int(f.extent) or 1
            if kind == "unrolled":
                kind = kind if copies * n <= MOST_COPIES else "serial"
                copies *= n if kind == "unrolled" else 1
            if kind == "vectorized":
                kind = kind if lanes * n <= MOST_COPIES else "serial"
                lanes *= n if kind == "vectorized" else 1
            marked.append(ir.replace_fields(f, kind=kind))
        nest.loops = marked
