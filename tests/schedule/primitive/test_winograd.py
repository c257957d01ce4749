"""winograd: tiles of a convolution out of products at a few points."""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.ir.annotations import ROUNDING
from metaschedule.schedule import Schedule
from metaschedule.schedule.analysis.minimal_filter import MOST_POINTS, minimal_filter
from metaschedule.script import T
from tests.schedule.checks import check
from tests.schedule.refusals import refusal


def line(results: int = 5, taps: int = 3, stride: int = 1, dilation: int = 1, channels: int = 2,
         dtype: str = "float32", slack: int = 0, offset: int = 0) -> Program:  # fmt: skip
    """A filter along one dimension; `slack` elements that nothing reads."""
    length = offset + (results - 1) * stride + (taps - 1) * dilation + 1 + slack
    a = te.placeholder((length, channels), dtype, name="A")
    w = te.placeholder((taps, channels, 3), dtype, name="W")
    k, c = te.reduce_axis(taps, name="k"), te.reduce_axis(channels, name="c")
    y = te.compute(
        (results, 3),
        lambda i, o: te.sum(a[i * stride + k * dilation + offset, c] * w[k, c, o], axis=[k, c]),
        name="Y",
    )
    return te.program([a, w], [y], name="line")


def filtered(program: Program, loop: int, tile: int, name: str = "Y") -> Schedule:
    sch = Schedule(program)
    block = sch.get_block(name)
    sch.winograd(block, sch.get_loops(block)[loop], tile)
    return sch


def refused(program: Program, loop: int = 0, tile: int = 2, name: str = "Y") -> str:
    sch = Schedule(program)
    block = sch.get_block(name)
    return refusal(sch.winograd, block, sch.get_loops(block)[loop], tile)


# --- the matrices ---


@pytest.mark.parametrize("taps", range(1, 8))
@pytest.mark.parametrize("results", range(1, 8))
def test_minimal_filters_are_exact(results: int, taps: int) -> None:
    if results + taps - 1 > MOST_POINTS:
        return
    found = minimal_filter(results, taps)
    for element in range(results + taps - 1):
        for tap in range(taps):
            products = [d[element] * t[tap] for d, t in zip(found.data, found.taps, strict=True)]
            sums = [
                sum((a * p for a, p in zip(row, products, strict=True)), Fraction(0)) for row in found.results
            ]
            assert sums == [int(element == result + tap) for result in range(results)]


@pytest.mark.parametrize(("results", "taps"), [(2, 3), (4, 3), (6, 3), (5, 4), (2, 7), (7, 2)])
def test_errors_are_as_predicted(results: int, taps: int) -> None:
    """The worst rounding error of random data, beside that of adding up: below the prediction and not far."""
    rng = np.random.default_rng(0)
    made = minimal_filter(results, taps)
    data, weights, back = (np.array(m, dtype="float64") for m in (made.data, made.taps, made.results))
    x = rng.standard_normal((4096, results + taps - 1)).astype("float32")
    w = rng.standard_normal((4096, taps)).astype("float32")
    windows = np.stack([x[:, n : n + taps] for n in range(results)], axis=1)
    exact = (windows.astype("float64") * w[:, None].astype("float64")).sum(axis=-1)
    direct = np.cumsum(windows * w[:, None], axis=-1, dtype="float32")[..., -1]
    products = (x @ data.T.astype("float32")) * (w @ weights.T.astype("float32"))
    found = products @ back.T.astype("float32")
    ratio = np.std(found - exact) / np.std(direct - exact)
    assert made.amplification / 8 < ratio < made.amplification * 1.5


# --- before and after ---


def test_winograd_golden() -> None:
    sch = filtered(line(results=4, taps=2, channels=1), 0, 2)
    text = str(sch.program)
    assert text[text.index("    for") :] == GOLDEN


GOLDEN = """\
    for a, i_tile, k_phase, ax1 in T.grid(3, 2, 1, 1):
        with T.block("A_points"):
            v_a = T.spatial(3, a)
            v_i_tile = T.spatial(2, i_tile)
            v_k_phase = T.spatial(1, 0)
            v_ax1 = T.spatial(1, 0)
            T.reads(A[v_i_tile * 2 + v_k_phase, v_ax1], A[v_i_tile * 2 + 1 + v_k_phase, v_ax1], A[v_i_tile * 2 + 2 + v_k_phase, v_ax1])
            T.writes(A_points[v_a, v_i_tile, v_k_phase, v_ax1])
            A_points[v_a, v_i_tile, v_k_phase, v_ax1] = T.select(v_a == 0, A[v_i_tile * 2 + 1 + v_k_phase, v_ax1] - A[v_i_tile * 2 + v_k_phase, v_ax1], T.select(v_a == 1, A[v_i_tile * 2 + 1 + v_k_phase, v_ax1], A[v_i_tile * 2 + 2 + v_k_phase, v_ax1] - A[v_i_tile * 2 + 1 + v_k_phase, v_ax1]))
    for a, k_phase, c, o in T.grid(3, 1, 1, 3):
        with T.block("W_points"):
            v_a = T.spatial(3, a)
            v_k_phase = T.spatial(1, 0)
            v_c = T.spatial(1, 0)
            v_o = T.spatial(3, o)
            T.reads(W[v_k_phase, v_c, v_o], W[v_k_phase + 1, v_c, v_o])
            T.writes(W_points[v_a, v_k_phase, v_c, v_o])
            W_points[v_a, v_k_phase, v_c, v_o] = T.select(v_a == 0, W[v_k_phase, v_c, v_o] * -1.0, T.select(v_a == 1, W[v_k_phase, v_c, v_o] + W[v_k_phase + 1, v_c, v_o], W[v_k_phase + 1, v_c, v_o]))
    for a, i_tile, o, k_phase, c in T.grid(3, 2, 3, 1, 1):
        with T.block("Y_products"):
            v_a = T.spatial(3, a)
            v_i_tile = T.spatial(2, i_tile)
            v_o = T.spatial(3, o)
            v_k_phase = T.reduce(1, 0)
            v_c = T.reduce(1, 0)
            T.reads(A_points[v_a, v_i_tile, v_k_phase, v_c], W_points[v_a, v_k_phase, v_c, v_o])
            T.writes(Y_products[v_a, v_i_tile, v_o])
            T.annotate({"rounding": 2})
            with T.init():
                Y_products[v_a, v_i_tile, v_o] = 0.0
            Y_products[v_a, v_i_tile, v_o] = Y_products[v_a, v_i_tile, v_o] + A_points[v_a, v_i_tile, v_k_phase, v_c] * W_points[v_a, v_k_phase, v_c, v_o]
    for i, o in T.grid(4, 3):
        with T.block("Y"):
            v_i = T.spatial(4, i)
            v_o = T.spatial(3, o)
            T.reads(Y_products[0, v_i // 2, v_o], Y_products[1, v_i // 2, v_o], Y_products[2, v_i // 2, v_o])
            T.writes(Y[v_i, v_o])
            Y[v_i, v_o] = T.select(v_i % 2 == 0, Y_products[0, v_i // 2, v_o] + Y_products[1, v_i // 2, v_o], Y_products[1, v_i // 2, v_o] + Y_products[2, v_i // 2, v_o])"""  # noqa: E501


# --- differential ---


@given(st.data())
def test_winograd_same_for_any_filter(data: st.DataObject) -> None:
    dilation = data.draw(st.integers(1, 2))
    stride = dilation * data.draw(st.integers(1, 3))
    taps = data.draw(st.integers(1, 7))
    phases = stride // dilation
    tile = data.draw(st.integers(2, MOST_POINTS + 1 - -(-taps // phases)))
    program = line(
        results=data.draw(st.integers(1, 13)), taps=taps, stride=stride, dilation=dilation,
        channels=data.draw(st.integers(1, 3)), dtype=data.draw(st.sampled_from(["float32", "float64"])),
        slack=data.draw(st.integers(0, 3)), offset=data.draw(st.integers(0, 2)),
    )  # fmt: skip
    check(filtered(program, 0, tile), program, compiled=data.draw(st.integers(0, 9)) == 0, rounding=1e-5)


@pytest.mark.parametrize(("name", "loop", "tile"), [
    ("C1D", 1, 3), ("C2D", 2, 4), ("C2D", 1, 2), ("C3D", 3, 5), ("DIL", 2, 2), ("GRP", 2, 4), ("DEP", 1, 4),
])  # fmt: skip
def test_winograd_same_for_workloads(name: str, loop: int, tile: int) -> None:
    sizes = {"C1D": {"l": 13}, "C3D": {"d": 9, "h": 9, "w": 11}}.get(name, {"h": 13, "w": 17})
    channels = {"DEP": {"c": 3}, "GRP": {"ci": 4, "co": 8, "groups": 2}}.get(name, {"ci": 2, "co": 3})
    program = ms.workloads.create(name, **sizes, **channels)
    check(filtered(program, loop, tile, "depthwise" if name == "DEP" else "conv"), program, rounding=1e-5)


def test_winograd_same_in_both_dimensions() -> None:
    """The block of the products is a convolution again."""
    program = ms.workloads.create("C2D", h=9, w=10, ci=2, co=3, k=3, s=1, p=1)
    sch = Schedule(program)
    conv = sch.get_block("conv")
    _, _, products = sch.winograd(conv, sch.get_loops(conv)[2], 4)
    once = sch.get(products).annotations[ROUNDING.key]
    _, _, products = sch.winograd(products, sch.get_loops(products)[1], 2)
    assert sch.get(products).annotations[ROUNDING.key] > once
    check(sch, program, rounding=1e-5)


def test_winograd_same_with_flipped_weights() -> None:
    program = ms.workloads.create("T2D", h=3, w=4, ci=2, co=3)
    check(filtered(program, 2, 3, "conv_transpose"), program)


def test_winograd_same_where_there_is_nothing() -> None:
    a, w = te.placeholder((2, 4), name="A"), te.placeholder((3, 4), name="W")
    k, c = te.reduce_axis(3, name="k"), te.reduce_axis(4, name="c")
    y = te.compute((0,), lambda i: te.sum(a[i + k, c] * w[k, c], axis=[k, c]), name="Y")
    program = te.program([a, w], [y])
    check(filtered(program, 0, 2), program)


def test_winograd_leaves_rounding_errors_as_small_as_it_says() -> None:
    program = line(results=64, taps=7, stride=2, channels=64)
    sch = filtered(program, 0, 5)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape, "float32") for b in program.inputs]
    found = ms.build(sch)(*arrays)
    a, w = (x.astype("float64") for x in arrays)
    want = np.stack([np.einsum("kc,kco->o", a[2 * i : 2 * i + 7], w) for i in range(64)])
    assert np.abs(found - want).max() < 6 * 2**-24 * np.sqrt(7 * 64) * np.abs(want).max()


# --- refused ---


def test_winograd_refuses_what_is_no_sum_of_products() -> None:
    a, k = te.placeholder((9,), name="A"), te.reduce_axis(3, name="k")
    total = te.compute((7,), lambda i: te.sum(a[i + k], axis=k), name="Y")
    assert "does not add up products" in refused(te.program([a], [total]))
    largest = te.compute((7,), lambda i: te.max(a[i + k] * a[k], axis=k), name="Y")
    assert "does not add up products" in refused(te.program([a], [largest]))


def test_winograd_refuses_integers_and_short_floats() -> None:
    assert "float32 or float64" in refused(line(dtype="int32"))
    assert "float32 or float64" in refused(line(dtype="float16"))


def test_winograd_refuses_loops_that_are_no_dimension_of_the_result() -> None:
    assert "not that of a dimension" in refused(line(), loop=2)


def test_winograd_refuses_columns() -> None:
    assert "is not v_o and a reduction iterator" in refused(line(), loop=1)


def test_winograd_refuses_loops_that_move_both_factors() -> None:
    a, k = te.placeholder((9,), name="A"), te.reduce_axis(3, name="k")
    y = te.compute((7,), lambda i: te.sum(a[i + k] * a[i], axis=k), name="Y")
    assert "must be an index of one factor" in refused(te.program([a], [y]))


def test_winograd_refuses_several_indices() -> None:
    a, w, k = te.placeholder((9, 9), name="A"), te.placeholder((3,), name="W"), te.reduce_axis(3, name="k")
    diagonal = te.compute((7,), lambda i: te.sum(a[i + k, i] * w[k], axis=k), name="Y")
    assert "is not v_i and a reduction iterator" in refused(te.program([a, w], [diagonal]))
    both = te.compute((7,), lambda i: te.sum(a[i + k, k] * w[k], axis=k), name="Y")
    assert "v_k is in several indices" in refused(te.program([a, w], [both]))


@ms.program
def diagonal(A: T.Tensor((9,), "float32"), W: T.Tensor((3,), "float32"), Y: T.Output((7, 7), "float32")):
    for i, j in T.grid(7, 7):
        with T.block("zero"):
            v_i = T.spatial(7, i)
            v_j = T.spatial(7, j)
            Y[v_i, v_j] = 0.0
    for i, k in T.grid(7, 3):
        with T.block("Y"):
            v_i = T.spatial(7, i)
            v_k = T.reduce(3, k)
            with T.init():
                Y[v_i, v_i] = 0.0
            Y[v_i, v_i] = Y[v_i, v_i] + A[v_i + v_k] * W[v_k]


def test_winograd_refuses_results_on_a_diagonal() -> None:
    assert "v_i is in several indices of the result" in refused(diagonal)


@ms.program
def twice(A: T.Tensor((9,), "float32"), W: T.Tensor((3,), "float32"), Y: T.Output((7,), "float32"),
          Z: T.Output((2,), "float32")):  # fmt: skip
    for t in range(2):
        for i, k in T.grid(7, 3):
            with T.block("Y"):
                v_i = T.spatial(7, i)
                v_k = T.reduce(3, k)
                with T.init():
                    Y[v_i] = 0.0
                Y[v_i] = Y[v_i] + A[v_i + v_k] * W[v_k]
        with T.block("Z"):
            v_t = T.spatial(2, t)
            Z[v_t] = Y[0]


def test_winograd_refuses_blocks_in_other_loops() -> None:
    sch = Schedule(twice)
    block = sch.get_block("Y")
    assert "is inside of another loop" in refusal(sch.winograd, block, sch.get_loops(block)[1], 2)


def test_winograd_refuses_products_of_matrices() -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=5, k=3)
    assert "and a reduction iterator, times constants" in refused(program, loop=1, name="matmul")


def test_winograd_refuses_dilations_that_do_not_divide_the_stride() -> None:
    assert "does not divide" in refused(line(stride=1, dilation=2))
    assert "does not divide" in refused(line(stride=3, dilation=2))


@pytest.mark.parametrize("tile", [1, 7, 0, -2])
def test_winograd_refuses_tiles(tile: int) -> None:
    assert "it must be from 2 to 6" in refused(line(taps=3), tile=tile)


def test_winograd_refuses_blocks_that_were_moved() -> None:
    sch = Schedule(line())
    block = sch.get_block("Y")
    loop = sch.get_loops(block)[0]
    sch.parallel(loop)
    assert "is parallel already" in refusal(sch.winograd, block, loop, 2)
