"""Fresh copies of loops, with the variables that are defined by them."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import Expr, For, Var, changed, free_vars, substitute
from ..state import Part, Split, State


class Copies:
    """New variables for `loops`. What is said of the old loops, `expr` says of the new ones; variables that
    were split or fused get definitions of their own, so that bindings stay short."""

    def __init__(self, s: State, loops: Iterable[Var]) -> None:
        self.state = s
        self.new: dict[Var, Var] = {v: Var(v.name) for v in loops}

    def var(self, var: Var) -> Var:
        known = self.new.get(var)
        if known is None:
            known = self.new[var] = self.defined(var)
        return known

    def defined(self, var: Var) -> Var:
        s, known = self.state, self.state.definitions.get(var)
        if known is None:
            return var
        if isinstance(known, Split):
            digits = tuple([self.var(d) for d in known.digits])
            if all(a is b for a, b in zip(digits, known.digits, strict=True)):
                return var
            definition: Split | Part = Split(digits)
        else:
            whole = self.var(known.whole)
            if whole is known.whole:
                return var
            definition = Part(whole, known.digits, known.index)
        fresh = Var(var.name)
        s.definitions[fresh] = definition
        s.extents[fresh] = self.expr(s.extents[var])
        return fresh

    def expr(self, e: Expr) -> Expr:
        return substitute(e, {v: self.var(v) for v in free_vars(e)})

    def loop(self, var: Var, kind: str | None = None) -> For:
        """The copy of a loop, without its body."""
        old: For = self.state.nodes[var]
        copy = changed(old, var=self.new[var], extent=self.expr(old.extent))
        # Analyses that follow a definition ask for extents before the loop is entered.
        self.state.extents[copy.var] = copy.extent
        return changed(copy, kind=kind, annotations={}) if kind is not None else copy
