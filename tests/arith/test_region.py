"""Regions: exact results by hand, and cover, containment and disjointness by enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_expressions import I, J, K, M, N, Point, domains, evaluate, integers, points

from metaschedule import ir
from metaschedule.arith import Domain, access_region, contains, relax, union

A = ir.Buffer("A", (128, 64))
V = ir.Buffer("V", (128,))


def shown(region: ir.Region) -> str:
    return str(", ".join(f"{start} : {count}" for start, count in region.ranges))


RELAXED = {
    "tile": (I * 4 + J, {J: 4}, "i * 4", "4"),
    "window": (I * 2 + J + K, {J: 4, K: 3}, "i * 2", "6"),
    "stride": (I * 8 + J * 2, {J: 3}, "i * 8", "5"),
    "reversed": (I - J, {J: 4}, "i - 3", "4"),
    "symbolic": (I * N + J, {J: N}, "i * n", "n"),
    "triangular": (J, {I: 8, J: I + 1}, "0", "8"),
    "outer extent": (J, {J: I + 1}, "0", "i + 1"),
    "quotient": ((I * 8 + J) // 2, {J: 8}, "i * 4", "4"),
    "remainder": ((I * 4 + J) % 8, {J: 4}, "i % 2 * 4", "4"),
    "wrapping remainder": ((I + J) % 8, {J: 4}, "0", "8"),
    "minimum": (ir.minimum(I * 6, 58) + J, {J: 6}, "T.min(i * 6, 58)", "6"),
    "untouched": (I * N, {J: 4}, "i * n", "1"),
    "load": (V[I].astype("int64"), {J: 4}, 'T.cast(V[i], "int64")', "1"),
}


@pytest.mark.parametrize("name", RELAXED)
def test_relax(name: str) -> None:
    e, loops, first, count = RELAXED[name]
    found = relax(e, loops, Domain({} if I in loops else {I: 16}))
    assert found is not None
    assert (str(found[0]), str(found[1])) == (first, count)


def test_relax_refuses_what_it_cannot_bound() -> None:
    assert relax(V[J].astype("int64"), {J: 4}, Domain()) is None
    assert relax(J * J * N, {J: 4}, Domain()) is None


def test_access_region_uses_facts_for_constant_ends() -> None:
    region = access_region(V, [I * 6 + J], {I: 22, J: 6}, Domain(facts=[I * 6 + J < 128]))
    assert shown(region) == "0 : 128"
    tile = access_region(V, [I * 6 + J], {J: 6}, Domain({I: 22}, [I * 6 + J < 128]))
    assert shown(tile) == "i * 6 : 6"


def test_unknown_dimension_is_whole() -> None:
    region = access_region(A, [V[J].astype("int64"), J], {J: 4}, Domain())
    assert shown(region) == "0 : 128, 0 : 4"


def test_union() -> None:
    d = Domain({I: 8, J: 8})
    boxes = [V.region((I * 4, 4)), V.region((I * 4 + 2, 4))]
    assert shown(union(boxes, d)) == "i * 4 : 6"
    assert shown(union([V.region(I), V.region(J)], d)) == "0 : 8"
    assert shown(union([V.region(N), V.region(M)], d)) == "0 : 128"
    with pytest.raises(ValueError, match="different buffers"):
        union([V.region(0), A.region(0, 0)], d)


def test_contains() -> None:
    d = Domain({I: 8, J: 4})
    assert contains(V.region((I * 4, 4)), V.region(I * 4 + J), d)
    assert not contains(V.region((I * 4, 4)), V.region(I * 4 + J + 1), d)
    assert contains(V.whole(), V.region((I * 4, 4)), d)
    assert contains(V.region((0, 1)), V.region((N, 0)), d)


# --- by enumeration -------------------------------------------------------------------------------

ALL = (I, J, K, N, M)


def elements(region: ir.Region, point: Point) -> set[tuple[int, ...]]:
    ranges = [(evaluate(a, point), evaluate(n, point)) for a, n in region.ranges]
    return set(itertools.product(*[range(a, a + min(n, 40)) for a, n in ranges]))


@given(domains(facts=False), integers(ALL, 2))
def test_relax_covers(domain: Domain, e: ir.Expr) -> None:
    loops = {v: domain.extents[v] for v in (J, K)}
    outer = Domain({I: domain.extents[I]})
    found = relax(e, loops, outer)
    if found is None:
        return
    first, count = found
    assert not {J, K} & set(ir.free_vars(first) + ir.free_vars(count))
    for point in points(domain, 200):
        try:
            value = evaluate(e, point)
            low, n = evaluate(first, point), evaluate(count, point)
        except ZeroDivisionError:
            continue
        assert low <= value < low + n, f"{e} is {value}, not in {first} : {count}"


@given(domains(), integers(ALL, 2), integers(ALL, 1))
def test_access_region_covers(domain: Domain, a: ir.Expr, b: ir.Expr) -> None:
    buffer = ir.Buffer("B", (1000, 1000))
    loops = {v: domain.extents[v] for v in (J, K)}
    region = access_region(buffer, [a, b], loops, domain)
    for point in points(domain, 100):
        try:
            for e, (first, count) in zip((a, b), region.ranges):
                if (str(first), str(count)) == ("0", "1000"):
                    continue
                value, low, n = (evaluate(x, point) for x in (e, first, count))
                assert low <= value < low + n
        except ZeroDivisionError:
            continue


boxes = st.tuples(integers(ALL, 1), st.integers(0, 6).map(ir.as_expr) | integers(ALL, 0)).map(
    lambda pair: V.region(pair)
)


@given(domains(), boxes, boxes)
def test_relations_agree_with_sets(domain: Domain, a: ir.Region, b: ir.Region) -> None:
    inside = contains(a, b, domain)
    both = union([a, b], domain)
    for point in points(domain, 100):
        try:
            first, second, covered = (elements(r, point) for r in (a, b, both))
        except ZeroDivisionError:
            continue
        assert not inside or second <= first
        valid = {(x,) for x in range(128)}
        assert (first | second) & valid <= covered | {x for x in first | second if len(covered) >= 40}
