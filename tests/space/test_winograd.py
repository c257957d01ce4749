"""Convolutions by minimal filtering: where it is tried, and that candidates compute what is meant."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.errors import ScheduleError
from metaschedule.ir.annotations import CLAIMED
from metaschedule.space import default
from tests.space.candidates import assert_candidate

TARGET = "x86-64-v3,cores=2"
CONV: dict[str, Any] = {"h": 13, "w": 17, "ci": 3, "co": 16}


def filtered(program: ms.Program) -> list[ms.Trace]:
    return [sketch for sketch in default(TARGET).sketches(program) if "sch.winograd(" in str(sketch)]


def tiles(program: ms.Program) -> set[int]:
    steps = [i.primitive for sketch in filtered(program) for i in sketch.instructions]
    return {step.tile for step in steps if step.op == "winograd"}  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("name", "config"), [
    ("C2D", CONV), ("CBR", CONV), ("DIL", CONV | {"h": 31, "w": 29}),
    ("C2D", CONV | {"k": 3, "s": 1, "ci": 7}),
    ("C3D", CONV | {"d": 5, "h": 7, "w": 9}), ("C2D", CONV | {"co": 24, "w": 10}), ("C2D", CONV | {"n": 2}),
])  # fmt: skip
def test_candidates_are_right(name: str, config: dict[str, Any]) -> None:
    program = ms.workloads.create(name, **config)
    sketches = filtered(program)
    assert len(sketches) == 2  # tiles of rows, or of columns, change faster
    for seed, sketch in enumerate(sketches):
        assert_candidate(sketch.apply(program, rng=random.Random(seed)), program)


@given(st.data())
def test_random_candidates_are_right(data: st.DataObject) -> None:
    sizes = {"h": (7, 14), "w": (7, 19), "ci": (6, 9), "co": (16, 20), "k": (3, 5), "s": (1, 2)}
    config = {name: data.draw(st.integers(*limits)) for name, limits in sizes.items()}
    program = ms.workloads.create("C2D", **config)
    sketches = filtered(program)
    if not sketches:
        return
    try:
        sch = data.draw(st.sampled_from(sketches)).apply(
            program, rng=random.Random(data.draw(st.integers(0, 99)))
        )
    except ScheduleError:
        return
    assert_candidate(sch, program)


@pytest.mark.parametrize("config", [
    {"h": 7, "w": 9, "ci": 1, "co": 16, "k": 7, "s": 1},
    {"h": 1, "w": 1, "ci": 9, "co": 16, "k": 3, "s": 1, "p": 1},
    {"h": 30, "w": 2, "ci": 1, "co": 16, "k": 7, "s": 1},
])  # fmt: skip
def test_candidates_of_one_channel_or_pixel(config: dict[str, Any]) -> None:
    program = ms.workloads.create("C2D", **config)
    for sketch in filtered(program):
        assert_candidate(sketch.apply(program), program)


def test_a_stage_that_follows_takes_the_results_in() -> None:
    program = ms.workloads.create("CBR", **CONV)
    for sketch in filtered(program):
        names = [block.name for block in ms.ir.blocks(sketch.apply(program).program)]
        assert "conv" not in names
        assert names[-1] == "relu"


def test_nothing_is_left_to_others() -> None:
    program = ms.workloads.create("C2D", **CONV)
    for sketch in filtered(program):
        assert all(CLAIMED.is_on(block) for block in ms.ir.blocks(sketch.apply(program).program))


def test_tiles_have_the_fewest_products() -> None:
    assert tiles(ms.workloads.create("C2D", **CONV | {"w": 224})) == {5}  # 4 taps in a phase: 8 points
    of_three = CONV | {"w": 8, "k": 3, "s": 1, "p": 1, "ci": 7}
    assert tiles(ms.workloads.create("C2D", **of_three)) == {4}  # 6 + 6 products


@pytest.mark.parametrize(("name", "config"), [
    ("GMM", {}), ("C1D", {}), ("GRP", {}), ("DEP", {}), ("T2D", {}),
    ("C2D", CONV | {"co": 8}), ("C2D", CONV | {"k": 1, "p": 0}), ("C2D", CONV | {"k": 3, "s": 1, "ci": 2}),
])  # fmt: skip
def test_not_where_it_cannot_pay(name: str, config: dict[str, Any]) -> None:
    """No taps, too few multiplications saved, columns or terms that share a transform; mostly zeros."""
    assert filtered(ms.workloads.create(name, **config)) == []


def test_not_of_integers() -> None:
    a, w = te.placeholder((40, 16), "int32", name="A"), te.placeholder((5, 16, 16), "int32", name="W")
    k, c = te.reduce_axis(5, name="k"), te.reduce_axis(16, name="c")
    y = te.compute((36, 16), lambda i, o: te.sum(a[i + k, c] * w[k, c, o], axis=[k, c]), name="Y")
    assert filtered(te.program([a, w], [y])) == []
