"""What is prepared once: work on constants, and nothing that does without them."""

from __future__ import annotations

import numpy as np

import metaschedule as ms
from metaschedule.codegen import split_constants

MASKED = """
def masked(X: T.Tensor((4,), "float32"), W: T.Tensor((4,), "float32", constant=True),
           Y: T.Output((4,), "float32")):
    zero = T.alloc((), "float32")
    one = T.alloc((4,), "float32")
    V = T.alloc((4,), "float32")
    with T.block("fill"):
        zero[()] = 0.0
    for i in range(4):
        with T.block("ones"):
            j = T.spatial(4, i)
            one[j] = 1.0
    for i in range(4):
        with T.block("reverse"):
            j = T.spatial(4, i)
            V[j] = W[3 - j] + one[j]
    for i in range(4):
        with T.block("mask"):
            j = T.spatial(4, i)
            Y[j] = T.select(X[j] > zero[()], V[j], zero[()])
"""


def test_a_fill_stays_where_it_is_read_unless_a_constant_needs_it() -> None:
    preparation, kernel = split_constants(ms.parse(MASKED))
    assert preparation is not None
    assert [b.name for b in preparation.inputs] == ["W"]
    assert [b.name for b in preparation.outputs] == ["V"]
    assert [b.name for b in kernel.inputs] == ["X", "V"]
    assert [b.name for b in kernel.allocs] == ["zero"]


def test_a_program_whose_fills_alone_are_known_is_not_divided() -> None:
    program = ms.parse(MASKED.replace("W[3 - j]", "X[3 - j]"))
    assert split_constants(program) == (None, program)


def test_the_parts_compute_what_the_whole_does() -> None:
    x, w = np.array([1, -1, 2, -2], "float32"), np.array([1, 2, 3, 4], "float32")
    kernel = ms.build(ms.parse(MASKED), constants={"W": w})
    np.testing.assert_array_equal(kernel(x), [5, 0, 3, 0])
