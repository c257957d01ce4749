"""Which accesses and divisions a kernel has to check while it runs: those that nothing proves right.

Two questions, asked where they are easy. Of the program as it comes, with its blocks: is every index without
a load in range for all values of the loops and block iterators around? Mostly yes, whatever the schedule, and
then there is nothing more to do. Of the lowered program, only for buffers where the answer was no, and for
indices that contain loaded values: is the index in range, given the conditions around it?

A loaded value may be any of its dtype. Arithmetic on it wraps round, which `arith` ignores, so `range_of`
goes through it with intervals that know:

>>> index, i = ir.Buffer("I", (8,), "int64"), ir.Var("i")
>>> range_of(ir.minimum(ir.maximum(index[i], 0), 4) + 1, Surroundings())
(1, 5)
>>> range_of(index[i] + 1, Surroundings()) == ir.integer_limits("int64")
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ... import ir
from ...affine.constraint import BOUNDS
from ...arith import Domain, conjuncts, negation
from ...ir.expr import COMPARISONS

Interval = tuple[int, int]
Access = ir.Load | ir.Store


class Unproved:
    """What needs a check. A node that was not asked about, because code generation made it, needs one unless
    it is plain."""

    def __init__(self, doubtful: frozenset[str] = frozenset(), enabled: bool = True) -> None:
        self.doubtful = doubtful  # names of buffers with an index that is not in range for all loops around
        self.enabled = enabled
        self.known: dict[Access, tuple[int, ...]] = {}  # axes to check
        self.divisions: dict[ir.Binary, bool] = {}

    def axes(self, access: Access) -> tuple[int, ...]:
        if not self.enabled:
            return ()
        found = self.known.get(access)
        if found is None:
            doubtful = access.buffer.name in self.doubtful
            pairs = enumerate(access.indices)
            found = tuple(
                [n for n, index in pairs if (doubtful or ir.has_load(index)) and not is_inside(access, n)]
            )
            self.known[access] = found
        return found

    def divides(self, e: ir.Binary) -> bool:
        return self.enabled and self.divisions.get(e, True)


def is_inside(access: Access, axis: int) -> bool:
    low, high = range_of(access.indices[axis], Surroundings())
    return low >= 0 and high < access.buffer.shape[axis]


def find_unproved(program: ir.Program, lowered: ir.Program) -> Unproved:
    """The checks of `lowered`, which `program` has become."""
    source = _Source()
    source.body(program.body, Surroundings())
    result = Unproved(frozenset(source.doubtful))
    if source.doubtful or source.interesting:
        _Lowered(lowered, result).body(lowered.body, Surroundings())
    return result


# --- what holds at a place ------------------------------------------------------------------------


class Surroundings:
    """The loops and conditions around a place, innermost first; a `Domain` of them only if asked for."""

    __slots__ = ("_domain", "cond", "extent", "outer", "truth", "var")

    def __init__(self, outer: Surroundings | None = None) -> None:
        self.outer = outer
        self.var: ir.Var | None = None
        self.extent: ir.Expr | None = None
        self.cond: ir.Expr | None = None
        self.truth = True
        self._domain: Domain | None = None

    def with_loop(self, var: ir.Var, extent: ir.Expr) -> Surroundings:
        new = Surroundings(self)
        new.var, new.extent = var, extent
        return new

    def assume(self, cond: ir.Expr, truth: bool = True) -> Surroundings:
        new = self
        for part in conjuncts(cond) if truth else (cond,):
            if not isinstance(part, ir.Const):
                new = Surroundings(new)
                new.cond, new.truth = part, truth
        return new

    @property
    def domain(self) -> Domain:
        """Of what contains no loads."""
        if self._domain is None:
            chain: list[Surroundings] = []
            at: Surroundings | None = self
            while at is not None and at._domain is None:
                chain.append(at)
                at = at.outer
            domain = Domain() if at is None else at._domain
            assert domain is not None
            for facts in reversed(chain):
                domain = facts._domain = facts._add(domain)
        assert self._domain is not None
        return self._domain

    def _add(self, domain: Domain) -> Domain:
        if self.var is not None and self.extent is not None:
            if ir.has_load(self.extent):
                return domain.with_fact(self.var >= 0)
            return domain.with_loop(self.var, self.extent)
        if self.cond is not None and not ir.has_load(self.cond):
            return domain.with_fact(self.cond if self.truth else ~self.cond)
        return domain

    def comparisons(self) -> Iterator[tuple[str, ir.Expr, ir.Expr]]:
        """Those of integers that hold here."""
        at: Surroundings | None = self
        while at is not None:
            if at.cond is not None:
                yield from comparisons(at.cond, at.truth)
            at = at.outer


def comparisons(cond: ir.Expr, truth: bool) -> Iterator[tuple[str, ir.Expr, ir.Expr]]:
    for part in conjuncts(cond if truth else negation(cond)):
        if isinstance(part, ir.Unary) and not isinstance(inner := negation(part.a), ir.Unary):
            yield from comparisons(inner, True)
        elif isinstance(part, ir.Binary) and part.op in COMPARISONS and ir.is_integer(part.a.dtype):
            yield part.op, part.a, part.b


def places(roots: Iterable[ir.Expr], facts: Surroundings) -> Iterator[tuple[ir.Expr, Surroundings]]:
    """Every load and integer division that is evaluated, with what holds where it is."""
    stack = [(e, facts) for e in roots]
    seen: set[tuple[int, int]] = set()
    while stack:
        e, here = stack.pop()
        if isinstance(e, (ir.Var, ir.Const)) or (id(e), id(here)) in seen:
            continue
        seen.add((id(e), id(here)))
        if isinstance(e, ir.Select):
            stack += [(e.cond, here), (e.a, here.assume(e.cond)), (e.b, here.assume(e.cond, False))]
        elif isinstance(e, ir.Binary) and e.op in ("and", "or"):
            stack += [(e.a, here), (e.b, here.assume(e.a, e.op == "and"))]
        else:
            if isinstance(e, ir.Load) or is_division(e):
                yield e, here
            stack += [(x, here) for x in ir.operands(e)]


def is_division(e: ir.Expr) -> bool:
    """Whether the divisor of an integer division may be zero, at first sight."""
    return isinstance(e, ir.Binary) and e.op in ("//", "%") and ir.is_integer(e.dtype) and not ir.as_int(e.b)


# --- visits ---------------------------------------------------------------------------------------


class _Visitor:
    """Visits every access and every integer division, with what holds there."""

    def body(self, body: ir.Body, facts: Surroundings) -> None:
        for s in body:
            self.stmt(s, facts)

    def stmt(self, s: ir.Stmt, facts: Surroundings) -> None:
        if isinstance(s, ir.Store):
            self.access(s, facts)
        self.expressions(ir.own_expressions(s), facts)
        if isinstance(s, ir.TupleStore):
            self.body(s.stores, facts)
        elif isinstance(s, ir.For):
            self.body(s.body, facts.with_loop(s.var, s.extent))
        elif isinstance(s, ir.If):
            then = facts
            for cond in conjuncts(s.cond):
                then = then.assume(cond) if self.lasts(cond) else then
            self.body(s.then, then)
            self.body(s.orelse, facts.assume(s.cond, False) if self.lasts(s.cond) else facts)
        elif isinstance(s, ir.While):
            self.body(s.body, facts)

    def expressions(self, roots: Iterable[ir.Expr], facts: Surroundings) -> None:
        for e, here in places(roots, facts):
            if isinstance(e, ir.Load):
                self.access(e, here)
            elif isinstance(e, ir.Binary):
                self.division(e, here)

    def lasts(self, cond: ir.Expr) -> bool:
        """Whether a condition still holds behind it."""
        return True

    def access(self, access: Access, facts: Surroundings) -> None:
        raise NotImplementedError

    def division(self, e: ir.Binary, facts: Surroundings) -> None:
        raise NotImplementedError


class _Source(_Visitor):
    """The program as it comes: the buffers of doubtful indices, and whether anything else is worth a second
    look."""

    def __init__(self) -> None:
        self.doubtful: set[str] = set()
        self.interesting = False

    def stmt(self, s: ir.Stmt, facts: Surroundings) -> None:
        if not isinstance(s, ir.Block):
            super().stmt(s, facts)
            return
        for cond in s.predicate:
            self.expressions([cond], facts)
            facts = facts.assume(cond)
        self.expressions(s.bindings, facts)
        for it, binding in zip(s.iters, s.bindings, strict=True):
            if not is_bound_inside(binding, it.extent, facts):
                self.doubtful |= {x.buffer.name for x in accesses(s)}
                break
        inner = Surroundings()
        for it in s.iters:
            inner = inner.with_loop(it.var, it.extent)
        self.body(s.init + s.body, inner)

    def division(self, e: ir.Binary, facts: Surroundings) -> None:
        self.interesting = True

    def access(self, access: Access, facts: Surroundings) -> None:
        for index, extent in zip(access.indices, access.buffer.shape, strict=True):
            if ir.has_load(index):
                self.interesting = True
            elif not is_within(index, extent, facts):
                self.doubtful.add(access.buffer.name)


class _Lowered(_Visitor):
    """The lowered program: what needs a check."""

    def __init__(self, program: ir.Program, result: Unproved) -> None:
        self.result = result
        self.stored = ir.buffers_written(program)

    def lasts(self, cond: ir.Expr) -> bool:
        """Whether nothing that a condition reads is stored to."""
        return all(load.buffer not in self.stored for load in ir.loads(cond))

    def division(self, e: ir.Binary, facts: Surroundings) -> None:
        unsafe = not excludes_zero(e.b, facts)
        self.result.divisions[e] = self.result.divisions.get(e, False) or unsafe

    def access(self, access: Access, facts: Surroundings) -> None:
        """An access may be met at several places: what is not proved at one of them is checked."""
        doubtful = access.buffer.name in self.result.doubtful
        axes = set(self.result.known.get(access, ()))
        for axis, (index, extent) in enumerate(zip(access.indices, access.buffer.shape, strict=True)):
            if ir.has_load(index):
                low, high = range_of(index, facts)
                if low < 0 or high >= extent:
                    axes.add(axis)
            elif doubtful and not is_within(index, extent, facts):
                axes.add(axis)
        self.result.known[access] = tuple(sorted(axes))


def accesses(s: ir.Stmt) -> Iterator[Access]:
    for x in ir.walk(s):
        if isinstance(x, ir.Store):
            yield x
        for e in ir.own_expressions(x):
            yield from (y for y in ir.subexpressions(e) if isinstance(y, ir.Load))


def is_bound_inside(binding: ir.Expr, extent: ir.Expr, facts: Surroundings) -> bool:
    """Whether an iterator is certainly bound to a value of its range."""
    if ir.has_load(binding) or ir.has_load(extent):
        return False
    size = ir.as_int(extent)
    if size is not None:
        return is_within(binding, size, facts)
    return facts.domain.prove(binding >= 0) and facts.domain.prove(binding < extent)


def is_within(index: ir.Expr, extent: int, facts: Surroundings) -> bool:
    """Whether an index without loads is in [0, extent)."""
    value = ir.as_int(index)
    if value is not None:
        return 0 <= value < extent
    return facts.domain.is_between(index, 0, extent - 1)


# --- intervals of loaded values -------------------------------------------------------------------


def range_of(e: ir.Expr, facts: Surroundings) -> Interval:
    """The least and the largest value that an integer expression can have, wrapped round as it may be."""
    low, high = unconditional(e, facts)
    for op, a, b in facts.comparisons():
        if not ir.has_load(a) and not ir.has_load(b):
            continue  # the domain knows
        for x, y, sign in ((a, b, 1), (b, a, -1)):
            if is_same(x, e):
                other = unconditional(y, Surroundings() if ir.has_load(y) else facts)
                low, high = narrow_interval((low, high), op, sign, other)
    return low, high


def is_same(a: ir.Expr, b: ir.Expr) -> bool:
    """Whether two expressions have the same value: conversions to wider integers change none."""
    return ir.same_expr(narrowest(a), narrowest(b))


def narrowest(e: ir.Expr) -> ir.Expr:
    while (
        isinstance(e, ir.Cast)
        and ir.is_integer(e.a.dtype)
        and contains(ir.integer_limits(e.dtype), ir.integer_limits(e.a.dtype))
    ):
        e = e.a
    return e


def narrow_interval(interval: Interval, op: str, sign: int, by: Interval) -> Interval:
    """What is left of an interval where its value compares so with one of `by`; with a sign of -1, where one
    of `by` does with it."""
    low, high = interval
    if op == "!=":
        return (low + (low == by[0]), high - (high == by[0])) if by[0] == by[1] else interval
    first, last = sorted(sign * bound for bound in BOUNDS[op])
    return int(max(low, by[0] + first)), int(min(high, by[1] + last))


def excludes_zero(e: ir.Expr, facts: Surroundings) -> bool:
    low, high = range_of(e, facts)
    if low > 0 or high < 0:
        return True
    for op, a, b in facts.comparisons():
        if op == "!=" and ((ir.as_int(b) == 0 and is_same(a, e)) or (ir.as_int(a) == 0 and is_same(b, e))):
            return True
    return not ir.has_load(e) and facts.domain.prove(e != 0)


def contains(outer: Interval, inner: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def fit_interval(found: Interval, dtype: str) -> Interval:
    """An interval of a dtype's values: all of them, if some wrap round."""
    return found if contains(ir.integer_limits(dtype), found) else ir.integer_limits(dtype)


def unconditional(e: ir.Expr, facts: Surroundings) -> Interval:
    """`range_of` but for conditions on `e` as a whole."""
    whole = ir.integer_limits(e.dtype)
    if isinstance(e, ir.Const):
        return int(e.value), int(e.value)
    if isinstance(e, ir.Load):
        data = e.buffer.data
        return (int(data.min()), int(data.max())) if data is not None and data.size else whole
    if not ir.has_load(e):
        low, high = facts.domain.bounds(e)
        return fit_interval((whole[0] if low is None else low, whole[1] if high is None else high), e.dtype)
    if isinstance(e, ir.Binary):
        return fit_interval(arithmetic(e, whole, facts), e.dtype)
    if isinstance(e, ir.Select):
        a, b = range_of(e.a, facts.assume(e.cond)), range_of(e.b, facts.assume(e.cond, False))
        return min(a[0], b[0]), max(a[1], b[1])
    if isinstance(e, ir.Cast) and ir.is_integer(e.a.dtype):
        return fit_interval(range_of(e.a, facts), e.dtype)
    if isinstance(e, ir.Cast) and e.a.dtype == "bool":
        return 0, 1
    if isinstance(e, ir.Unary):
        low, high = range_of(e.a, facts)
        return fit_interval((-high, -low) if e.op == "-" else (-1 - high, -1 - low), e.dtype)
    if isinstance(e, ir.Call) and e.name == "abs":
        low, high = range_of(e.args[0], facts)
        least = 0 if low <= 0 <= high else min(abs(low), abs(high))
        return fit_interval((least, max(abs(low), abs(high))), e.dtype)
    return whole


def arithmetic(e: ir.Binary, whole: Interval, facts: Surroundings) -> Interval:
    """Of unbounded integers."""
    a, b = range_of(e.a, facts), range_of(e.b, facts)
    if e.op == "+":
        return a[0] + b[0], a[1] + b[1]
    if e.op == "-":
        return a[0] - b[1], a[1] - b[0]
    if e.op == "*":
        return hull([x * y for x in a for y in b])
    if e.op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if e.op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if e.op == "//" and (b[0] > 0 or b[1] < 0):
        return hull([x // y for x in a for y in b])
    if e.op == "%" and b[0] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
    if e.op == "%" and b[1] < 0:
        return b[0] + 1, 0
    if e.op == "&" and max(a[0], b[0]) >= 0:
        return 0, min(x[1] for x in (a, b) if x[0] >= 0)
    if e.op == ">>" and b[0] >= 0:
        return hull([x >> min(y, 64) for x in a for y in b])
    return whole


def hull(values: list[int]) -> Interval:
    return min(values), max(values)
