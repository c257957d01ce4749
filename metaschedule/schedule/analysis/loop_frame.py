"""How indices depend on the iterations of one loop: makes the forms of `forms.py`."""

from __future__ import annotations

import math

from ...affine.definitions import Split
from ...affine.form import Form as Sum
from ...affine.form import Iteration, bound_form, variables
from ...affine.nest import Nest
from ...affine.view import INSIDE, OUTSIDE, View, stride_of
from ...ir import Expr, Var, as_int, expr_key, loads
from ..state import State
from .forms import Form

MOVING = 2


class LoopFrame(View):
    """The place of a loop, which is *moving*: neither outside, as what is around it, nor inside."""

    __slots__ = ("forms", "moving")

    def __init__(self, s: State, loop: Var) -> None:
        super().__init__(s, s.parent[loop])
        self.moving = loop
        self.sides[loop] = MOVING
        self.forms: dict[Sum, Form | None] = {}

    def form(self, start: Expr, iters: Iteration, extent: Expr | None = None) -> Form | None:
        """How an index (and `extent` values from there) depends on the moving loop; None if not known."""
        found = bound_form(start, iters)
        if found is None:
            return None
        form = self.forms.get(found)
        if form is None and found not in self.forms:
            form = self.forms[found] = self.form_of(found)
        if form is not None and extent is not None and (count := as_int(extent)) != 1:
            return None if count is None else form.widened(count)
        return form

    def form_of(self, index: Sum) -> Form | None:
        form = Form(index[1])
        for x, c in index[0]:
            if not self.add_to(form, x, c):
                return None
        return form

    def add_to(self, form: Form, e: Expr, factor: int) -> bool:
        if type(e) is not Var:
            return self.add_fixed(form, e, factor)
        s, extent = self.s, self.s.fixed_extent(e)
        if extent == 1 and e is not self.moving:
            return True  # it is 0
        side, known = self.side(e), self.definitions.get(e)
        if side == INSIDE:
            if extent is None:
                return False
            form.add_inner(e, factor, extent)
            return True
        if known is None:
            if side == OUTSIDE:
                form.add_fixed(e, factor)
            else:
                form.add_moving((1, math.inf if extent is None else extent), factor)
            return True
        if isinstance(known, Split):
            for digit in reversed(known.digits):
                if not self.add_to(form, digit, factor):
                    return False
                size = s.fixed_extent(digit)
                if size is None and digit is not known.digits[0]:
                    return False
                factor *= size or 0
            return True
        if side == MOVING and alias(s, known.whole) is self.moving:
            stride = stride_of(s, known)
            if stride is None or extent is None:
                return False
            form.add_moving((stride, extent), factor)
            return True
        if side == OUTSIDE:
            form.add_fixed(e, factor)
        elif extent is not None:
            form.add_moving((e, extent), factor)
        return side == OUTSIDE or extent is not None

    def add_fixed(self, form: Form, e: Expr, factor: int) -> bool:
        """Something that is not linear, of variables that stand still."""
        if not self.is_still(e):
            return False
        form.add_fixed(expr_key(self.s.resolve(e)), factor)
        return True

    def is_still(self, e: Expr) -> bool:
        """Whether all iterations see one value."""
        if type(e) is Var:
            return self.side(e) == OUTSIDE
        return all(map(self.is_outer, variables(e))) and not loads(e)


def alias(s: Nest, var: Var) -> Var:
    """The loop that a variable is another name for (merged, or split into one), else itself."""
    known = s.definitions.get(var)
    while isinstance(known, Split) and len(known.digits) == 1:
        var = known.digits[0]
        known = s.definitions.get(var)
    return var
