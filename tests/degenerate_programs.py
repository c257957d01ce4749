"""Random programs whose extents are none, one, two, a prime, or one off the length of a vector.

Stages read those before them: element-wise, transposed, padded, gathered, summed or the largest of along an
axis, along all, from nothing. Inputs are small integers, and results stay small, so that every order of
summation gives the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metaschedule import te
from metaschedule.ir import Program
from tests.schedule.checks import inputs_of

EXTENTS = (0, 0, 1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17)
MOST_ELEMENTS = 600  # of a tensor: what the interpreter is soon done with
STAGES = ("scale", "add", "reverse", "transpose", "pad", "gather", "sum", "max", "total", "outer", "count")


@dataclass
class Drawn:
    """A program in the making."""

    draw: Any
    inputs: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    indices: dict[str, int] = field(default_factory=dict)  # input -> what its values are below

    def placeholder(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        made = te.placeholder(shape, dtype, name=f"x{len(self.inputs)}")
        self.inputs.append(made)
        return made

    def stage(self, kind: str) -> None:
        x = self.draw(st.sampled_from(self.tensors)) if self.tensors else None
        made = None if x is None and kind != "count" else getattr(self, kind)(x)
        if made is not None and size_of(made.shape) <= MOST_ELEMENTS:
            self.tensors.append(made)

    def compute(self, shape: tuple[int, ...], body: Any) -> Any:
        return te.compute(shape, body, name=f"t{len(self.tensors)}")

    def scale(self, x: Any) -> Any:
        return self.compute(x.shape, lambda *i: te.minimum(x[i] * 2.0, 8.0) + 1.0)

    def add(self, x: Any) -> Any:
        other = next((t for t in self.tensors if t.shape == x.shape and t is not x), x)
        return self.compute(x.shape, lambda *i: te.maximum(te.minimum(x[i] - other[i], 8.0), -8.0))

    def reverse(self, x: Any) -> Any:
        if not x.shape:
            return None
        return self.compute(x.shape, lambda *i: x[(*i[:-1], x.shape[-1] - 1 - i[-1])])

    def transpose(self, x: Any) -> Any:
        return self.compute(x.shape[::-1], lambda *i: x[i[::-1]])

    def pad(self, x: Any) -> Any:
        if not x.shape:
            return None
        *rest, n = x.shape
        return self.compute(
            (*rest, n + 2),
            lambda *i: te.select((i[-1] >= 1) & (i[-1] < n + 1), x[(*i[:-1], i[-1] - 1)], 0.0),
        )

    def gather(self, x: Any) -> Any:
        if not x.shape:
            return None
        *rest, n = x.shape
        count = self.draw(st.sampled_from(EXTENTS)) if n else 0
        where = self.placeholder((count,), "int32")
        self.indices[where.name] = n
        return self.compute((*rest, count), lambda *i: x[(*i[:-1], where[i[-1]])])

    def sum(self, x: Any) -> Any:
        return self.reduce(x, te.sum)

    def max(self, x: Any) -> Any:
        return self.reduce(x, te.max)

    def reduce(self, x: Any, combine: Any) -> Any:
        if not x.shape:
            return None
        k = te.reduce_axis(x.shape[-1], name="k")
        return self.compute(x.shape[:-1], lambda *i: combine(x[(*i, k)], axis=k))

    def total(self, x: Any) -> Any:
        axes = [te.reduce_axis(n, name=f"k{at}") for at, n in enumerate(x.shape)]
        return self.compute((), lambda: te.sum(x[tuple(axes)], axis=axes)) if axes else None

    def outer(self, x: Any) -> Any:
        n = self.draw(st.sampled_from(EXTENTS))
        return self.compute((n, *x.shape), lambda *i: x[i[1:]] + te.cast(i[0] % 4, "float32"))

    def count(self, x: Any) -> Any:
        shape = tuple(self.draw(st.lists(st.sampled_from(EXTENTS), max_size=2)))
        return self.compute(shape, lambda *i: te.cast(sum(i) % 4, "float32") if i else te.cast(3, "float32"))


def size_of(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


@dataclass(frozen=True)
class Example:
    program: Program
    below: dict[str, int]

    def inputs(self) -> list[np.ndarray]:
        found = inputs_of(self.program)
        for at, buffer in enumerate(self.program.inputs):
            if limit := self.below.get(buffer.name, 0):
                found[at] %= limit
        return found


@st.composite
def degenerate_programs(draw: st.DrawFn) -> Example:
    made = Drawn(draw)
    for _ in range(draw(st.integers(0, 2))):
        shape = tuple(draw(st.lists(st.sampled_from(EXTENTS), max_size=3)))
        if size_of(shape) <= MOST_ELEMENTS:
            made.tensors.append(made.placeholder(shape))
    given = len(made.tensors)
    for kind in draw(st.lists(st.sampled_from(STAGES), min_size=1, max_size=4)):
        made.stage(kind)
    stages = made.tensors[given:] or [made.count(None)]
    outputs = [stages[-1], *(t for t in stages[:-1] if draw(st.integers(0, 3)) == 0)]
    return Example(te.program(made.inputs, outputs), made.indices)
