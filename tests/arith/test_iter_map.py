"""Iterator maps: the shapes that schedules make, and agreement with enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_expressions import I, J, K, evaluate

from metaschedule.arith import IterationMap, iteration_map
from metaschedule.ir import Expr, Var

F = Var("f")


def images(bindings, extents):
    found = []
    for values in itertools.product(*[range(n) for n in extents.values()]):
        point = dict(zip(extents, values))
        found.append((values, tuple(evaluate(b, point) for b in bindings)))
    return found


def check(found: IterationMap, bindings, extents) -> None:
    """All that the map claims, by enumeration."""
    pairs = images(bindings, extents)
    outputs = {out for _, out in pairs}
    if found.injective:
        assert len(outputs) == len(pairs)
        names = [Var(f"v{at}") for at in range(len(bindings))]
        solved = found.solve(names)
        for values, out in pairs:
            point = dict(zip(names, out))
            assert [evaluate(solved[v], point) for v in extents] == list(values)
    for out in outputs:
        assert all(a <= x <= b for x, (a, b) in zip(out, found.ranges))
    if found.surjective:
        box = itertools.product(*[range(a, b + 1) for a, b in found.ranges])
        assert set(box) == outputs
    for binding, total in zip(bindings, found.bindings):
        for values, _ in pairs:
            point = dict(zip(extents, values))
            by_digits = total.base + sum(
                c * (evaluate(d.source, point) // d.lower % d.extent) for c, d in total.terms
            )
            assert by_digits == evaluate(binding, point)


BIJECTIVE = {
    "split": ([I * 4 + J], {I: 8, J: 4}),
    "fuse": ([F // 8, F % 8], {F: 64}),
    "fuse three": ([F // 32, F // 8 % 4, F % 8], {F: 64}),
    "fuse then split": ([(I * 6 + J) // 4, (I * 6 + J) % 4], {I: 4, J: 6}),
    "reordered": ([J, I], {I: 3, J: 5}),
    "reversed": ([7 - I], {I: 8}),
    "offset": ([I * 4 + J + 3], {I: 8, J: 4}),
    "unit loops": ([I + J, K], {I: 1, J: 4, K: 1}),
    "mixed": ([I * 2 + J // 4, J % 4], {I: 3, J: 8}),
    "nested division": (
        [((F // 4) * 3 + I) // 2, ((F // 4) * 3 + I) % 2, F % 4],
        {F: 16, I: 3},
    ),
    "digits swapped": (
        [(((I * 2 + J) * 3 + K) % 3 * 4 + I * 2 + J) // 3, (((I * 2 + J) * 3 + K) % 3 * 4 + I * 2 + J) % 3],
        {I: 2, J: 2, K: 3},
    ),
}


@pytest.mark.parametrize("name", BIJECTIVE)
def test_bijective(name: str) -> None:
    bindings, extents = BIJECTIVE[name]
    found = iteration_map(bindings, extents)
    assert found is not None
    assert found.injective
    assert found.surjective
    check(found, bindings, extents)


INJECTIVE = {
    "skewed": ([I, I + J], {I: 4, J: 5}),
    "gaps": ([I * 8 + J], {I: 4, J: 4}),
    "fuse that does not divide": ([F // 4, F % 4], {F: 10}),
    "shifted division": ([(F + 1) // 4, (F + 1) % 4], {F: 11}),
}


@pytest.mark.parametrize("name", INJECTIVE)
def test_injective(name: str) -> None:
    bindings, extents = INJECTIVE[name]
    found = iteration_map(bindings, extents)
    assert found is not None
    assert found.injective
    assert not found.surjective
    check(found, bindings, extents)


NEITHER = {
    "convolution": ([I * 2 + K], {I: 8, K: 3}),
    "overlap": ([I * 6 + J * 4 + K], {I: 5, J: 2, K: 4}),
    "lost digit": ([F // 4], {F: 16}),
    "unused loop": ([I], {I: 4, J: 2}),
}


@pytest.mark.parametrize("name", NEITHER)
def test_not_injective(name: str) -> None:
    bindings, extents = NEITHER[name]
    found = iteration_map(bindings, extents)
    assert found is not None
    assert not found.injective
    with pytest.raises(ValueError, match="injective"):
        found.solve(bindings)


@pytest.mark.parametrize("binding", [I * J, (I * 3 + J) // 4, (F // 4) + (F // 6), F * 3 // 4])
def test_not_affine(binding: Expr) -> None:
    assert iteration_map([binding], {I: 4, J: 5, F: 24}) is None


def test_decomposition_names_sources() -> None:
    found = iteration_map([F // 32, F // 8 % 4, F % 8], {F: 64})
    assert found is not None
    shown = [[(c, str(d.source), d.lower, d.extent) for c, d in b.terms] for b in found.bindings]
    assert shown == [[(1, "f", 32, 2)], [(1, "f", 8, 4)], [(1, "f", 1, 8)]]
    fused = iteration_map([(I * 6 + J) // 4, (I * 6 + J) % 4], {I: 4, J: 6})
    assert fused is not None
    assert {str(d.source) for b in fused.bindings for _, d in b.terms} == {"i * 6 + j"}


def test_empty_nest() -> None:
    found = iteration_map([I], {I: 0})
    assert found is not None
    assert found.injective


# --- random maps ----------------------------------------------------------------------------------

factors = st.sampled_from([1, 2, 3, 4, 6, 8])


@st.composite
def maps(draw: st.DrawFn) -> tuple[list[Expr], dict[Var, int]]:
    """Sums of pieces of loops, often a layout change, sometimes nonsense."""
    extents = {v: draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12])) for v in (I, J, F)}
    pool: list[Expr] = list(extents)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 3))
        at = draw(st.integers(0, len(pool) - 1))
        if kind == 0 and len(pool) > 1:  # fuse two
            other = pool[(at + 1) % len(pool)]
            pool[at] = pool[at] * draw(factors) + other
            if draw(st.booleans()):
                pool.pop((at + 1) % len(pool))
        elif kind == 1:  # split one
            d = draw(factors)
            pool[at : at + 1] = [pool[at] // d, pool[at] % d]
        elif kind == 2:
            pool[at] = pool[at] + draw(st.integers(-3, 3))
        else:
            pool[at] = draw(st.integers(0, 9)) - pool[at]
    return draw(st.permutations(pool)), extents


@given(maps())
def test_random_maps_agree_with_enumeration(case) -> None:
    bindings, extents = case
    found = iteration_map(bindings, extents)
    if found is not None:
        check(found, bindings, extents)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[Expr], dict[Var, int]]:
    """Exact splits and fuses only: always a bijection."""
    extents = {v: draw(st.sampled_from([2, 3, 4, 6, 8])) for v in (I, J, F)}
    pool: list[tuple[Expr, int]] = list(extents.items())
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(pool) - 1))
        e, n = pool[at]
        if draw(st.booleans()) and len(pool) > 1:
            other, m = pool.pop((at + 1) % len(pool))
            at = at if at < len(pool) else len(pool) - 1
            pool[at] = (e * m + other, n * m)
        else:
            d = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            pool[at : at + 1] = [(e // d, n // d), (e % d, d)]
    return [e for e, _ in draw(st.permutations(pool))], extents


@given(layouts())
def test_layouts_are_seen_to_be_bijective(case) -> None:
    bindings, extents = case
    found = iteration_map(bindings, extents)
    assert found is not None
    assert found.injective
    assert found.surjective
    check(found, bindings, extents)
