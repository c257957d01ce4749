"""Layout changes: shapes, proofs and inverses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_expressions import evaluate

from metaschedule.arith import IndexMap
from metaschedule.ir import Var, as_int


def is_bijective(m: IndexMap, shape: tuple[int, ...]) -> bool:
    return m.is_injective(shape) and math.prod(m.output_shape(shape)) == math.prod(shape)


def check(m: IndexMap, shape: tuple[int, ...]) -> None:
    """All that the map claims on a shape, by enumeration."""
    indices = list(itertools.product(*[range(n) for n in shape]))
    images = [tuple(evaluate(e, dict(zip(m.inputs, p))) for e in m.outputs) for p in indices]
    try:
        extents = m.output_shape(shape)
    except ValueError:
        extents = None
    if extents is not None:
        assert all(0 <= x < n for image in images for x, n in zip(image, extents))
    if m.is_injective(shape):
        assert len(set(images)) == len(images)
        inverse = m.inverse(shape)
        for p, image in zip(indices, images):
            back = [evaluate(e, dict(zip(inverse.inputs, image))) for e in inverse.outputs]
            assert back == list(p), f"{m} has inverse {inverse}?"
    if extents is not None and is_bijective(m, shape):
        assert set(images) == set(itertools.product(*[range(n) for n in extents]))


CASES: dict[str, tuple[Any, tuple[int, ...], str, tuple[int, ...], bool]] = {
    "transpose": (
        lambda i, j: (j, i), (3, 5), "(j0, j1) -> (j1, j0)", (5, 3), True),
    "pack": (
        lambda i, j: (j // 16, i, j % 16),
        (4, 64), "(j0, j1, j2) -> (j1, j0 * 16 + j2)", (4, 4, 16), True),
    "pack that does not divide": (
        lambda i, j: (j // 16, i, j % 16),
        (4, 50), "(j0, j1, j2) -> (j1, j0 * 16 + j2)", (4, 4, 16), False),
    "flatten": (
        lambda i, j: i * 8 + j, (4, 8), "(j0) -> (j0 // 8, j0 % 8)", (32,), True),
    "unflatten differently": (
        lambda i, j: ((i * 6 + j) // 8, (i * 6 + j) % 8),
        (4, 6), "(j0, j1) -> ((j0 * 8 + j1) // 6, (j0 * 8 + j1) % 6)", (3, 8), True),
    "blocked twice": (
        lambda i, j: (i // 4, j // 4, i % 4, j % 4),
        (8, 12),
        "(j0, j1, j2, j3) -> (j0 * 4 + j2, j1 * 4 + j3)", (2, 3, 4, 4), True),
    "reversed": (lambda i: 7 - i, (8,), "(j0) -> (7 - j0)", (8,), True),
    "skewed": (lambda i, j: (i, i + j), (3, 4), "(j0, j1) -> (j0, j1 - j0)", (3, 6), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_layouts(name: str) -> None:
    f, shape, inverse, extents, bijective = CASES[name]
    m = IndexMap.from_function(f, len(shape))
    assert str(m.inverse(shape)) == inverse
    assert m.output_shape(shape) == extents
    assert is_bijective(m, shape) == bijective
    check(m, shape)


def test_call_applies_to_constants_and_expressions() -> None:
    pack = IndexMap.from_function(lambda i, j: (j // 16, i, j % 16), 2)
    assert [as_int(e) for e in pack([2, 35])] == [2, 2, 3]
    k = Var("k")
    assert [str(e) for e in pack([k + 1, k * 16])] == ["k", "k + 1", "0"]


def test_names_come_from_the_function() -> None:
    assert str(IndexMap.from_function(lambda n, c: (c, n), 2)) == "(n, c) -> (c, n)"
    assert str(IndexMap.from_function(lambda *i: i, 2)) == "(i0, i1) -> (i0, i1)"


def test_refusals() -> None:
    lossy = IndexMap.from_function(lambda i, j: i + j, 2)
    assert not lossy.is_injective((4, 4))
    with pytest.raises(ValueError, match="may send two indices"):
        lossy.inverse((4, 4))
    with pytest.raises(ValueError, match="not affine"):
        IndexMap.from_function(lambda i, j: i * j, 2).inverse((4, 4))
    with pytest.raises(ValueError, match="may be negative"):
        IndexMap.from_function(lambda i: i - 3, 1).output_shape((8,))
    with pytest.raises(ValueError, match="takes 2 indices"):
        lossy.output_shape((4,))
    with pytest.raises(TypeError, match="must be integers"):
        IndexMap.from_function(lambda i: i < 3, 1)


pieces = st.sampled_from([1, 2, 3, 4, 6])


@st.composite
def index_maps(draw: st.DrawFn) -> tuple[IndexMap, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))

    def f(*indices):
        pool = list(indices)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(pool) - 1))
            if draw(st.booleans()) and len(pool) > 1:
                other = pool.pop()
                at = min(at, len(pool) - 1)
                pool[at] = pool[at] * draw(st.integers(1, 9)) + other
            else:
                d = draw(pieces)
                pool[at : at + 1] = [pool[at] // d, pool[at] % d]
        return draw(st.permutations(pool))

    return IndexMap.from_function(f, len(shape)), shape


@given(index_maps())
def test_random_maps_agree_with_enumeration(case) -> None:
    check(*case)
