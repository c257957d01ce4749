"""How indices depend on the iterations of one loop: makes the forms of `forms.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...ir import Expr, Var, as_int, expr_key
from ..linear import linear
from ..state import Split, State
from .definitions import variables
from .forms import Form
from .frame import INSIDE, OUTSIDE, Frame, stride_of
from .touching import loads

MOVING = 2


class LoopFrame(Frame):
    """The place of a loop, which is *moving*: neither outside, as what is around it, nor inside."""

    __slots__ = ("forms", "moving")

    def __init__(self, s: State, loop: Var) -> None:
        super().__init__(s, s.parent[loop])
        self.moving = loop
        self.sides[loop] = MOVING
        self.forms: dict[Expr, Form | None] = {}

    def form(self, start: Expr, iters: Mapping[Var, Expr], extent: Expr | None = None) -> Form | None:
        """How an index (and `extent` values from there) depends on the moving loop; None if not known."""
        plain = iters.get(start, start) if type(start) is Var else None
        if plain is None:
            form = self.form_of(start, iters)
        else:
            form = self.forms.get(plain)
            if form is None and plain not in self.forms:
                form = self.forms[plain] = self.form_of(plain, {})
        if form is not None and extent is not None and (count := as_int(extent)) != 1:
            return None if count is None else form.widened(count)
        return form

    def form_of(self, e: Expr, iters: Mapping[Var, Expr]) -> Form | None:
        terms, offset = linear(e)
        form = Form(offset)
        for x, c in terms:
            bound = iters.get(x) if type(x) is Var else None
            if bound is None:
                if (iters and type(x) is not Var) or not self.add_to(form, x, c):
                    return None
                continue
            more, start = linear(bound)
            form.add_constant(c * start)
            for y, k in more:
                if not self.add_to(form, y, c * k):
                    return None
        return form

    def add_to(self, form: Form, e: Expr, factor: int) -> bool:
        if type(e) is not Var:
            return self.add_fixed(form, e, factor)
        s, side, known = self.s, self.side(e), self.definitions.get(e)
        if e is not self.moving and s.fixed_extent(e) == 1:
            return True  # it is 0
        if side == INSIDE:
            extent = s.fixed_extent(e)
            if extent is None:
                return False
            form.add_inner(e, factor, extent)
            return True
        if known is None:
            if side == OUTSIDE:
                form.add_fixed(e, factor)
            else:
                extent = s.fixed_extent(e)
                form.add_moving((1, math.inf if extent is None else extent), factor)
            return True
        if isinstance(known, Split):
            for digit in reversed(known.digits):
                if not self.add_to(form, digit, factor):
                    return False
                extent = s.fixed_extent(digit)
                if extent is None and digit is not known.digits[0]:
                    return False
                factor *= extent or 0
            return True
        if side == MOVING and alias(s, known.whole) is self.moving:
            stride, extent = stride_of(s, known), s.fixed_extent(e)
            if stride is None or extent is None:
                return False
            form.add_moving((stride, extent), factor)
            return True
        if side == OUTSIDE:
            form.add_fixed(e, factor)
        return side == OUTSIDE

    def add_fixed(self, form: Form, e: Expr, factor: int) -> bool:
        """Something that is not linear, of variables that stand still."""
        if loads(e) or not all(map(self.is_outer, variables(e))):
            return False
        form.add_fixed(expr_key(self.s.resolve(e)), factor)
        return True


def alias(s: State, var: Var) -> Var:
    """The loop that a variable is another name for (merged, or split into one), else itself."""
    known = s.definitions.get(var)
    while isinstance(known, Split) and len(known.digits) == 1:
        var = known.digits[0]
        known = s.definitions.get(var)
    return var
