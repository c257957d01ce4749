"""compute_at, reverse_compute_at."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.cases.programs import CASES
from tests.schedule.checks import assert_same_results, check
from tests.te.random_expressions import RandomExpression, random_expressions


def loops_of(sch: Schedule, name: str) -> list[Any]:
    return sch.get_loops(sch.get_block(name))


def body_of(sch: Schedule) -> str:
    """The printed program from its first loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    for")) :])


# --- programs -------------------------------------------------------------------------------------


def stencil() -> Program:
    a = te.placeholder((13,), name="A")
    b = te.compute((13,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((11,), lambda i: b[i] + b[i + 2], name="C")
    return te.program([a], [c], name="stencil")


def plane() -> Program:
    """Stages that read neighbours in two dimensions, one of them read by two others."""
    a = te.placeholder((9, 8), "int32", name="A")
    b = te.compute((7, 8), lambda i, j: a[i, j] + a[i + 1, j] + a[i + 2, j], name="B")
    c = te.compute((7, 6), lambda i, j: b[i, j] + b[i, j + 1] * 2 + b[i, j + 2], name="C")
    d = te.compute((5, 5), lambda i, j: c[i + 2, j] - b[i + 1, j], name="D")
    return te.program([a], [d], name="plane")


def epilogue() -> Program:
    a, k = te.placeholder((5, 6), name="A"), te.reduce_axis(6, name="k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((5,), lambda i: te.maximum(b[i], 0.0), name="C")
    return te.program([a], [c], name="epilogue")


def dense_relu(n: int = 5, m: int = 7, k: int = 6) -> Program:
    x, y = te.placeholder((n, k), name="X"), te.placeholder((k, m), name="Y")
    r = te.reduce_axis(k, name="k")
    c = te.compute((n, m), lambda i, j: te.sum(x[i, r] * y[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.program([x, y], [d], name="dense_relu")


def diamond(n: int = 13) -> Program:
    a, b = te.placeholder((n,), "int32", name="A"), te.placeholder((n,), "int32", name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    d = te.compute((n,), lambda i: c[i] + c[i], name="D")
    e = te.compute((n,), lambda i: d[i] * a[i], name="E")
    return te.program([a, b], [te.compute((n,), lambda i: e[i] - c[i], name="F")], name="diamond")


def sums() -> Program:
    """Reductions over rows and columns of what others compute; two outputs."""
    a, k = te.placeholder((5, 9), "int32", name="A"), te.reduce_axis(9, name="k")
    b = te.compute((5, 9), lambda i, j: a[i, j] * a[i, j], name="B")
    c = te.compute((5,), lambda i: te.sum(b[i, k], axis=k), name="C")
    d = te.compute((5, 9), lambda i, j: b[i, j] - c[i], name="D")
    r = te.reduce_axis(5, name="r")
    return te.program([a], [te.compute((9,), lambda j: te.sum(d[r, j], axis=r), name="E"), d], name="sums")


def transposes() -> Program:
    a = te.placeholder((5, 6), "int32", name="A")
    b = te.compute((6, 5), lambda i, j: a[j, i] + 1, name="B")
    c = te.compute((5, 6), lambda i, j: b[j, i] + a[i, j], name="C")
    d = te.compute((5, 6), lambda i, j: c[4 - i, j], name="D")
    e = te.compute((2, 5, 6), lambda t, i, j: c[i, j] + d[i, j], name="E")
    return te.program([a], [e], name="transposes")


def cbr() -> Program:
    return ms.workloads.create("CBR", n=1, h=7, w=6, ci=2, co=5, k=3, s=1, p=1)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "stencil": stencil,
    "plane": plane,
    "epilogue": epilogue,
    "dense_relu": dense_relu,
    "diamond": diamond,
    "sums": sums,
    "transposes": transposes,
    "CBR": lambda: ms.workloads.create("CBR", n=1, h=5, w=4, ci=2, co=3, k=3, s=1, p=1),
    "C2D": lambda: ms.workloads.create("C2D", n=1, h=7, w=6, ci=2, co=3, k=3, s=2, p=1),
    "T2D": lambda: ms.workloads.create("T2D", n=1, h=3, w=3, ci=2, co=2, k=4, s=2, p=1),
    "SFM": lambda: ms.workloads.create("SFM", shape=(3, 5)),
    "TBG": lambda: ms.workloads.create("TBG", b=1, s=5, h=2, d=3),
    "NRM": lambda: ms.workloads.create("NRM", b=2, m=3, n=5),
    "FDENSE": lambda: ms.workloads.create("FDENSE", m=5, n=4, k=3),
}


# --- golden ---------------------------------------------------------------------------------------


def test_compute_at_golden() -> None:
    program = stencil()
    assert str(program).endswith(
        "    for i in range(13):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(13, i)\n"
        "            T.reads(A[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A[v_i] * 2.0\n"
        "    for i in range(11):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(11, i)\n"
        "            T.reads(B[v_i], B[v_i + 2])\n"
        "            T.writes(C[v_i])\n"
        "            C[v_i] = B[v_i] + B[v_i + 2]"
    )
    sch = Schedule(program)
    (i,) = loops_of(sch, "C")
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(sch.get_block("B"), i0)
    assert body_of(sch) == (
        "    for i_0 in range(3):\n"
        "        for ax0 in range(6):\n"
        '            with T.block("B"):\n'
        "                v_i = T.spatial(13, i_0 * 4 + ax0)\n"
        "                T.where(i_0 * 4 + ax0 < 13)\n"
        "                T.reads(A[v_i])\n"
        "                T.writes(B[v_i])\n"
        "                B[v_i] = A[v_i] * 2.0\n"
        "        for i_1 in range(4):\n"
        '            with T.block("C"):\n'
        "                v_i = T.spatial(11, i_0 * 4 + i_1)\n"
        "                T.where(i_0 * 4 + i_1 < 11)\n"
        "                T.reads(B[v_i], B[v_i + 2])\n"
        "                T.writes(C[v_i])\n"
        "                C[v_i] = B[v_i] + B[v_i + 2]"
    )
    check(sch, program)


def test_reverse_compute_at_golden() -> None:
    program = epilogue()
    sch = Schedule(program)
    i, k = loops_of(sch, "B")
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, k0, i1, k1)
    assert body_of(sch).endswith(
        "    for i in range(5):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            T.reads(B[v_i])\n"
        "            T.writes(C[v_i])\n"
        "            C[v_i] = T.max(B[v_i], 0.0)"
    )
    sch.reverse_compute_at(sch.get_block("C"), i0)
    assert body_of(sch) == (
        "    for i_0 in range(3):\n"
        "        for k_0, i_1, k_1 in T.grid(2, 2, 4):\n"
        '            with T.block("B"):\n'
        "                v_i = T.spatial(5, i_0 * 2 + i_1)\n"
        "                v_k = T.reduce(6, k_0 * 4 + k_1)\n"
        "                T.where(i_0 * 2 + i_1 < 5)\n"
        "                T.where(k_0 * 4 + k_1 < 6)\n"
        "                T.reads(A[v_i, v_k])\n"
        "                T.writes(B[v_i])\n"
        "                with T.init():\n"
        "                    B[v_i] = 0.0\n"
        "                B[v_i] = B[v_i] + A[v_i, v_k]\n"
        "        for ax0 in range(2):\n"
        '            with T.block("C"):\n'
        "                v_i = T.spatial(5, i_0 * 2 + ax0)\n"
        "                T.where(i_0 * 2 + ax0 < 5)\n"
        "                T.reads(B[v_i])\n"
        "                T.writes(C[v_i])\n"
        "                C[v_i] = T.max(B[v_i], 0.0)"
    )
    check(sch, program)


def test_reverse_compute_at_golden_into_a_tile_of_a_tile_carries_both_tests() -> None:
    # The inner 4 in steps of 3: rows 4 and 5 of a tile belong to the next one, and are not there yet.
    program = dense_relu()
    sch = Schedule(program)
    i, _, _ = loops_of(sch, "C")
    _, inner = sch.split(i, [None, 4])
    i1, _ = sch.split(inner, [None, 3])
    sch.reverse_compute_at(sch.get_block("D"), i1)
    text = body_of(sch)
    assert "v_i = T.spatial(5, i_0 * 4 + i_1_0 * 3 + ax0)" in text
    assert text.count("T.where(i_1_0 * 3 + ax0 < 4)") == 1
    assert text.count("T.where(i_0 * 4 + i_1_0 * 3 + ax0 < 5)") == 1
    check(sch, program)


def test_reverse_compute_at_golden_of_elements_that_are_not_contiguous() -> None:
    # The loop is the inner one of a split: an iteration stores every third element.
    program = diamond()
    sch = Schedule(program)
    (i,) = loops_of(sch, "C")
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i1, i0)
    sch.reverse_compute_at(sch.get_block("D"), i1)
    assert "v_i = T.spatial(13, ax0 * 3 + i_1)" in body_of(sch)
    check(sch, program)


def test_compute_at_golden_without_unit_loops() -> None:
    program = stencil()
    sch = Schedule(program)
    sch.split(loops_of(sch, "C")[0], [None, 4])
    _, i1 = loops_of(sch, "C")
    forked = sch.fork()
    sch.compute_at(sch.get_block("B"), i1, preserve_unit_loops=False)
    assert "for ax0 in range(3):" in body_of(sch)  # i, i + 1, i + 2
    check(sch, program)
    diamonds = Schedule(diamond())
    diamonds.compute_at(diamonds.get_block("D"), loops_of(diamonds, "E")[0], preserve_unit_loops=False)
    assert "ax0" not in body_of(diamonds)
    check(diamonds, diamond())
    forked.compute_at(forked.get_block("B"), loops_of(forked, "C")[0])
    check(forked, program)


# --- the same results -----------------------------------------------------------------------------


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("depth", range(9))
def test_compute_at_same_padding_at_every_level_of_a_convolution(depth: int, tiled: bool) -> None:
    program = cbr()
    sch = Schedule(program)
    loops = loops_of(sch, "conv")
    if tiled:
        h0, h1 = sch.split(loops[1], [None, 3])
        w0, w1 = sch.split(loops[2], [None, 4])
        sch.reorder(h0, w0, loops[4], h1, w1)
    loops = loops_of(sch, "conv")
    if depth < len(loops):
        sch.compute_at(sch.get_block("pad"), loops[depth])
        check(sch, program)


def test_compute_at_same_for_all_stages_of_a_fused_convolution() -> None:
    program = cbr()
    sch = Schedule(program)
    _, h, w, co = loops_of(sch, "relu")
    h0, h1 = sch.split(h, [None, 3])
    w0, w1 = sch.split(w, [None, 4])
    sch.reorder(h0, w0, h1, w1, co)
    for name in ("bn", "bias_add", "conv", "pad"):
        sch.compute_at(sch.get_block(name), w0)
    check(sch, program)
    # One level deeper: what is in the tile already is moved again, from one tile into another.
    for name in ("bn", "bias_add", "conv", "pad"):
        sch.compute_at(sch.get_block(name), h1)
    check(sch, program)


@pytest.mark.parametrize("depth", range(7))
@pytest.mark.parametrize("form", ["plain", "tiled", "tiles of tiles", "fused", "fused and split"])
def test_reverse_compute_at_same_relu_of_a_product(form: str, depth: int) -> None:
    program = dense_relu()
    sch = Schedule(program)
    i, j, k = loops_of(sch, "C")
    if form == "tiled":
        (i0, i1), (j0, j1), (k0, k1) = (sch.split(v, [None, n]) for v, n in ((i, 2), (j, 3), (k, 4)))
        sch.reorder(i0, j0, k0, i1, j1, k1)
    elif form == "tiles of tiles":
        i0, i1 = sch.split(i, [None, 4])
        i1, i2 = sch.split(i1, [None, 3])
        j0, j1 = sch.split(j, [None, 4])
        j1, j2 = sch.split(j1, [3, 2])
        sch.reorder(i0, j0, i1, j1, i2, j2, k)
    elif form.startswith("fused"):
        fused = sch.fuse(i, j)
        if form.endswith("split"):
            sch.split(fused, [None, 4])
    loops = loops_of(sch, "C")
    if depth >= len(loops):
        return
    first_reduction = next(n for n, v in enumerate(loops) if sch.get(v).var.name.startswith("k"))
    if depth >= first_reduction:
        with pytest.raises(ms.ScheduleError, match="the reduction of block 'C' is not done in one iteration"):
            sch.reverse_compute_at(sch.get_block("D"), loops[depth])
        return
    sch.reverse_compute_at(sch.get_block("D"), loops[depth])
    check(sch, program)


@pytest.mark.parametrize("split", [[None, 4], [2, None], [None, 13]])
def test_reverse_compute_at_same_case_15911(split: list[int | None]) -> None:
    # Elsewhere part of the output was not computed.
    for program in (CASES["15911"].make(n=100), diamond()):
        sch = Schedule(program)
        (i,) = loops_of(sch, "C")
        i0, _ = sch.split(i, split)
        for name in ("D", "E"):
            sch.reverse_compute_at(sch.get_block(name), i0)
        check(sch, program)


@pytest.mark.parametrize("depth", range(6))
@pytest.mark.parametrize("cached", [True, False])
def test_reverse_compute_at_same_case_17799(depth: int, cached: bool) -> None:
    # Elsewhere the sum was wrong: right only outside of all reduction loops, that is below i0.
    n = 10
    x, k = te.placeholder((n, n, n), name="X"), te.reduce_axis(n, name="k")
    total = te.compute((n, n), lambda i, j: te.sum(x[i, k, j], axis=k), name="sum")
    copy = te.compute((n, n), lambda i, j: total[i, j], name="copy")
    program = te.program([x], [total if cached else copy], name="sum_of_middle")
    sch = Schedule(program)
    block = sch.get_block("sum")
    write = sch.cache_write(block, 0, "local") if cached else sch.get_block("copy")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(v, [None, 4]) for v in sch.get_loops(block))
    sch.reorder(i0, k0, j0, i1, k1, j1)
    loop = sch.get_loops(block)[depth]
    if depth == 0:
        sch.reverse_compute_at(write, loop)
    else:
        with pytest.raises(ms.ScheduleError, match="the reduction of block 'sum' is not done"):
            sch.reverse_compute_at(write, loop)
    check(sch, program)


def test_reverse_compute_at_same_reduction_that_follows_its_terms() -> None:
    # The sum over a row goes on while the row is computed, piece by piece.
    program = sums()
    sch = Schedule(program)
    _, j = loops_of(sch, "B")
    j0, _ = sch.split(j, [None, 4])
    sch.reverse_compute_at(sch.get_block("C"), j0)
    check(sch, program)


def test_reverse_compute_at_same_softmax_in_one_loop_over_rows() -> None:
    program = ms.workloads.create("SFM", shape=(3, 5))
    sch = Schedule(program)
    row = loops_of(sch, "max")[0]
    for name in ("exp", "sum", "softmax"):
        sch.reverse_compute_at(sch.get_block(name), row)
    assert str(sch.program).count("range(3)") == 1
    check(sch, program)


def test_compute_at_same_softmax_in_one_loop_over_rows() -> None:
    program = ms.workloads.create("SFM", shape=(3, 5))
    sch = Schedule(program)
    i, j = loops_of(sch, "softmax")
    sch.compute_at(sch.get_block("sum"), i)
    sch.compute_at(sch.get_block("exp"), i)
    sch.compute_at(sch.get_block("max"), i)
    check(sch, program)
    with pytest.raises(ms.ScheduleError, match="not everything that reads what block 'exp' stores"):
        sch.compute_at(sch.get_block("exp"), j)


def test_compute_at_same_in_a_diamond() -> None:
    program = diamond()
    sch = Schedule(program)
    (i,) = loops_of(sch, "F")
    i0, i1 = sch.split(i, [None, 4])
    sch.compute_at(sch.get_block("E"), i0)
    sch.compute_at(sch.get_block("D"), i0)
    sch.compute_at(sch.get_block("C"), i0)  # of two consumers, both below
    check(sch, program)
    sch.compute_at(sch.get_block("E"), i1)
    check(sch, program)


def test_compute_at_same_below_fused_loops() -> None:
    for depth in range(2):
        program = cbr()
        sch = Schedule(program)
        _, h, w, _ = loops_of(sch, "relu")
        sch.split(sch.fuse(h, w), [None, 4])
        sch.compute_at(sch.get_block("bn"), loops_of(sch, "relu")[1 + depth])
        sch.compute_at(sch.get_block("bias_add"), loops_of(sch, "relu")[1])
        check(sch, program)


def test_compute_at_same_in_a_parallel_loop() -> None:
    # Tiles overlap: each thread must have its own.
    program = plane()
    sch = Schedule(program)
    i, _ = loops_of(sch, "D")
    i0, _ = sch.split(i, [None, 2])
    sch.compute_at(sch.get_block("C"), i0)
    sch.compute_at(sch.get_block("B"), i0)
    sch.parallel(i0)
    check(sch, program)


def test_compute_at_same_with_a_tuple_reduction() -> None:
    x, k = te.placeholder((4, 7), "int32", name="X"), te.reduce_axis(7, name="k")
    best = te.compute((4,), lambda i: te.argmax(x[i, k], axis=k), name="best")
    y = te.compute((4,), lambda i: best[i] * 2, name="Y")
    program = te.program([x], [y], name="twice_argmax")
    sch = Schedule(program)
    names = [name for name in sch.state.nodes if isinstance(name, str)]
    (i,) = loops_of(sch, "Y")
    i0, _ = sch.split(i, [None, 3])
    for name in reversed(names[:-1]):
        sch.compute_at(sch.get_block(name), i0)
    check(sch, program)


def test_compute_at_same_with_extents_of_one_and_no_dimensions() -> None:
    x, k = te.placeholder((1, 7), "int32", name="X"), te.reduce_axis(7, name="k")
    total = te.compute((), lambda: te.sum(x[0, k], axis=k), name="total")
    program = te.program([x], [te.compute((1, 7), lambda i, j: x[i, j] - total[()], name="Y")])
    for depth in range(2):
        for units in (True, False):
            sch = Schedule(program)
            sch.compute_at(sch.get_block("total"), loops_of(sch, "Y")[depth], units)
            check(sch, program)


def test_structure_does_not_depend_on_decisions() -> None:
    program = dense_relu(n=12, m=12)
    sch = Schedule(program)
    i, j = loops_of(sch, "D")
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, decision=[3, 4]))
    sch.reorder(i0, j, i1)
    sch.compute_at(sch.get_block("C"), i0)
    trees: set[tuple[int, ...]] = set()
    for outer in (1, 2, 3, 4, 6, 12):
        other = sch.trace.apply(program, decisions={2: [outer, 12 // outer]})
        assert_same_results(program, other.program, compiled=False)
        names = [len(other.state.loops_around(k)) for k in other.state.nodes if isinstance(k, str)]
        trees.add(tuple(names))
    assert len(trees) == 1


# --- at random ------------------------------------------------------------------------------------


def random_step(sch: Schedule, rng: random.Random) -> str | None:
    """One step that may be refused; gives the name of what was tried."""
    names = [key for key in sch.state.nodes if isinstance(key, str)]
    block = sch.get_block(rng.choice(names))
    loops = sch.get_loops(block)
    op = rng.choice(["split", "split", "fuse", "reorder", *["compute_at", "reverse_compute_at"] * 3])
    if op == "split" and loops:
        sch.split(rng.choice(loops), rng.choice([[None, 2], [None, 3], [2, None], [None, 4], [None, 1]]))
    elif op == "fuse" and len(loops) > 1:
        at = rng.randrange(len(loops) - 1)
        sch.fuse(*loops[at : at + 2])
    elif op == "reorder" and len(loops) > 1:
        sch.reorder(*rng.sample(loops, min(len(loops), rng.choice([2, 3, 4]))))
    elif op.endswith("compute_at"):
        others = sch.get_consumers(block) if op == "compute_at" else sch.get_producers(block)
        around = sch.get_loops(rng.choice(others)) if others else []
        if around:
            getattr(sch, op)(block, rng.choice(around), rng.random() < 0.8)
    return op


def random_steps(program: Program, rng: random.Random, count: int) -> Schedule:
    sch = Schedule(program)
    for _ in range(count):
        try:
            random_step(sch, rng)
        except ms.ScheduleError as error:
            str(error)  # can be rendered
    return sch


@given(st.sampled_from(sorted(PROGRAMS)), st.randoms(use_true_random=False), st.integers(1, 12))
def test_random_steps_same_results(name: str, rng: random.Random, count: int) -> None:
    program = PROGRAMS[name]()
    sch = random_steps(program, rng, count)
    ms.verify(sch.program)
    assert_same_results(program, sch.program, compiled=count % 6 == 0)


@given(random_expressions(), st.randoms(use_true_random=False))
def test_random_steps_same_results_on_random_expressions(case: RandomExpression, rng: random.Random) -> None:
    sch = random_steps(case.program, rng, 6)
    ms.verify(sch.program)
    with np.errstate(all="ignore"):
        assert_same_results(case.program, sch.program, compiled=False, inputs=case.inputs)
