"""Loops bound to a GPU's axes."""

from __future__ import annotations

import metaschedule as ms


def test_every_nest_is_bound_and_sizes_are_drawn() -> None:
    program = ms.workloads.create("SFM", shape=(8, 24))
    space = ms.space.default("cuda:sm_80") - "CrossThreadReduction"
    (sketch,) = space.sketches(program)
    text = str(sketch)
    kernels = len(sketch.apply(program).program.body)
    assert (
        text.count("blockIdx.x") == text.count("threadIdx.x") == text.count("sample_categorical") == kernels
    )


def test_a_nest_without_independent_iterations_runs_on_one_thread() -> None:
    program = ms.parse(
        """
def f(A: T.Tensor((8,)), B: T.Output((8,))):
    with T.block("first"):
        B[0] = A[0]
    for i in range(7):
        with T.block("next"):
            v = T.spatial(7, i)
            B[v + 1] = B[v] + A[v + 1]
"""
    )
    sch = ms.space.default("cuda:sm_80").sample(program, 0)
    assert str(sch.program).count('T.bind(1, "blockIdx.x")') == 2
    ms.build(sch, target="cuda:sm_80")
