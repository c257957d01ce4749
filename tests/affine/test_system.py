"""Systems of bounded integers: their answers against enumeration."""

from __future__ import annotations

import itertools
import math
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from metaschedule.affine import system as affine_system
from metaschedule.affine.system import System


@st.composite
def systems(draw: st.DrawFn) -> System:
    system = System()
    for _ in range(draw(st.integers(1, 5))):
        low = draw(st.integers(-3, 3))
        system.variable(low, low + draw(st.integers(0, 5)))
    count = len(system.bounds)
    for _ in range(draw(st.integers(1, 4))):
        terms = draw(
            st.dictionaries(st.integers(0, count - 1), st.integers(-6, 6), min_size=1, max_size=count)
        )
        low = draw(st.one_of(st.just(-math.inf), st.integers(-12, 12)))
        high = draw(st.one_of(st.just(math.inf), st.integers(-12, 12)))
        system.require(terms, *((low, low) if draw(st.booleans()) and low > -math.inf else (low, high)))
    return system


@given(systems(), st.booleans())
def test_a_system_is_empty_where_enumeration_finds_nothing(system: System, patient: bool) -> None:
    rounds = (
        affine_system.MOST_ROUNDS if patient else 1
    )  # with few, variables are fixed before rows are checked
    points = itertools.product(*[range(low, high + 1) for low, high in system.bounds])
    truth = not any(
        all(low <= sum(c * p[v] for v, c in terms.items()) <= high for terms, low, high in system.rows)
        for p in points
    )
    with patch.object(affine_system, "MOST_ROUNDS", rounds):
        found = system.is_empty()
    assert found is truth  # "unknown" is for systems beyond these sizes


def test_large_bounds_are_no_hindrance_where_variables_cancel() -> None:
    s = System()
    v, a, b, d = s.variable(0, 10**9), s.variable(0, 3), s.variable(0, 3), s.variable(1, 10**9)
    s.require({v: 4, a: 1, d: -4, b: -1}, 0, 0)
    s.require({v: 4, a: 1}, 8, 9)
    assert s.is_empty() is False
    s.require({v: 1, d: -1}, 1, math.inf)
    assert s.is_empty() is True


def test_common_divisors_decide_without_bounds() -> None:
    s = System()
    i, j = s.variable(-(10**9), 10**9), s.variable(-(10**9), 10**9)
    s.require({i: 6, j: -4}, 3, 3)
    assert s.is_empty() is True


def test_beyond_the_budget_nothing_is_claimed() -> None:
    s = System()
    numbers = [s.variable(0, 10**6) for _ in range(6)]
    s.require(dict(zip(numbers, (12, 20, 30, 42, 70, 105))), 10**6 + 1, 10**6 + 1)
    assert s.is_empty(budget=3) is None
