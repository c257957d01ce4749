"""What disappears into other stages, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.space import AutoInline, InlineConstants, Space
from tests.space.candidates import assert_candidate

Stage = Callable[[te.Tensor], Callable[..., object]]


def left(program: ms.Program, *modules: object) -> list[str]:
    """The blocks that remain."""
    (sketch,) = Space(modules).sketches(program)  # type: ignore[arg-type]
    sch = sketch.apply(program)
    assert_candidate(sch, program)
    return [b.name for b in ms.ir.blocks(sch.program)]


def chain(first: Stage, second: Stage) -> ms.Program:
    """Two stages; `first` and `second` take a tensor and give a function of indices."""
    x = te.placeholder((8, 12), name="x")
    a = te.compute((8, 12), first(x), name="a")  # type: ignore[arg-type]
    b = te.compute((8, 12), second(a), name="b")  # type: ignore[arg-type]
    return te.program([x], [b])


def plus_one(t: te.Tensor) -> Callable[..., object]:
    return lambda i, j: t[i, j] + 1.0


def exponential(t: te.Tensor) -> Callable[..., object]:
    return lambda i, j: te.exp(t[i, j])


def three_places(t: te.Tensor) -> Callable[..., object]:
    return lambda i, j: t[i, j] + t[(i + 1) % 8, j] + t[(i + 2) % 8, j]


def flipped(t: te.Tensor) -> Callable[..., object]:
    return lambda i, j: t[(j + i) % 8, (i * 5 + j * 7) % 12]


@pytest.mark.parametrize(
    ("first", "second", "blocks"),
    [
        (plus_one, plus_one, ["b"]),
        (exponential, plus_one, ["b"]),  # computed once either way
        (plus_one, three_places, ["a", "b"]),
        (flipped, plus_one, ["a", "b"]),
    ],
)
def test_into_consumers(first: Stage, second: Stage, blocks: list[str]) -> None:
    assert left(chain(first, second), AutoInline()) == blocks


def test_expensive_stages_stay_where_they_would_be_repeated() -> None:
    assert left(ms.workloads.create("SFM", shape=(4, 8)), AutoInline()) == ["max", "exp", "sum", "softmax"]
    x = te.placeholder((4,), name="x")
    y = te.placeholder((4, 8), name="y")
    root = te.compute((4,), lambda i: te.sqrt(x[i]), name="root")
    scaled = te.compute((4, 8), lambda i, j: y[i, j] * root[i], name="scaled")
    assert left(te.program([x, y], [scaled]), AutoInline()) == ["root", "scaled"]


def test_padding_stays_out_of_reductions() -> None:
    small = ms.workloads.create("C1D", n=1, l=9, ci=2, co=3, k=3, s=1, p=1)
    assert left(small, AutoInline()) == ["pad", "conv"]


def test_into_a_producer() -> None:
    program = chain(three_places, plus_one)
    assert left(program, AutoInline(into_consumer=False)) == ["a", "b"]
    assert left(program, AutoInline(into_consumer=False, into_producer=True)) == ["a"]


def test_constants() -> None:
    x = te.placeholder((5, 6), name="x")
    ramp = te.compute((6,), lambda j: te.cast(j, "float32") * 0.5, name="ramp")
    out = te.compute((5, 6), lambda i, j: x[i, j] + ramp[j], name="out")
    program = te.program([x], [out])
    assert left(program) == ["ramp", "out"]
    assert left(program, InlineConstants()) == ["out"]
