"""Small linear transforms of tiles: both halves and the padding before them in registers."""

from __future__ import annotations

import re

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Expr, For, walk
from metaschedule.ir.annotations import CLAIMED
from metaschedule.space import Space
from metaschedule.space.transforms import UnrollTransforms
from tests.space.candidates import assert_candidate


def sums(x: te.Tensor, name: str) -> te.Tensor:
    """Sum and difference of the first dimension, which becomes the second."""
    _, other, *rest = x.shape

    def element(j: Expr, u: Expr, t: Expr, c: Expr) -> Expr:
        return te.select(u == 0, x[0, j, t, c] + x[1, j, t, c], x[0, j, t, c] - x[1, j, t, c])

    return te.compute((other, 2, *rest), element, name=name)


def transform(height: int, width: int, channels: int) -> ms.Program:
    """Of tiles of 2 x 2, in an image that zeros complete; channels mixed; and back."""
    x = te.placeholder((height, width, channels), name="x")
    tiles = (height + 1) // 2, (width + 1) // 2

    def window(i: Expr, j: Expr, t: Expr, c: Expr) -> Expr:
        h, w = t // tiles[1] * 2 + i, t % tiles[1] * 2 + j
        return te.select(te.all_of([h < height, w < width]), x[h, w, c], 0)

    windows = te.compute((2, 2, tiles[0] * tiles[1], channels), window, name="window")
    there = sums(sums(windows, "rows"), "there")
    r = te.reduce_axis(channels, name="r")
    mixed = te.compute(
        there.shape,
        lambda u, v, t, c: te.sum(there[u, v, t, r] * te.cast(r + 2 * c, "float32"), axis=r),
        name="mixed",
    )
    back = sums(mixed, "back")

    def result(h: Expr, w: Expr, c: Expr) -> Expr:
        a, b = (back[v, h % 2, h // 2 * tiles[1] + w // 2, c] for v in range(2))
        return te.select(w % 2 == 0, a + b, a - b)

    return te.program([x], [te.compute((height, width, channels), result, name="result")])


@pytest.mark.parametrize(("height", "width", "channels"), [(8, 6, 16), (7, 5, 13), (1, 1, 3)])
def test_choices_are_made_when_code_is_generated(height: int, width: int, channels: int) -> None:
    program = transform(height, width, channels)
    (sketch,) = Space([UnrollTransforms()], target="x86-64-v3,cores=2").sketches(program)
    sch = sketch.apply(program)
    assert_candidate(sch, program)
    blocks = {b.name: b for b in ms.ir.blocks(sch.program)}
    assert [name for name, b in blocks.items() if not CLAIMED.is_on(b)] == ["mixed"]
    loops = [s for s in walk(sch.program) if isinstance(s, For) and s.kind == "parallel"]
    assert len(loops) == (2 if height > 1 else 0)
    if channels % 8 == 0:
        assert not re.search(r"select .*float|fmul .*float 0?1?\.0", ms.build(sch).source("llvm"))


def test_other_choices_are_left_alone() -> None:
    x = te.placeholder((4, 8), name="x")
    y = te.compute((4, 8), lambda i, j: te.select(i == 0, x[i, j], x[i, j] * 2.0), name="y")
    program = te.program([x], [y])
    (sketch,) = Space([UnrollTransforms()]).sketches(program)
    assert not sketch.instructions
