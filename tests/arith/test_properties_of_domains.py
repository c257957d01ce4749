"""Whatever is claimed over a domain agrees with enumeration of the domain."""

from __future__ import annotations

from hypothesis import given
from index_expressions import CUT, I, J, K, M, N, conditions, domains, evaluate, integers, points

from metaschedule.arith import Domain, simplify
from metaschedule.ir import Expr, Unary, as_expr, as_int

ALL = (I, J, K, N, M)


@given(domains(), integers(ALL))
def test_simplify_preserves_value(domain: Domain, e: Expr) -> None:
    simple = simplify(e, domain)
    assert simple.dtype == e.dtype
    for point in points(domain):
        try:
            expected = evaluate(e, point)
        except ZeroDivisionError:
            continue
        assert evaluate(simple, point) == expected, f"{e} -> {simple} at {named(point)}"


@given(domains(), conditions(ALL))
def test_simplify_preserves_truth(domain: Domain, c: Expr) -> None:
    simple = simplify(c, domain)
    for point in points(domain):
        try:
            expected = evaluate(c, point)
        except ZeroDivisionError:
            continue
        assert evaluate(simple, point) == expected, f"{c} -> {simple} at {named(point)}"


@given(domains(), integers(ALL))
def test_bounds_are_sound(domain: Domain, e: Expr) -> None:
    low, high = domain.bounds(e)
    for point in points(domain):
        try:
            value = evaluate(e, point)
        except ZeroDivisionError:
            continue
        assert low is None or low <= value, f"{e} is {value} at {named(point)}, not >= {low}"
        assert high is None or value <= high, f"{e} is {value} at {named(point)}, not <= {high}"


@given(domains(), integers(ALL))
def test_exact_bounds_are_attained(domain: Domain, e: Expr) -> None:
    exact = domain.exact_bounds(e)
    extents = [as_int(simplify(as_expr(n), domain)) for n in domain.extents.values()]
    if exact is None or any(n is not None and n > CUT for n in extents):
        return
    try:
        values = [evaluate(e, p) for p in points(domain, 10**6)]
    except ZeroDivisionError:  # i // i is 1, and where i is 0 the program fails
        return
    if values:  # attained if the domain has points for the values of n and m we tried
        assert (min(values), max(values)) == exact, f"{e}"


@given(domains(), conditions(ALL))
def test_prove_never_contradicts_enumeration(domain: Domain, c: Expr) -> None:
    always, never = domain.prove(c), domain.prove(Unary("not", c, "bool"))
    if not always and not never:
        return
    for point in points(domain):
        try:
            value = evaluate(c, point)
        except ZeroDivisionError:
            continue
        assert value or not always, f"{c} is false at {named(point)}"
        assert not value or not never, f"{c} is true at {named(point)}"


def named(point) -> str:
    return ", ".join(f"{v.name}={x}" for v, x in point.items())
