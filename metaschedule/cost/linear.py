"""Index expressions as sums of digits of loops: fast and, where divisions do not align, approximate.

A `Form` maps a digit `(loop, low, high)`, which stands for `loop // low % (high // low)`, to its coefficient;
constants are left out, because only movement matters. An index that is not a sum of digits moves by
IRREGULAR elements with every variable in it: a stride that is neither 0 nor 1.
"""

from __future__ import annotations

from ..affine.definitions import Split
from ..ir import Binary, Cast, Const, Expr, Select, Var, as_int, free_vars
from ..schedule.state import State

Digit = tuple[Var, int, int]
Form = dict[Digit, int]
IRREGULAR = 17
UNKNOWN_EXTENT = 8  # of a loop whose bound is known only at run time
INFINITE = 1 << 62


class Forms:
    """The forms of expressions in terms of the loops of a schedule's state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: dict[Var, Form] = {}

    def bind_loop(self, var: Var, extent: Expr) -> int:
        """Enter a loop; gives its extent, or half the largest it can have."""
        count = as_int(extent)
        if count is None:
            most = sum(abs(k) * ((high - 1) // low) for (_, low, high), k in self.of(extent).items())
            count = max(1, most // 2) or UNKNOWN_EXTENT
        self.known[var] = {(var, 1, count): 1} if count > 1 else {}
        return count

    def of(self, e: Expr) -> Form:
        if isinstance(e, Var):
            found = self.known.get(e)
            if found is None:
                found = self.known[e] = self.defined(e)
            return found
        if isinstance(e, Const):
            return {}
        if isinstance(e, Binary):
            return self.of_binary(e)
        if isinstance(e, Cast):
            return self.of(e.a)
        if isinstance(e, Select):
            return self.of(e.a) or self.of(e.b)
        return self.irregular(e)

    def of_binary(self, e: Binary) -> Form:
        op, factor = e.op, as_int(e.b)
        if op in ("+", "-"):
            return combined(self.of(e.a), self.of(e.b), 1 if op == "+" else -1)
        if factor is None and op == "*" and (factor := as_int(e.a)) is not None:
            return {digit: k * factor for digit, k in self.of(e.b).items()}
        if factor is not None and factor > 0:
            if op == "*":
                return {digit: k * factor for digit, k in self.of(e.a).items()}
            if op == "//":
                return part(self.of(e.a), factor, INFINITE)
            if op == "%":
                return part(self.of(e.a), 1, factor)
        if op in ("min", "max"):  # a clamped index moves as the index does
            return self.of(e.a) or self.of(e.b)
        return self.irregular(e)

    def irregular(self, e: Expr) -> Form:
        form: Form = {}
        for var in free_vars(e):
            form |= dict.fromkeys(self.of(var), IRREGULAR)
        return form

    def defined(self, var: Var) -> Form:
        """The form of a variable that no loop around has: split or fused earlier."""
        state = self.state
        known = state.definitions.get(var)
        if known is None:
            return {}
        form: Form = {}
        stride = 1
        if isinstance(known, Split):
            for digit in reversed(known.digits):
                form = combined(form, self.of(digit), stride)
                stride *= as_int(state.extents[digit]) or 1
            return form
        for digit in known.digits[known.index + 1 :]:
            stride *= as_int(state.extents[digit]) or 1
        extent = as_int(state.extents[known.digits[known.index]]) or 1
        return part(self.of(known.whole), stride, stride * extent if known.index else INFINITE)


def combined(a: Form, b: Form, factor: int) -> Form:
    """`a + factor * b`"""
    if not a and factor == 1:
        return b
    if not b:
        return a
    out = a.copy()
    for digit, k in b.items():
        out[digit] = out.get(digit, 0) + k * factor
    return out


def part(form: Form, low: int, high: int) -> Form:
    """`form // low % (high // low)`, as if the digits of `form` never carried into one another."""
    out: Form = {}
    for (var, start, stop), k in form.items():
        k = abs(k)
        count = -(-stop // start)
        if k >= high or k * (count - 1) < low:
            continue
        first, last = max(1, low // k), min(count, -(-high // k))
        digit = (var, start * first, min(stop, start * last))
        out[digit] = out.get(digit, 0) + max(1, k // low)
    return out
