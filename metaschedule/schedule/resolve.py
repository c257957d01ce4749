"""`Resolve`: a program's expressions in terms of the loops that exist, as short as they can be said.

    i of 30, split into i0 of 4 and i1 of 8:    i         is  i0 * 8 + i1
    i0 and j of 6 fused to f:                   i0        is  f // 6
    both:                                       i < 30    is  f // 6 * 8 + i1 < 30, and not known to be true
    i of 20, split into 4 times 5 as drawn:     i < 20    is  certainly true, and left out

Sums of digits of different loops, nearly all there is, are put together without a search (`digits`); the rest
is simplified by `arith`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from .. import ir
from ..affine.constraint import Constraint, constraints_of
from ..affine.definitions import Split
from ..affine.form import Form, form_of
from ..affine.interned import plus, times
from ..arith import Domain, simplify

if TYPE_CHECKING:
    from .state import State

Loops = tuple[tuple[ir.Var, ir.Expr], ...]
# A loop, a digit of it, a factor, the number of values of the digit.
LoopDigit = tuple[ir.Var, ir.Expr, int, int]


class Resolve(ir.Substitute):
    """Puts definitions in, each worked out once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: dict[ir.Var, ir.Expr] = {}
        self.sums: dict[ir.Var, tuple[LoopDigit, ...] | None] = {}
        super().__init__({})

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is not ir.Var:
            return super().expr(e)
        found = self.known.get(e)
        if found is None:
            value = self.state.definition(e)
            found = self.known[e] = e if value is None else self.expr(value)
        return found

    def outside(self, block: ir.Block, loops: Loops) -> ir.Block:
        """A block with what stands outside of its body put in. A body that speaks of iterators only stays."""
        if not is_closed(block.iters, block.init, block.body):
            block = cast(ir.Block, self.stmt(block))
        tests = [self.simplify(test, loops) for test in block.predicate if not self.holds(test)]
        return ir.replace_fields(
            block,
            bindings=tuple([self.simplify(b, loops) for b in block.bindings]),
            predicate=tuple([t for t in tests if not (isinstance(t, ir.Const) and t.value)]),
        )

    def simplify(self, e: ir.Expr, loops: Loops) -> ir.Expr:
        """An expression in terms of the loops that exist, as `simplify` gives it."""
        if type(e) is ir.Const:
            return e
        form = form_of(e)
        found = None if form.const else self.digits(form)
        if found is None:
            domain = Domain()
            for var, extent in loops:
                domain = domain.with_loop(var, extent)
            return simplify(self.expr(e), domain)
        value: ir.Expr | None = None
        for _, digit, factor, _ in found:
            value = plus(value, times(digit, factor))
        return ir.Const(0, ir.INDEX) if value is None else value

    def holds(self, test: ir.Expr) -> bool:
        """Whether a test compares sums and is certainly true."""
        found = constraints_of(test)
        return found is not None and all(map(self.is_met, found))

    def is_met(self, c: Constraint) -> bool:
        found = self.digits(c.form)
        if found is None:
            return False
        return c.low <= 0 and sum([factor * (count - 1) for _, _, factor, count in found]) <= c.high

    def digits(self, form: Form) -> list[LoopDigit] | None:
        """A sum of digits of different loops, each with a positive factor; None if it is more than that."""
        found: list[LoopDigit] = []
        for var, factor in form.terms:
            parts = self.digits_of(var) if type(var) is ir.Var else None
            if parts is None or factor < 0:
                return None
            found += [(loop, digit, factor * c, n) for loop, digit, c, n in parts]
        return found if len({loop for loop, *_ in found}) == len(found) else None

    def digits_of(self, var: ir.Var) -> tuple[LoopDigit, ...] | None:
        if var not in self.sums:
            self.sums[var] = self.work_out(var)
        return self.sums[var]

    def work_out(self, var: ir.Var) -> tuple[LoopDigit, ...] | None:
        """A variable as a sum of (loop, digit of it, factor, number of values); None if it is none.

        i split into i_0 of 4 and i_1 of 8: (i_0, i_0, 8, 4) + (i_1, i_1, 1, 8)
        j of 8, fused with i of 4 to f: (f, f % 8, 1, 8), and i is (f, f // 8, 1, 4)
        """
        s = self.state
        known, extent = s.definitions.get(var), s.fixed_extent(var)
        if known is None:
            if extent is None:
                return None
            return ((var, var, 1, extent),) if extent != 1 else ()
        sizes = [s.fixed_extent(d) or 0 for d in known.digits]
        if not all(sizes):
            return None
        if isinstance(known, Split):
            found: list[LoopDigit] = []
            for n, digit in enumerate(known.digits):
                parts, stride = self.digits_of(digit), math.prod(sizes[n + 1 :])
                if parts is None:
                    return None
                found += [(loop, e, c * stride, count) for loop, e, c, count in parts]
            return tuple(found)
        whole, stride = s.fixed_extent(known.whole), math.prod(sizes[known.index + 1 :])
        if known.whole in s.definitions or whole is None:
            return None
        count = -(-whole // stride)  # of values of the quotient
        if min(count, sizes[known.index]) == 1:
            return ()
        digit: ir.Expr = (
            known.whole if stride == 1 else ir.Binary("//", known.whole, ir.Const(stride, ir.INDEX), ir.INDEX)
        )
        if known.index and count > sizes[known.index]:
            digit, count = (
                ir.Binary("%", digit, ir.Const(sizes[known.index], ir.INDEX), ir.INDEX),
                sizes[known.index],
            )
        return ((known.whole, digit, 1, count),)


@lru_cache(maxsize=4096)
def is_closed(iters: tuple[ir.Iter, ...], init: ir.Body, body: ir.Body) -> bool:
    """Whether a block speaks of its iterators only, but for its bindings and predicate."""
    own = {it.var for it in iters} | {s.var for s in ir.walk((*init, *body)) if isinstance(s, ir.For)}
    constant = all(type(it.extent) is ir.Const for it in iters)
    return constant and all(x in own for x in ir.expressions((*init, *body)) if isinstance(x, ir.Var))
