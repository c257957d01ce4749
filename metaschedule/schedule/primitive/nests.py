"""Nests of loops around blocks: reading them, copying them, putting them elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ... import ir
from ...affine.definitions import Definition, FusedDigit, Split, leaf_loops_of
from ...affine.form import variables
from ...affine.interned import substitute_interned
from ...errors import ScheduleError
from ..state import Key, State


class Copies:
    """New variables for `loops`. What is said of the old loops, `expr` says of the new ones; variables that
    were split or fused get definitions of their own, so that bindings stay short."""

    def __init__(self, s: State, loops: Iterable[ir.Var]) -> None:
        self.state = s
        self.new: dict[ir.Var, ir.Var] = {v: s.fresh(v.name) for v in loops}

    def var(self, var: ir.Var) -> ir.Var:
        known = self.new.get(var)
        if known is None:
            known = self.new[var] = self.define_copy(var)
        return known

    def define_copy(self, var: ir.Var) -> ir.Var:
        s, known = self.state, self.state.definitions.get(var)
        if known is None:
            return var
        if isinstance(known, Split):
            digits = tuple([self.var(d) for d in known.digits])
            if all(a is b for a, b in zip(digits, known.digits, strict=True)):
                return var
            return self.define(var, s.fresh(var.name), Split(digits))
        whole = self.var(known.whole)
        if whole is known.whole:
            return var
        digits = tuple([s.fresh(d.name) for d in known.digits])
        for n, digit in enumerate(known.digits):
            self.new[digit] = self.define(digit, digits[n], FusedDigit(whole, digits, n))
        return self.new[var]

    def define(self, old: ir.Var, new: ir.Var, definition: Definition) -> ir.Var:
        self.state.define(new, definition)
        self.state.extents[new] = self.expr(self.state.extents[old])
        return new

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Const:
            return e
        old = variables(e)
        return substitute_interned(e, old, tuple([self.var(v) for v in old]))

    def loop(self, var: ir.Var, kind: str | None = None) -> ir.For:
        """The copy of a loop, without its body."""
        old: ir.For = self.state.nodes[var]
        new, extent = self.new[var], self.expr(old.extent)
        # Analyses that follow a definition ask for extents before the loop is entered.
        self.state.extents[new] = extent
        return (
            ir.For(new, extent, (), old.kind, old.annotations)
            if kind is None
            else ir.For(new, extent, (), kind)
        )


def loops_from(s: State, block: ir.Block, loop: ir.Var) -> list[ir.Var]:
    """The loops from `loop` down to the block."""
    chain: list[ir.Var] = []
    for above in s.ancestors(block.name):
        if not isinstance(above, ir.Var):
            break
        chain.append(above)
        if above is loop:
            return chain[::-1]
    raise ScheduleError(
        f"the loop over {loop.name} is not around block {block.name!r}, or there is a condition between them",
        marks={loop: "the loop", block.name: "the block"},
        help="give one of the loops that get_loops gives for the block",
    )


def check_copied(s: State, loops: Iterable[ir.Var], reducing: set[ir.Var]) -> None:
    """Raises unless the extents of spatial loops mean the same in a nest without the reduction loops."""
    for var in loops:
        if s.fixed_extent(var) is not None:
            continue
        extent = s.resolve(s.extents[var])
        late = leaf_loops_of(s, [extent]) & reducing
        if late or ir.has_load(extent):
            raise ScheduleError(
                f"the extent of {var.name} depends on {'a reduction loop' if late else 'loaded values'}",
                marks={var: f"its extent is {extent}"},
            )


@lru_cache(maxsize=4096)  # loop transformations leave bodies alone, and every replay asks again
def loaded_buffers(body: ir.Body) -> frozenset[ir.Buffer]:
    """The buffers that statements load from."""
    return frozenset(ir.buffers_read(body))


def perfect_nest(s: State, block: ir.Block) -> list[ir.Var]:
    """The loops around a block that hold nothing else, outermost first."""
    nest: list[ir.Var] = []
    below: Key = block.name
    for above in s.ancestors(block.name):
        if not isinstance(above, ir.Var) or not s.is_only_child(below, of=above):
            break
        nest.append(above)
        below = above
    return nest[::-1]


def is_guarded(s: State, block: ir.Block) -> bool:
    """Whether a statement other than a loop is around the block."""
    return any(not isinstance(k, ir.Var) for k in s.ancestors(block.name))
