"""is_one_to_one where conditions leave points out: splits that do not divide, fused loops."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from metaschedule.affine.injective import is_one_to_one
from metaschedule.ir import Expr, Var
from tests.affine.nests import compiled

i, j, k, f = Var("i"), Var("j"), Var("k"), Var("f")
CASES: dict[str, tuple[list[Expr], dict[Var, int], list[Expr]]] = {
    "split of a fused loop": ([(i * 6 + j) // 4, (i * 6 + j) % 4], {i: 8, j: 6}, [i * 6 + j < 24]),
    "split": ([i * 4 + j], {i: 3, j: 4}, [i * 4 + j < 10]),
    "inner split": ([i * 6 + j * 4 + k], {i: 5, j: 2, k: 4}, [j * 4 + k < 6]),
    "both": ([i * 6 + j * 4 + k], {i: 5, j: 2, k: 4}, [i * 6 + j * 4 + k < 20, j * 4 + k < 6]),
    "fused": ([(f // 4) * 3 + f % 4], {f: 16}, [f % 4 < 3]),
    "conjunction": ([i * 3 + j], {i: 3, j: 4}, [(i * 4 + j < 10) & (j < 3)]),
    "not a sum": ([i * 4 + j], {i: 4, j: 4}, [i != j]),
    "digits that do not divide": ([f // 4, f % 4], {f: 10}, []),
    "overlapping tiles": ([i * 6 + j * 4 + k], {i: 5, j: 2, k: 4}, [j * 4 + k < 7]),
    "no condition": ([(f // 4) * 3 + f % 4], {f: 16}, []),
    "digits of a large number": ([f // 448, f // 2 % 224, f % 2], {f: 103040}, []),
    "large digits that do not reach": ([f // 448, f // 2 % 223, f % 2], {f: 10304}, []),
    "digits, and a part of them": ([f // 669, f // 3 % 223, f % 3, i], {f: 4000, i: 2}, [f < 3900]),
    "a remainder alone": ([f % 4], {f: 16}, [f < 5]),
    "all of a remainder": ([f % 4], {f: 16}, [f < 4]),
}


def are_distinct(indices: Sequence[Expr], extents: Mapping[Var, int], guards: Sequence[Expr]) -> bool:
    names = {v: f"p[{n}]" for n, v in enumerate(extents)}
    of, tests = [compiled(e, names) for e in indices], [compiled(e, names) for e in guards]
    points = [p for p in itertools.product(*map(range, extents.values())) if all(test(p) for test in tests)]
    return len({tuple([e(p) for e in of]) for p in points}) == len(points)


@pytest.mark.parametrize("name", CASES)
def test_under_conditions(name: str) -> None:
    indices, extents, guards = CASES[name]
    assert is_one_to_one(indices, extents, guards) is are_distinct(indices, extents, guards)
