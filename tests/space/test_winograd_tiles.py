"""Convolutions by minimal filtering along two dimensions: where it is tried, in both layouts, and that
candidates compute what is meant."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import split_constants
from metaschedule.ir import Expr, Program, blocks
from metaschedule.space import default
from tests.space.candidates import assert_candidate

TARGET = "x86-64-v3,cores=2"


def convolution(
    h: int, w: int, ci: int = 16, co: int = 16, n: int = 1, k: tuple[int, int] = (3, 3), p: int = 1,
    layout: str = "NHWC", after: bool = False, constant: bool = False,
) -> Program:  # fmt: skip
    """A padded convolution, and what may come after it: with bias, cut off at 0."""
    first = layout == "NCHW"

    def order(n: Any, y: Any, x: Any, c: Any) -> tuple[Any, ...]:
        return (n, c, y, x) if first else (n, y, x, c)

    def parts(i: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (i[0], i[2], i[3], i[1]) if first else i

    x = te.placeholder(order(n, h, w, ci), name="x")
    weight = te.placeholder((co, ci, *k) if first else (*k, ci, co), name="w", constant=constant)
    bias = te.placeholder((co,), name="bias")

    def padded(*i: Expr) -> Expr:
        b, y, z, c = parts(i)
        inside = te.all_of([y >= p, y < h + p, z >= p, z < w + p])
        return te.select(inside, x[order(b, y - p, z - p, c)], 0.0)

    source = te.compute(order(n, h + 2 * p, w + 2 * p, ci), padded, name="pad") if p else x
    rh, rw, rc = (te.reduce_axis(size, name=name) for size, name in zip((*k, ci), ("rh", "rw", "rc")))

    def element(*i: Expr) -> Expr:
        b, y, z, c = parts(i)
        factor = weight[c, rc, rh, rw] if first else weight[rh, rw, rc, c]
        return te.sum(source[order(b, y + rh, z + rw, rc)] * factor, axis=[rh, rw, rc])

    shape = order(n, h + 2 * p + 1 - k[0], w + 2 * p + 1 - k[1], co)
    conv = te.compute(shape, element, name="conv")
    if not after:
        return te.program([x, weight], [conv], "conv")
    added = te.compute(shape, lambda *i: conv[i] + bias[parts(i)[3]], name="add")
    out = te.compute(shape, lambda *i: te.select(added[i] > 0.0, added[i], 0.0), name="relu")
    return te.program([x, weight, bias], [out], "conv_relu")


def in_tiles(program: Program) -> list[ms.Trace]:
    def filters(sketch: ms.Trace) -> int:
        return [i.primitive.op for i in sketch.instructions].count("winograd")

    return [sketch for sketch in default(TARGET).sketches(program) if filters(sketch) == 2]


def sizes(program: Program) -> set[int]:
    steps = [i.primitive for sketch in in_tiles(program)[:1] for i in sketch.instructions]
    return {step.tile for step in steps if step.op == "winograd"}  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("config", [
    {"h": 8, "w": 8}, {"h": 13, "w": 9}, {"h": 7, "w": 6, "n": 2, "ci": 17, "co": 19},
    {"h": 10, "w": 9, "p": 0}, {"h": 9, "w": 8, "k": (3, 5), "p": 2}, {"h": 13, "w": 17, "after": True},
    {"h": 8, "w": 8, "constant": True, "after": True},
])  # fmt: skip
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_candidates_are_right(layout: str, config: dict[str, Any]) -> None:
    program = convolution(**config, layout=layout)
    sketches = in_tiles(program)
    assert len(sketches) >= 4
    constants = ("w",) if config.get("constant") else ()
    for seed, sketch in enumerate(sketches[:4]):
        assert_candidate(sketch.apply(program, rng=random.Random(seed)), program, constants)


def test_few_results_have_small_tiles() -> None:
    cases = {(1, 4, 4): 2, (1, 7, 7): 2, (8, 7, 7): 4, (1, 14, 14): 4, (1, 56, 56): 4}
    found = {(n, h, w): sizes(convolution(h, w, n=n)) for n, h, w in cases}
    assert found == {case: {size} for case, size in cases.items()}


def test_constant_weights_are_transformed_when_a_kernel_is_built() -> None:
    program = convolution(8, 8, constant=True, after=True)
    for sketch in in_tiles(program):
        preparation, kernel = split_constants(sketch.apply(program).program)
        assert preparation is not None
        assert {"w_points", "w_points_points"} <= {b.name for b in blocks(preparation)}
        assert not {"w_points", "w_points_points"} & {b.name for b in blocks(kernel)}


def test_what_follows_takes_the_results_in() -> None:
    for sketch in in_tiles(program := convolution(8, 8, after=True)):
        names = [block.name for block in blocks(sketch.apply(program).program)]
        assert "conv" not in names
        assert names[-1] == "relu"


@pytest.mark.parametrize("program", [
    convolution(1, 1), convolution(8, 8, ci=8), convolution(8, 8, co=8), convolution(8, 8, k=(1, 3)),
    convolution(8, 8, k=(7, 7), p=3), ms.workloads.create("C2D", h=16, w=16, ci=16, co=16, k=3, s=2),
    ms.workloads.create("DEP", h=16, w=16, c=32),
    ms.workloads.create("GRP", h=16, w=16, ci=64, co=64, groups=4),
])  # fmt: skip
def test_not_where_it_cannot_pay(program: Program) -> None:
    """Too little to save or to share; a stride; channels that are not summed over, or in groups."""
    assert in_tiles(program) == []


def test_errors_are_a_small_share_of_the_largest_result() -> None:
    program = convolution(16, 16, ci=64, co=16)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.shape, "float32") for b in program.inputs)
    around = np.pad(x.astype("float64"), [(0, 0), (1, 1), (1, 1), (0, 0)])
    want = sum(
        around[:, i : i + 16, j : j + 16] @ w[i, j].astype("float64") for i in range(3) for j in range(3)
    )
    found = ms.build(in_tiles(program)[0].apply(program))(x, w)
    assert np.abs(found - want).max() < 3e-5 * np.abs(want).max()
