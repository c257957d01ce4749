"""How indices move with loops: forms over the leaf loops, approximate where divisions do not align.

A `Movement` maps a digit `(loop, low, high)`, which stands for `loop // low % (high // low)`, to its
coefficient; constants are left out. An index that is not a sum of digits moves by IRREGULAR elements with
every variable in it: a stride that is neither 0 nor 1.

    fuse(6, 10) = f, split by 4 into f0 of 15 and f1 of 4:  f // 10 * 8 + 1  of  f = 4 * f0 + f1
        f0 // 2 * 8, as if f1 never carried into it:  {(f0, 2, 15): 8}
"""

from __future__ import annotations

from .. import ir
from ..affine.definitions import Split
from ..affine.form import form_of
from ..schedule.state import State

LoopDigit = tuple[ir.Var, int, int]
Movement = dict[LoopDigit, int]
IRREGULAR = 17
UNKNOWN_EXTENT = 8  # of a loop whose bound is known only at run time
INFINITE = 1 << 62


class Movements:
    """The movements of expressions in terms of the loops of a schedule's state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: dict[ir.Var, Movement] = {}

    def bind_loop(self, var: ir.Var, extent: ir.Expr) -> int:
        """Enter a loop; gives its extent, or half the largest it can have."""
        count = ir.as_int(extent)
        if count is None:
            most = sum(abs(k) * ((high - 1) // low) for (_, low, high), k in self.of(extent).items())
            count = max(1, most // 2) or UNKNOWN_EXTENT
        self.known[var] = {(var, 1, count): 1} if count > 1 else {}
        return count

    def of(self, e: ir.Expr) -> Movement:
        if isinstance(e, ir.Var):
            found = self.known.get(e)
            if found is None:
                found = self.known[e] = self.define(e)
            return found
        if isinstance(e, ir.Const):
            return {}
        if isinstance(e, ir.Binary):
            return self.of_binary(e)
        if isinstance(e, ir.Cast):
            return self.of(e.a)
        if isinstance(e, ir.Select):
            return self.of(e.a) or self.of(e.b)
        return self.irregular(e)

    def of_binary(self, e: ir.Binary) -> Movement:
        terms = form_of(e).terms
        if len(terms) != 1 or terms[0][0] is not e:
            total: Movement = {}
            for x, factor in terms:
                total = combine_movements(total, self.of(x), factor)
            return total
        divisor = ir.as_int(e.b)
        if divisor is not None and divisor > 0 and e.op in ("//", "%"):
            return part(self.of(e.a), *((divisor, INFINITE) if e.op == "//" else (1, divisor)))
        if e.op in ("min", "max"):  # a clamped index moves as the index does
            return self.of(e.a) or self.of(e.b)
        return self.irregular(e)

    def irregular(self, e: ir.Expr) -> Movement:
        form: Movement = {}
        for var in ir.free_vars(e):
            form |= dict.fromkeys(self.of(var), IRREGULAR)
        return form

    def define(self, var: ir.Var) -> Movement:
        """The movement of a variable that no loop around has: split or fused earlier."""
        state = self.state
        known = state.definitions.get(var)
        if known is None:
            return {}
        form: Movement = {}
        stride = 1
        if isinstance(known, Split):
            for digit in reversed(known.digits):
                form = combine_movements(form, self.of(digit), stride)
                stride *= ir.as_int(state.extents[digit]) or 1
            return form
        for digit in known.digits[known.index + 1 :]:
            stride *= ir.as_int(state.extents[digit]) or 1
        extent = ir.as_int(state.extents[known.digits[known.index]]) or 1
        return part(self.of(known.whole), stride, stride * extent if known.index else INFINITE)


def combine_movements(a: Movement, b: Movement, factor: int) -> Movement:
    """`a + factor * b`"""
    if not a and factor == 1:
        return b
    if not b:
        return a
    out = a.copy()
    for digit, k in b.items():
        out[digit] = out.get(digit, 0) + k * factor
    return out


def part(form: Movement, low: int, high: int) -> Movement:
    """`form // low % (high // low)`, as if the digits of `form` never carried into one another."""
    out: Movement = {}
    for (var, start, stop), k in form.items():
        k = abs(k)
        count = -(-stop // start)
        if k >= high or k * (count - 1) < low:
            continue
        first, last = max(1, low // k), min(count, -(-high // k))
        digit = (var, start * first, min(stop, start * last))
        out[digit] = out.get(digit, 0) + max(1, k // low)
    return out
