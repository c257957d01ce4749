"""A hardware module: the innermost tile is an intrinsic."""

from __future__ import annotations

import random

import pytest

import metaschedule as ms
from metaschedule.schedule import register_intrinsic
from metaschedule.space import MultiLevelTilingWithIntrinsic, default
from tests.space.candidates import assert_candidate

HEAD = """
def outer(A: T.Tensor((4,), "float32"), B: T.Tensor((8,), "float32"), C: T.Output((4, 8), "float32")):
"""


@pytest.fixture(scope="module", autouse=True)
def outer_product() -> None:
    rows = "    for i in range(4):\n        for j in {}(8):\n            C[i, j] = C[i, j] + A[i] * B[j]"
    register_intrinsic(
        "test.outer_4x8",
        description=ms.parse(HEAD + rows.format("range")),
        implementation=ms.parse(HEAD + rows.format("T.vectorized")),
    )


def test_tiles_of_the_intrinsic() -> None:
    program = ms.workloads.create("GMM", b=1, n=12, m=16, k=5)
    space = default() + MultiLevelTilingWithIntrinsic(intrinsic="test.outer_4x8")
    without = default().sketches(program)
    sketches = space.sketches(program)
    tensorized = [s for s in sketches if any(i.primitive.op == "tensorize" for i in s.instructions)]
    assert len(tensorized) == 3  # no copy of the result, or at either level
    assert len(sketches) == len(without) + 3
    for n, sketch in enumerate(tensorized):
        sch = sketch.apply(program, rng=random.Random(n))
        assert "test.outer_4x8" in str(sch.trace)
        assert_candidate(sch, program)


def test_extents_that_do_not_divide_are_refused() -> None:
    program = ms.workloads.create("GMM", b=1, n=13, m=16, k=5)
    space = default() + MultiLevelTilingWithIntrinsic(intrinsic="test.outer_4x8")
    sketches, refused = space.explore(program)
    assert len(sketches) == len(default().sketches(program))
    reasons = [why for (who, why) in refused if who == "MultiLevelTilingWithIntrinsic"]
    assert reasons == ["test.outer_4x8 takes 4 iterations at a time, and the loop has 13"]
