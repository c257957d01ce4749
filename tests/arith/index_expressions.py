"""Random index expressions and domains, and their meaning by enumeration: the oracle of these
tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metaschedule import ir
from metaschedule.arith import Domain

I, J, K, N, M = (ir.Var(name) for name in "ijknm")  # noqa: E741
TABLE = ir.Buffer("T", (16,), "uint8")
WIDE = ir.Buffer("W", (16,), "int64")
DATA: dict[ir.Buffer, np.ndarray] = {
    TABLE: np.array([3, 0, 255, 7, 128, 4, 4, 1, 9, 2, 200, 17, 5, 6, 250, 8]),
    WIDE: np.array([0, 2, 2, 5, -1, 9, 3, 40, -7, 1, 0, 0, 6, 12, 4, -2]),
}
Point = Mapping[ir.Var, int]
OPERATORS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "&": lambda a, b: a & b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def evaluate(e: ir.Expr, point: Point) -> Any:
    """The value of an expression; ZeroDivisionError where the program would fail."""
    if isinstance(e, ir.Var):
        return point[e]
    if isinstance(e, ir.Const):
        return e.value
    if isinstance(e, ir.Binary):
        a = evaluate(e.a, point)
        if e.op in ("and", "or"):
            return evaluate(e.b, point) if a is (e.op == "and") else a
        return wrap(OPERATORS[e.op](a, evaluate(e.b, point)), e.dtype)
    if isinstance(e, ir.Select):
        return evaluate(e.a if evaluate(e.cond, point) else e.b, point)
    if isinstance(e, ir.Load):
        return int(DATA[e.buffer][evaluate(e.indices[0], point) % 16])
    if isinstance(e, ir.Unary):
        a = evaluate(e.a, point)
        return not a if e.op == "not" else wrap(-a if e.op == "-" else ~a, e.dtype)
    if isinstance(e, ir.Cast):
        a = evaluate(e.a, point)
        return a != 0 if e.dtype == "bool" else wrap(int(a), e.dtype)
    assert isinstance(e, ir.Call)
    assert e.name == "abs"
    return wrap(abs(evaluate(e.args[0], point)), e.dtype)


def wrap(value: Any, dtype: str) -> Any:
    if not ir.is_integer(dtype) or dtype == "int64":
        return value
    low, high = ir.integer_limits(dtype)
    return (value - low) % (high - low + 1) + low


# --- strategies -----------------------------------------------------------------------------------

small = st.integers(-6, 12)
divisors = st.sampled_from([1, 2, 3, 4, 6, 8, 12, -3])


@cache
def integers(variables: tuple[ir.Var, ...], depth: int = 3) -> st.SearchStrategy[ir.Expr]:
    """Index expressions, mostly quasi-affine, with some of everything else."""
    leaf = st.sampled_from(variables) | small.map(lambda v: ir.Const(v, "int64"))
    if depth == 0:
        return leaf
    e = integers(variables, depth - 1)
    plain = st.sampled_from(variables)
    divided = st.tuples(e, divisors, st.sampled_from(["//", "%"])).map(
        lambda t: t[0] // t[1] if t[2] == "//" else t[0] % t[1]
    )
    options = [
        leaf,
        st.tuples(e, e).map(lambda t: t[0] + t[1]),
        st.tuples(e, e).map(lambda t: t[0] + t[1]),
        st.tuples(e, e).map(lambda t: t[0] - t[1]),
        st.tuples(e, small).map(lambda t: t[0] * t[1]),
        st.tuples(plain, divisors, e).map(lambda t: t[0] * t[1] + t[2]),
        divided,
        divided,
        st.tuples(e, e).map(lambda t: ir.minimum(t[0], t[1])),
        st.tuples(e, e).map(lambda t: ir.maximum(t[0], t[1])),
        st.tuples(e, e).map(lambda t: t[0] * t[1]),
        st.tuples(e, plain).map(lambda t: t[0] // t[1]),
        st.tuples(e, plain).map(lambda t: t[0] % t[1]),
        st.tuples(conditions(variables, depth - 1), e, e).map(lambda t: ir.select(*t)),
        e.map(lambda x: TABLE[x].astype("int64")),
        e.map(lambda x: (TABLE[x].astype("int32") + 1).astype("int64")),
        e.map(lambda x: (TABLE[x] + 1).astype("int64")),
        e.map(lambda x: WIDE[x]),
        st.tuples(e, st.sampled_from(["int8", "uint8", "int32"])).map(
            lambda t: (t[0].astype(t[1]) * 2 - 3).astype("int64")
        ),
        conditions(variables, depth - 1).map(lambda c: c.astype("int64")),
        e.map(abs),
        e.map(lambda x: (x & 7) + (x >> 1) - (x << 2)),
        e.map(lambda x: -x),
    ]
    return st.one_of(options)


@cache
def conditions(variables: tuple[ir.Var, ...], depth: int = 2) -> st.SearchStrategy[ir.Expr]:
    e = integers(variables, depth)
    compare = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), e, e).map(
        lambda t: ir.Binary(t[0], t[1], t[2], "bool")
    )
    if depth == 0:
        return compare
    c = conditions(variables, depth - 1)
    return st.one_of(
        compare,
        compare,
        st.tuples(c, c).map(lambda t: t[0] & t[1]),
        st.tuples(c, c).map(lambda t: t[0] | t[1]),
        c.map(lambda x: ir.Unary("not", x, "bool")),
        e.map(lambda x: x.astype("bool")),
    )


@st.composite
def domains(draw: st.DrawFn, facts: bool = True) -> Domain:
    """Loops i, j, k (some constant, some triangular, some of unknown extent); n and m are free."""
    extents: dict[ir.Var, ir.Expr | int] = {}
    outer: tuple[ir.Var, ...] = (N, M)
    for var in (I, J, K):
        if draw(st.integers(0, 3)):
            extents[var] = draw(st.integers(0, 9)) or 1
        else:
            extents[var] = draw(integers(outer, 1))
        outer = (*outer, var)
    known = draw(st.lists(conditions((I, J, K, N, M), 1), max_size=2)) if facts else []
    return Domain(extents, known)


CUT = 14  # enumerate so many values of a loop: a part of a range is as good a test


def loop_points(extents: Mapping[ir.Var, ir.Expr | int], given: Point) -> Iterator[Point]:
    """The points of a loop nest, given the free variables."""

    def go(items: list[tuple[ir.Var, ir.Expr | int]], point: Point) -> Iterator[Point]:
        if not items:
            yield point
            return
        (var, extent), *rest = items
        count = extent if isinstance(extent, int) else evaluate(extent, point)
        for value in range(min(count, CUT)):
            yield from go(rest, {**point, var: value})

    return go(list(extents.items()), given)


def points(domain: Domain, limit: int = 600) -> list[Point]:
    """Points of the domain, for several values of the free variables."""
    found: list[Point] = []
    for n, m in itertools.product((-1, 1, 2, 5), (0, 3)):
        try:
            candidates = itertools.islice(loop_points(domain.extents, {N: n, M: m}), 4 * limit)
            for point in candidates:
                if holds_at(domain.facts, point):
                    found.append(point)
        except ZeroDivisionError:
            continue
    step = len(found) // limit + 1
    return found[::step]


def holds_at(facts: tuple[ir.Expr, ...], point: Point) -> bool:
    """Whether all facts hold; a fact that fails to evaluate is taken not to."""
    try:
        return all(evaluate(f, point) for f in facts)
    except ZeroDivisionError:
        return False
