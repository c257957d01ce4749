"""`covers`: whether all that one access reads has been stored by another.

It is enough to name, for every element that is read, an instance that stores it: a *witness*. Each loop of
the storing block is chosen from the element, largest factor first, and then it is checked that the instance
exists (its loops are in range, its guards hold) and stores that very element: no counter-example may be left.

    for i, j: X[4 * i + j] = ...   reads X[e], 0 <= e < 32: i = e // 4, j = e - 4 * i;
    for e: ... X[e]                4 * i + j = e always; i > 7 or j > 3 for no e
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .. import ir
from .access import Access
from .alias import offset
from .definitions import FusedDigit
from .footprint import find_written, footprint, runs_surely
from .form import form_of, variables
from .instance import Instance, Linear
from .nest import Nest
from .system import System
from .view import View


def covers(view: View, write: Access, read: Access) -> bool:
    """Whether every element that `read` touches, while the loops outside of a view stand still, is one that
    `write` stores meanwhile. Boxes are compared first: what is stored for sure has all that may be read."""
    writer, reader = write.block, read.block
    box = find_written(view, writer, [start for start, _ in write.region.ranges])
    if box is not None and box.holds(view, footprint(view, read), read.buffer.shape):
        known = [view.s.resolve(test) for test in reader.predicate] if box.guards else []
        if all(any(ir.same_expr(test, guard) for test in known) for guard in box.guards):
            return True
    if box is None and not runs_surely(view, writer):
        return False
    loops = [v for v in view.s.loops_around(writer.name) if v not in view.outside]
    return has_witnesses(view.s, still_variables(view, writer, reader), loops, write, read)


def still_variables(view: View, *blocks: ir.Block) -> list[ir.Var]:
    """The variables that stand still outside of a view: loops, and iterators of blocks around."""
    used = [v for b in blocks for e in (*b.bindings, *b.predicate) for v in variables(e) if view.is_outer(v)]
    return list(dict.fromkeys([*view.outside, *used]))


def has_witnesses(
    nest: Nest, around: Iterable[ir.Var], loops: Sequence[ir.Var], write: Access, read: Access
) -> bool:
    """Whether every element that `read` touches while the variables around stand still has an instance of
    `write` that stores it, whose own `loops` all range and none of which is empty."""
    if any(ir.as_int(count) != 1 for _, count in write.region.ranges):
        return False
    system = System()
    reader = Instance(system, nest)
    common = {v: reader.variable(v) for v in around}
    reader = Instance(system, nest, common, read.iters)
    for test in read.guards:
        reader.assume(test)
    element: list[Linear] = []
    for (start, count), size in zip(read.region.ranges, read.region.buffer.shape, strict=True):
        element.append(reader.value(start).plus(offset(reader, count)))
        reader.require(element[-1], 0, size - 1)  # what is outside is not read
    witness = Witness(system, nest, common)
    indices = [ir.substitute(start, dict(write.iters)) for start, _ in write.region.ranges]
    witness.choose(indices, element, loops)
    must: list[tuple[Linear, float, float]] = []
    for index, value in zip(indices, element, strict=True):
        must.append((witness.value(index).plus(value, -1), 0, 0))
    for var in loops:
        must.append((witness.variable(var), 0, (witness.extent(var) or 0) - 1))
    for test in write.guards:
        found = witness.comparisons(test)
        if found is None:
            return False
        must += found
    return all(holds(system, *one) for one in must)


def holds(system: System, value: Linear, low: float, high: float) -> bool:
    """Whether a value lies between bounds in every solution of a system."""
    for first, last in ((-math.inf, low - 1), (high + 1, math.inf)):
        if first == last or not (first < math.inf and last > -math.inf):
            continue
        outside = system.copy()
        outside.require(value.terms, first - value.const, last - value.const)
        if outside.is_empty() is not True:
            return False
    return True


class Witness(Instance):
    """An instance whose loops are chosen so that its indices are given values."""

    def choose(self, indices: Sequence[ir.Expr], values: Sequence[Linear], loops: Sequence[ir.Var]) -> None:
        waiting = self.join_digits(indices, values)
        while waiting:  # those first that leave the least to choose
            at = min(
                waiting, key=lambda n: (not is_sum(indices[n]), len(self.unknown_variables(indices[n])), n)
            )
            waiting.remove(at)
            self.solve(indices[at], values[at])
        for var in loops:  # what no index tells: any value will do
            if not self.is_known(var):
                self.put(var, Linear({}))

    def join_digits(self, indices: Sequence[ir.Expr], values: Sequence[Linear]) -> list[int]:
        """Solve for numbers of which all upper digits are indices; gives the indices that are left.

        [x // 12, x // 4 % 3] = [a, b]: x = 12 * a + 4 * b"""
        digits = [digit_of(e) for e in indices]
        left = list(range(len(indices)))
        for at in sorted(left, key=lambda n: digits[n][1]):
            x, low, high = digits[at]
            found, total = [at], values[at].times(low)
            while high is not None and at in left:
                above = [n for n in left if digits[n][1] == high and are_congruent(digits[n][0], x, high)]
                if not above:
                    break
                found.append(above[0])
                total = total.plus(values[above[0]], high)
                x, _, high = digits[above[0]]
            if len(found) > 1 and high is None:
                self.solve(x, total)
                left = [n for n in left if n not in found]
        return left

    def unknown_variables(self, e: ir.Expr) -> list[ir.Var]:
        return [v for v in ir.free_vars(e) if not self.is_known(v)]

    def is_known(self, var: ir.Var) -> bool:
        if var in self.known:
            return True
        definition = self.nest.definitions.get(var)
        if definition is None:
            return False
        if isinstance(definition, FusedDigit):
            return self.is_known(definition.whole)
        return all(map(self.is_known, definition.digits))

    def put(self, var: ir.Var, value: Linear) -> None:
        """Let a variable have a value; so have its digits, and a fused loop whose digits all have one."""
        self.known[var] = value
        definition = self.nest.definitions.get(var)
        if definition is None:
            return
        if isinstance(definition, FusedDigit):
            if definition.whole not in self.known and all(
                d in self.known or self.extent(d) == 1 for d in definition.digits
            ):
                for digit in definition.digits:
                    self.known.setdefault(digit, Linear({}))
                self.put(definition.whole, self.number(definition.digits))
            return
        for n, digit in reversed(list(enumerate(definition.digits))):
            last = value
            if n:
                value, last = self.divide(value, self.extent(digit) or 1)
            if not self.is_known(digit):
                self.put(digit, last)

    def solve(self, e: ir.Expr, value: Linear) -> None:
        """Choose what is open in an index so that it is `value`, if that is possible."""
        rest, parts = value, list[tuple[ir.Expr, int]]()
        for x, c in self.summands(e, 1):
            if x is None:
                rest = rest.plus(Linear({}, c), -1)
            elif self.unknown_variables(x):
                parts.append((x, c))
            else:
                rest = rest.plus(self.value(x), -c)
        parts.sort(key=lambda part: -abs(part[1]))
        for x, c in parts:
            if not isinstance(x, ir.Var):
                if len(parts) == 1 and abs(c) == 1:
                    self.invert(x, rest.times(c))
                return
            if self.is_known(x):  # another part told it
                rest = rest.plus(self.variable(x), -c)
                continue
            last = (self.extent(x) or 1) - 1
            # A negative factor counts down from the end.
            start = rest if c > 0 else rest.plus(Linear({}, c * last), -1)
            chosen = self.clamp(self.divide(start, abs(c))[0], last)
            self.put(x, chosen if c > 0 else Linear({}, last).plus(chosen, -1))
            rest = rest.plus(self.known[x], -c)

    def invert(self, e: ir.Expr, value: Linear) -> None:
        divisor = ir.as_int(e.b) if isinstance(e, ir.Binary) else None
        if isinstance(e, ir.Binary) and divisor is not None:
            if e.op == "//":
                self.solve(e.a, value.times(divisor))
            elif e.op in ("%", "min", "max"):
                self.solve(e.a, value)

    def summands(self, e: ir.Expr, factor: int) -> list[tuple[ir.Expr | None, int]]:
        """A sum as its parts with factors; the constant with no part. A split variable of which some is
        known is a sum of its digits."""
        if (constant := ir.as_int(e)) is not None:
            return [(None, constant * factor)]
        if isinstance(e, ir.Binary) and e.op in ("+", "-"):
            sign = factor if e.op == "+" else -factor
            return self.summands(e.a, factor) + self.summands(e.b, sign)
        if isinstance(e, ir.Binary) and e.op == "*" and (times := ir.as_int(e.b)) is not None:
            return self.summands(e.a, factor * times)
        if isinstance(e, ir.Var) and e not in self.known:
            definition = self.nest.definitions.get(e)
            if definition is not None and not isinstance(definition, FusedDigit):
                digits = definition.digits
                if any(map(self.is_known, digits)):
                    found: list[tuple[ir.Expr | None, int]] = []
                    for digit in reversed(digits):
                        found += self.summands(digit, factor)
                        factor *= self.extent(digit) or 0
                    return found
        return [(e, factor)]

    def clamp(self, value: Linear, last: int) -> Linear:
        """The value, or the nearest between 0 and `last`."""
        if not holds(self.system, value, 0, math.inf):
            value = self.least(value, Linear({}), -1)
        if not holds(self.system, value, -math.inf, last):
            value = self.least(value, Linear({}, last))
        return value


def is_sum(e: ir.Expr) -> bool:
    """Whether an index is a sum of variables with factors."""
    if isinstance(e, ir.Binary) and e.op in ("+", "-"):
        return is_sum(e.a) and is_sum(e.b)
    if isinstance(e, ir.Binary) and e.op == "*" and ir.as_int(e.b) is not None:
        return is_sum(e.a)
    return isinstance(e, ir.Var) or ir.as_int(e) is not None


def digit_of(e: ir.Expr) -> tuple[ir.Expr, int, int | None]:
    """(x, low, high) of `x // low % (high // low)`; high is None if there is no remainder taken."""
    divisor = ir.as_int(e.b) if isinstance(e, ir.Binary) and e.op in ("//", "%") else None
    if not isinstance(e, ir.Binary) or divisor is None or divisor < 1:
        return e, 1, None
    x, low, high = digit_of(e.a)
    if e.op == "//":
        return (x, low * divisor, high) if high is None or high % (low * divisor) == 0 else (e, 1, None)
    return (x, low, low * divisor) if high is None or high % (low * divisor) == 0 else (e, 1, None)


def are_congruent(a: ir.Expr, b: ir.Expr, modulus: int) -> bool:
    """Whether two sums have the same remainder: i + 5 and i - 1 modulo 6."""
    one, other = form_of(a), form_of(b)
    return dict(one.terms) == dict(other.terms) and (one.const - other.const) % modulus == 0
