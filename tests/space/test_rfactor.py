"""AddRFactor: which forks a reduction gets, and that every candidate computes what the program does."""

from __future__ import annotations

import random

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import For, Program, blocks, walk
from metaschedule.schedule import Schedule
from metaschedule.space import Space
from metaschedule.space.block_predicates import is_claimed
from metaschedule.space.rfactor import AddRFactor
from tests.schedule.checks import check
from tests.workloads.references import REFERENCES

TARGET = "x86-64-v3,cores=2"
SPACE = Space([AddRFactor()], target=TARGET)


def row_sums(rows: int, columns: int, combine=te.sum) -> Program:
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis(columns, name="k")
    return te.program([x], [te.compute((rows,), lambda i: combine(x[i, k], axis=k), name="Y")])


def column_sums(rows: int, columns: int) -> Program:
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis(rows, name="k")
    return te.program([x], [te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="Y")])


def matrix_times_vector(rows: int, columns: int) -> Program:
    w, x = te.placeholder((rows, columns), name="W"), te.placeholder((columns,), name="X")
    k = te.reduce_axis(columns, name="k")
    return te.program([w, x], [te.compute((rows,), lambda i: te.sum(w[i, k] * x[k], axis=k), name="Y")])


def channels_last_sums(groups: int, channels: int) -> Program:
    """Sums over two dimensions that are not next to each other in memory."""
    x = te.placeholder((5, groups, channels), name="X")
    r, c = te.reduce_axis(5, name="r"), te.reduce_axis(channels, name="c")
    return te.program([x], [te.compute((groups,), lambda g: te.sum(x[r, g, c], axis=[r, c]), name="Y")])


def pool(size: int, channels: int) -> Program:
    x = te.placeholder((size, channels), name="X")
    r = te.reduce_axis(3, name="r")
    shape = ((size - 3) // 2 + 1, channels)
    return te.program([x], [te.compute(shape, lambda i, c: te.max(x[i * 2 + r, c], axis=r), name="Y")])


def forks(program: Program) -> list[set[str]]:
    """The blocks of each sketch."""
    return [{b.name for b in blocks(trace.apply(program).program)} for trace in SPACE.sketches(program)]


def kinds(sch: Schedule, name: str) -> list[str]:
    return [sch.state.nodes[loop].kind for loop in sch.state.loops_around(name)]


def test_forks_of_few_results_with_many_terms() -> None:
    original, chunks, lanes, both = forks(ms.workloads.create("NRM", 0))
    assert original == {"squares", "norm"}
    assert chunks == {*original, "squares_init", "squares_rf", "squares_rf_init"} == lanes
    assert both == {*lanes, "squares_rf_rf", "squares_rf_rf_init"}


def test_loops_of_chunks_and_lanes() -> None:
    program = ms.workloads.create("NRM", 0)
    _, chunks, lanes, both = [trace.apply(program) for trace in SPACE.sketches(program)]
    assert kinds(chunks, "squares_rf") == ["parallel", "serial"]
    assert kinds(lanes, "squares_rf") == ["parallel", "serial", "vectorized"]
    assert kinds(lanes, "squares")[-1] == "vectorized"
    assert kinds(both, "squares_rf_rf") == ["parallel", "serial", "vectorized"]
    assert kinds(both, "squares_rf") == ["serial", "serial", "vectorized"]


def test_many_results_are_chunks_enough() -> None:
    assert len(forks(row_sums(33, 64))) == 3  # more than 16 for each of 2 cores: no chunks of lanes
    assert len(forks(row_sums(32, 64))) == 4


def test_lanes_are_results_where_operands_are_contiguous_along_them() -> None:
    program = column_sums(300, 24)
    _, lanes, chunks = [trace.apply(program) for trace in SPACE.sketches(program)]
    assert kinds(lanes, "Y") == ["parallel", "serial", "vectorized"]
    assert kinds(chunks, "Y_rf") == ["parallel", "serial", "serial", "vectorized"]
    assert len(forks(pool(31, 40))) == 2


def test_matrix_products_are_left_to_tiling_unless_results_are_few() -> None:
    assert len(forks(ms.workloads.create("GMM", b=1, n=16, m=16, k=64))) == 1
    program = ms.workloads.create("GMM", b=1, n=2, m=8, k=64)
    _, chunks = [trace.apply(program) for trace in SPACE.sketches(program)]
    assert not is_claimed(chunks.state.nodes["matmul_rf"])
    assert is_claimed(chunks.state.nodes["matmul"])


def test_matrix_times_vector_reads_the_matrix_once() -> None:
    assert len(forks(matrix_times_vector(300, 64))) == 3


def test_a_reduction_of_unknown_operation_stays() -> None:
    source = """
@ms.program
def alternating(X: T.Tensor((4, 64), "float32"), Y: T.Output((4,), "float32")):
    for i, k in T.grid(4, 64):
        with T.block("Y"):
            v_i = T.spatial(4, i)
            v_k = T.reduce(64, k)
            with T.init():
                Y[v_i] = 0.0
            Y[v_i] = X[v_i, v_k] - Y[v_i]
"""
    assert len(SPACE.sketches(ms.parse(source))) == 1


@pytest.mark.parametrize(
    "program",
    [
        *[row_sums(3, n) for n in (1, 5, 8, 13, 64, 77, 251)],
        row_sums(1, 251, te.max),
        row_sums(5, 77, te.argmax),
        row_sums(40, 31, te.prod),
        column_sums(50, 13),
        column_sums(7, 100),
        matrix_times_vector(6, 77),
        channels_last_sums(3, 16),
        channels_last_sums(3, 5),
        pool(13, 11),
        ms.workloads.create("GMM", b=1, n=3, m=8, k=37),
    ],
    ids=lambda p: f"{p.name}{[b.shape for b in p.inputs]}",
)
def test_candidates_compute_what_the_program_does(program: Program) -> None:
    for trace in SPACE.sketches(program):
        for seed in range(3):
            check(trace.apply(program, rng=random.Random(seed)), program)


@pytest.mark.parametrize("config", range(4))
def test_candidates_of_norms(config: int) -> None:
    program, config_ = ms.workloads.create("NRM", config), ms.workloads.configurations("NRM")[config]
    x = np.random.default_rng(0).integers(-1, 2, program.inputs[0].shape).astype("float32")
    for trace in SPACE.sketches(program):
        sch = trace.apply(program, rng=random.Random(config))
        np.testing.assert_allclose(ms.build(sch)(x), REFERENCES["NRM"](config_, x), rtol=1e-5)


def test_structure_does_not_depend_on_decisions() -> None:
    program = row_sums(3, 77)
    for trace in SPACE.sketches(program):
        shapes = set()
        for seed in range(8):
            program_ = trace.apply(program, rng=random.Random(seed)).program
            shapes.add(tuple(s.kind if isinstance(s, For) else type(s).__name__ for s in walk(program_)))
        assert len(shapes) == 1
