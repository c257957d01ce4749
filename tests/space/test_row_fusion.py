"""FuseRows: which blocks come to share a loop over rows, and that every candidate computes what it should."""

from __future__ import annotations

import random

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import For, Program, blocks, walk
from metaschedule.schedule import Schedule
from metaschedule.space import AutoInline, Space
from metaschedule.space.rfactor import AddRFactor
from metaschedule.space.row_fusion import FuseRows
from tests.schedule.checks import check
from tests.workloads.references import REFERENCES

TARGET = "x86-64-v3,cores=2"
SPACE = Space([AutoInline(), FuseRows()], target=TARGET)


def softmax_and_log(rows: int, columns: int) -> Program:
    """Two results of one chain."""
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis(columns, name="k")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="max")
    powers = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - top[i]), name="exp")
    total = te.compute((rows,), lambda i: te.sum(powers[i, k], axis=k), name="sum")
    y = te.compute((rows, columns), lambda i, j: powers[i, j] / total[i], name="softmax")
    z = te.compute((rows, columns), lambda i, j: x[i, j] - top[i] - te.log(total[i]), name="log")
    return te.program([x], [y, z])


def layer_norm(*shape: int, statistics: bool = False) -> Program:
    *rows, n = shape
    x, g = te.placeholder(shape, name="X"), te.placeholder((n,), name="G")
    k = te.reduce_axis(n, name="k")
    mean = te.compute(rows, lambda *i: te.sum(x[*i, k] * (1 / n), axis=k), name="mean")
    centred = te.compute(shape, lambda *i: x[i] - mean[i[:-1]], name="centred")
    var = te.compute(rows, lambda *i: te.sum(centred[*i, k] * centred[*i, k], axis=k), name="var")
    scale = te.compute(rows, lambda *i: 1 / te.sqrt(var[i] * (1 / n) + 1e-5), name="scale")
    y = te.compute(shape, lambda *i: centred[i] * scale[i[:-1]] * g[i[-1]], name="Y")
    return te.program([x, g], [mean, scale, y] if statistics else [y])


def group_norm(n: int, groups: int, channels: int, size: int) -> Program:
    """Rows of two iterators, each of two dimensions of columns."""
    shape = (n, groups, channels, size)
    x, g = te.placeholder(shape, name="X"), te.placeholder((groups, channels), name="G")
    c, s = te.reduce_axis(channels, name="c"), te.reduce_axis(size, name="s")
    square = te.compute(shape, lambda *i: x[i] * x[i], name="square")
    total = te.compute(shape[:2], lambda a, b: te.sum(square[a, b, c, s], axis=[c, s]), name="total")
    y = te.compute(shape, lambda a, b, i, j: x[a, b, i, j] / (1 + total[a, b]) * g[b, i], name="Y")
    return te.program([x, g], [y])


def centred_columns(rows: int, columns: int) -> Program:
    """A chain that shares no leading iterator."""
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis(rows, name="k")
    total = te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="total")
    return te.program([x], [te.compute((rows, columns), lambda i, j: x[i, j] - total[j], name="Y")])


def scores_softmax(n: int) -> Program:
    """A matrix product with reuse before the chain."""
    q, k = te.placeholder((n, n), name="Q"), te.placeholder((n, n), name="K")
    r = te.reduce_axis(n, name="r")
    s = te.compute((n, n), lambda i, j: te.sum(q[i, r] * k[r, j], axis=r), name="scores")
    top = te.compute((n,), lambda i: te.max(s[i, r], axis=r), name="max")
    return te.program([q, k], [te.compute((n, n), lambda i, j: te.exp(s[i, j] - top[i]), name="Y")])


def fused(program: Program) -> Schedule:
    first, *_ = SPACE.sketches(program)
    return first.apply(program)


def nests(sch: Schedule) -> list[set[str]]:
    """The blocks of each outermost loop, without those that reductions are taken apart into."""
    names = [{b.name for b in blocks(nest)} for nest in sch.program.body]
    return [{n for n in nest if not n.endswith(("_rf", "_init"))} for nest in names]


def test_softmax_is_one_loop_over_rows() -> None:
    sch = fused(ms.workloads.create("SFM", 1))
    (rows,) = sch.program.body
    assert isinstance(rows, For)
    assert (rows.kind, rows.fixed_extent) == ("parallel", 12 * 128)
    for name in ("max_rf", "exp", "sum_rf", "softmax"):
        assert sch.state.nodes[sch.state.loops_around(name)[-1]].kind == "vectorized"


def test_other_modules_leave_the_loops_of_fused_rows() -> None:
    """The loop in which a reduction's vector is summed up is not made a vector for its initial value."""
    program = ms.workloads.create("SFM", 0)
    sch = ms.space.default("x86-64-v3,cores=2").sketches(program)[0].apply(program)
    for loop in walk(sch.program):
        if isinstance(loop, For) and loop.kind == "vectorized":
            assert len(list(blocks(loop))) == 1, loop.var.name


def test_the_unfused_program_stays_in_the_space() -> None:
    program = ms.workloads.create("SFM", 0)
    _, unfused = SPACE.sketches(program)
    assert ms.structural_equal(unfused.apply(program).program, program)


def test_one_row_has_no_parallel_loop() -> None:
    loops = [s for s in walk(fused(ms.workloads.create("SFM", 2)).program) if isinstance(s, For)]
    assert "parallel" not in {loop.kind for loop in loops}


def test_more_results_than_one() -> None:
    assert nests(fused(softmax_and_log(9, 40))) == [{"max", "exp", "sum", "softmax", "log"}]
    assert nests(fused(layer_norm(3, 4, 40, statistics=True))) == [{"mean", "var", "scale", "Y"}]


def test_what_has_reuse_stays_outside() -> None:
    assert nests(fused(scores_softmax(24))) == [{"scores"}, {"max", "Y"}]


@pytest.mark.parametrize(
    "program",
    [centred_columns(20, 30), ms.workloads.create("SFM", 4), ms.workloads.create("GMM", 0)],
    ids=lambda p: p.name,
)
def test_nothing_to_fuse(program: Program) -> None:
    assert len(SPACE.sketches(program)) == 1


@pytest.mark.parametrize(
    "program",
    [
        ms.workloads.create("SFM", shape=(3, 77)),
        ms.workloads.create("SFM", shape=(2, 3, 5)),
        ms.workloads.create("SFM", shape=(2, 64)),
        ms.workloads.create("NRM", b=3, m=7, n=11),
        softmax_and_log(3, 29),
        layer_norm(4, 37),
        layer_norm(2, 3, 16, statistics=True),
        group_norm(2, 3, 4, 7),
        centred_columns(6, 9),
        scores_softmax(11),
    ],
    ids=lambda p: f"{p.name}{[b.shape for b in p.inputs]}",
)
def test_candidates_compute_what_the_program_does(program: Program) -> None:
    for trace in SPACE.sketches(program):
        for seed in range(3):
            check(trace.apply(program, rng=random.Random(seed)), program)


@pytest.mark.parametrize("config", range(5))
def test_candidates_of_softmax(config: int) -> None:
    program = ms.workloads.create("SFM", config)
    x = np.random.default_rng(0).standard_normal(program.inputs[0].shape, "float32")
    wanted = REFERENCES["SFM"](ms.workloads.configurations("SFM")[config], x)
    for trace in Space([AutoInline(), FuseRows(), AddRFactor()], target=TARGET).sketches(program):
        sch = trace.apply(program, rng=random.Random(config))
        np.testing.assert_allclose(ms.build(sch)(x), wanted, rtol=1e-5, atol=1e-7, err_msg=str(sch.trace))
