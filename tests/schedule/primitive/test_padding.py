"""pad_einsum, decompose_padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program, blocks
from metaschedule.schedule import Schedule
from tests.schedule.checks import assert_same_results, check
from tests.schedule.refusals import refusal


def padded(program: Program, block: str, *padding: int) -> Schedule:
    sch = Schedule(program)
    sch.pad_einsum(sch.get_block(block), padding)
    return sch


def decomposed(program: Program, block: str, at: int = 0) -> Schedule:
    sch = Schedule(program)
    b = sch.get_block(block)
    sch.decompose_padding(b, sch.get_loops(b)[at])
    return sch


def matmul(n: int = 5, m: int = 7, k: int = 6, dtype: str = "float32") -> Program:
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.program([a, b], [c])


def padding(low: int = 1, inner: int = 6, high: int = 2) -> Program:
    x = te.placeholder((inner,), name="X")
    inside = lambda i: te.all_of([i >= low, i < low + inner])  # noqa: E731
    p = te.compute((low + inner + high,), lambda i: te.select(inside(i), x[i - low], 0.5), name="P")
    return te.program([x], [p])


C2D = {"n": 1, "h": 6, "w": 5, "ci": 2, "co": 3, "k": 3, "s": 2, "p": 1}

# --- pad_einsum ---


def test_pad_einsum_golden() -> None:
    program = matmul()
    sch = padded(program, "C", 4, 1, 4)
    assert str(sch.program) == (
        "@ms.program\n"
        "def main(\n"
        '    A: T.Tensor((5, 6), "float32"),\n'
        '    B: T.Tensor((6, 7), "float32"),\n'
        '    C: T.Output((5, 7), "float32"),\n'
        "):\n"
        '    A_pad = T.alloc((8, 8), "float32")\n'
        '    B_pad = T.alloc((8, 7), "float32")\n'
        '    C_pad = T.alloc((8, 7), "float32")\n'
        "    for i, k in T.grid(8, 8):\n"
        '        with T.block("A_pad"):\n'
        "            v_i = T.spatial(8, i)\n"
        "            v_k = T.spatial(8, k)\n"
        "            T.reads(A[v_i, v_k])\n"
        "            T.writes(A_pad[v_i, v_k])\n"
        "            A_pad[v_i, v_k] = T.select(v_i < 5 and v_k < 6, A[v_i, v_k], 0.0)\n"
        "    for k, j in T.grid(8, 7):\n"
        '        with T.block("B_pad"):\n'
        "            v_k = T.spatial(8, k)\n"
        "            v_j = T.spatial(7, j)\n"
        "            T.reads(B[v_k, v_j])\n"
        "            T.writes(B_pad[v_k, v_j])\n"
        "            B_pad[v_k, v_j] = T.select(v_k < 6, B[v_k, v_j], 0.0)\n"
        "    for i, j, k in T.grid(8, 7, 8):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(8, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            v_k = T.reduce(8, k)\n"
        "            T.reads(A_pad[v_i, v_k], B_pad[v_k, v_j])\n"
        "            T.writes(C_pad[v_i, v_j])\n"
        "            with T.init():\n"
        "                C_pad[v_i, v_j] = 0.0\n"
        "            C_pad[v_i, v_j] = C_pad[v_i, v_j] + A_pad[v_i, v_k] * B_pad[v_k, v_j]\n"
        "    for i, j in T.grid(5, 7):\n"
        '        with T.block("C_crop"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            T.reads(C_pad[v_i, v_j])\n"
        "            T.writes(C[v_i, v_j])\n"
        "            C[v_i, v_j] = C_pad[v_i, v_j]"
    )
    check(sch, program)


def test_pad_einsum_refuses_max_with_the_whole_message() -> None:
    program = ms.workloads.create("SFM", shape=(3, 4))
    assert refusal(padded, program, "max", 2, 2) == "block 'max' is not a sum that starts from 0"

    assert refusal(padded, program, "exp", 2, 2) == "block 'exp' is not a sum that starts from 0"


def test_pad_einsum_refuses_numbers_that_do_not_fit() -> None:
    assert refusal(padded, matmul(), "C", 4, 4) == "block 'C' has 3 iterators, padding has 2"
    assert refusal(padded, matmul(), "C", 4, 0, 1) == "padding must be positive, got [4, 0, 1]"


def test_pad_einsum_refuses_terms_that_are_no_products() -> None:
    program = ms.workloads.create("SFM", shape=(3, 4))
    sch = Schedule(program)
    sch.compute_inline(sch.get_block("exp"))
    assert "does not sum products of loads" in refusal(sch.pad_einsum, sch.get_block("sum"), (2, 3))


def test_pad_einsum_refuses_sums_of_iterators_as_indices() -> None:
    program = ms.workloads.create("C2D", **C2D)
    why = refusal(padded, program, "conv", 1, 4, 1, 4, 1, 1, 4)
    assert why == "an index of pad is more than an iterator that is padded"


def test_channels_of_a_convolution_are_padded() -> None:
    """The windows' indices are sums, and stay as they are."""
    program = ms.workloads.create("C2D", **C2D)
    sch = padded(program, "conv", 1, 1, 1, 4, 1, 1, 4)
    check(sch, program)
    assert [b.shape[-1] for b in sch.program.allocs if b.name.endswith("_pad")] == [4, 4, 4]


def test_pad_einsum_refuses_results_at_other_indices() -> None:
    a = te.placeholder((5, 6), name="A")
    k = te.reduce_axis(6)
    b = te.compute((10,), lambda i: te.sum(a[i // 2, k], axis=k), name="B")
    assert "more than an iterator" in refusal(padded, te.program([a], [b]), "B", 4, 4)
    program = ms.parse(
        'def main(A: T.Tensor((5, 6), "float32"), B: T.Output((6,), "float32")):\n'
        "    for i, k in T.grid(5, 6):\n"
        '        with T.block("B"):\n'
        "            vi = T.spatial(5, i)\n"
        "            vk = T.reduce(6, k)\n"
        "            with T.init():\n"
        "                B[vi + 1] = 0.0\n"
        "            B[vi + 1] = B[vi + 1] + A[vi, vk]\n"
    )
    assert "are not the spatial iterators" in refusal(padded, program, "B", 4, 4)


def test_pad_einsum_refuses_split_loops() -> None:
    sch = Schedule(matmul())
    c = sch.get_block("C")
    sch.split(sch.get_loops(c)[0], [None, 2])
    assert "v_i has no loop of its own as it was written" in refusal(sch.pad_einsum, c, (4, 4, 4))


def test_pad_einsum_refuses_shared_loops() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((5, 6), "float32"), B: T.Output((5,), "float32"), '
        'D: T.Output((5,), "float32")):\n'
        "    for i in range(5):\n"
        "        for k in range(6):\n"
        '            with T.block("B"):\n'
        "                vi = T.spatial(5, i)\n"
        "                vk = T.reduce(6, k)\n"
        "                with T.init():\n"
        "                    B[vi] = 0.0\n"
        "                B[vi] = B[vi] + A[vi, vk]\n"
        '        with T.block("D"):\n'
        "            vj = T.spatial(5, i)\n"
        "            D[vj] = B[vj]\n"
    )
    assert "there is something else in the loops of the block" in refusal(padded, program, "B", 4, 4)


def test_pad_einsum_refuses_zero_times_infinity() -> None:
    a, b = te.placeholder((5, 6), name="A"), te.placeholder((5,), name="B")
    k = te.reduce_axis(6, name="k")
    program = te.program([a, b], [te.compute((5,), lambda i: te.sum(a[i, k] * b[i], axis=k), name="C")])
    assert "v_k is not in every factor" in refusal(padded, program, "C", 1, 4)
    sch = padded(program, "C", 4, 1)
    check(sch, program)


@pytest.mark.parametrize(
    "factors", [(4, 4, 4), (1, 1, 4), (1, 8, 1), (2, 1, 1), (5, 7, 6), (1, 1, 1), (16, 16, 16)]
)
def test_pad_einsum_same_matmul(factors: tuple[int, ...]) -> None:
    program = matmul()
    check(padded(program, "C", *factors), program)


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_pad_einsum_same_dtypes(dtype: str) -> None:
    program = matmul(3, 4, 5, dtype)
    check(padded(program, "C", 2, 3, 4), program)


def test_pad_einsum_same_infinities_and_nans() -> None:
    program = matmul(3, 4, 5)
    a, b = np.ones((3, 5), "float32"), np.ones((5, 4), "float32")
    a[1, 2], b[4, 3], b[0, 0] = np.inf, np.nan, -np.inf
    assert_same_results(program, padded(program, "C", 2, 3, 4).program, inputs=[a, b])


def test_pad_einsum_same_with_casts_and_a_scalar_result() -> None:
    x = te.placeholder((5, 7), "int8", name="X")
    i, j = te.reduce_axis(5), te.reduce_axis(7)
    wide = te.sum(te.cast(x[i, j], "int32") * te.cast(x[i, j], "int32"), axis=[i, j])
    program = te.program([x], [te.compute((1,), lambda u: wide, name="C")])
    sch = padded(program, "C", 2, 4, 4)
    assert [b.name for b in blocks(sch.program)] == ["X_pad", "C", "C_crop"]
    check(sch, program)


def test_pad_einsum_same_then_tiled_and_padding_inlined() -> None:
    program = ms.workloads.create("TBG", b=1, s=5, h=3, d=4)
    sch = Schedule(program)
    block = sch.get_block("matmul")
    q, k, crop = sch.pad_einsum(block, (1, 1, 4, 4, 3))
    loops = sch.get_loops(block)
    i0, i1 = sch.split(loops[2], [None, 4])
    j0, j1 = sch.split(loops[3], [None, 4])
    sch.reorder(i0, j0, loops[4], i1, j1)
    sch.compute_inline(q)
    sch.compute_inline(sch.get_block("K_transposed"))
    sch.decompose_padding(k, sch.get_loops(k)[1])
    assert sch.get(crop).name == "matmul_crop"
    check(sch, program)


def test_pad_einsum_has_one_structure_for_sampled_numbers() -> None:
    program = matmul(4, 4, 4)
    texts: set[str] = set()
    for decision in range(3):
        sch = Schedule(program)
        factor = sch.sample_categorical([1, 3, 4], [0.3, 0.3, 0.4], decision=decision)
        sch.pad_einsum(sch.get_block("C"), [factor, 1, factor])
        texts.add(" ".join(b.name for b in blocks(sch.program)))
        check(sch, program)
    assert texts == {"A_pad B_pad C C_crop"}


# --- decompose_padding ---


def test_decompose_padding_golden() -> None:
    program = padding()
    sch = decomposed(program, "P")
    assert str(sch.program) == (
        "@ms.program\n"
        'def main(X: T.Tensor((6,), "float32"), P: T.Output((9,), "float32")):\n'
        "    for i in range(9):\n"
        '        with T.block("P_fill"):\n'
        "            v_i = T.spatial(9, i)\n"
        "            T.reads()\n"
        "            T.writes(P[v_i])\n"
        "            P[v_i] = 0.5\n"
        "    for i in range(6):\n"
        '        with T.block("P"):\n'
        "            v_i = T.spatial(6, i)\n"
        "            T.reads(X[v_i])\n"
        "            T.writes(P[v_i + 1])\n"
        "            P[v_i + 1] = X[v_i]"
    )
    check(sch, program)


def test_decompose_padding_golden_of_a_split_loop() -> None:
    program = padding()
    sch = Schedule(program)
    block = sch.get_block("P")
    (i,) = sch.get_loops(block)
    _, inner = sch.split(i, [None, 4])
    sch.decompose_padding(block, inner)
    text = str(sch.program)
    assert "for i_0 in range(3):\n        for i_1 in range(4):\n" in text
    assert "v_i = T.spatial(6, i_0 * 4 + i_1 - 1)" in text
    assert "T.where(i_0 * 4 + i_1 >= 1)" in text
    assert "T.where(i_0 * 4 + i_1 <= 6)" in text
    check(sch, program)


def test_decompose_padding_refuses_other_stores_with_the_whole_message() -> None:
    x = te.placeholder((6,), name="X")
    program = te.program([x], [te.compute((6,), lambda i: x[i] + 1.0, name="P")])
    assert refusal(decomposed, program, "P") == "block 'P' does not store select(inside, x, constant)"


def test_decompose_padding_refuses_reductions_and_values_that_are_not_constant() -> None:
    program = ms.workloads.create("C2D", **C2D)
    assert refusal(decomposed, program, "conv") == "block 'conv' is not a single element-wise store"
    x = te.placeholder((6,), name="X")
    p = te.compute((6,), lambda i: te.select(i < 3, x[i], x[0]), name="P")
    assert "does not store select" in refusal(decomposed, te.program([x], [p]), "P")


def test_decompose_padding_refuses_insides_that_are_no_box() -> None:
    program = ms.workloads.create("T2D", n=1, h=3, w=3, ci=2, co=2, k=4, s=2, p=1)
    assert refusal(decomposed, program, "spread") == "the inside of block 'spread' is not a box"
    x = te.placeholder((4, 4), name="X")
    triangle = te.compute((4, 4), lambda i, j: te.select(j <= i, x[i, j], 0.0), name="P")
    assert "is not a box" in refusal(decomposed, te.program([x], [triangle]), "P")
    loaded = te.compute((4, 4), lambda i, j: te.select(x[i, j] > 0.0, x[i, j], 0.0), name="P")
    assert "is not a box" in refusal(decomposed, te.program([x], [loaded]), "P")


def test_decompose_padding_refuses_an_empty_inside() -> None:
    x = te.placeholder((4,), name="X")
    p = te.compute((4,), lambda i: te.select(te.all_of([i >= 2, i < 2]), x[i], 0.0), name="P")
    assert "is empty or not known" in refusal(decomposed, te.program([x], [p]), "P")


def test_decompose_padding_refuses_loops_of_others() -> None:
    program = ms.workloads.create("C2D", **C2D)
    sch = Schedule(program)
    assert "the loop is not around the block" in refusal(
        sch.decompose_padding, sch.get_block("pad"), sch.get_loops(sch.get_block("conv"))[0]
    )


def test_decompose_padding_refuses_loops_with_more_in_them() -> None:
    program = ms.parse(
        'def main(X: T.Tensor((4,), "float32"), P: T.Output((6,), "float32"), '
        'Q: T.Output((6,), "float32")):\n'
        "    for i in range(6):\n"
        '        with T.block("P"):\n'
        "            vi = T.spatial(6, i)\n"
        "            P[vi] = T.select(vi < 4, X[vi], 0.0)\n"
        '        with T.block("Q"):\n'
        "            vj = T.spatial(6, i)\n"
        "            Q[vj] = P[vj]\n"
    )
    assert refusal(decomposed, program, "P") == "there is something else in the loop"


def test_decompose_padding_refuses_several_stores_to_one_element() -> None:
    program = ms.parse(
        'def main(X: T.Tensor((8,), "float32"), P: T.Output((4,), "float32")):\n'
        "    for i in range(8):\n"
        '        with T.block("P"):\n'
        "            vi = T.spatial(8, i)\n"
        "            P[vi // 2] = T.select(vi < 5, X[vi], 0.0)\n"
    )
    assert "cannot be taken apart" in refusal(decomposed, program, "P")


def halo(kind: str) -> Program:
    """Tiles of four that overlap by two."""
    return ms.parse(
        'def main(X: T.Tensor((6,), "float32"), P: T.Output((8,), "float32")):\n'
        f"    for t in {kind}(3):\n"
        "        for i in range(4):\n"
        '            with T.block("P"):\n'
        "                vi = T.spatial(8, t * 2 + i)\n"
        "                P[vi] = T.select(vi >= 1 and vi < 7, X[vi - 1], 0.0)\n"
    )


def test_decompose_padding_refuses_races() -> None:
    assert "at the same time" in refusal(decomposed, halo("T.parallel"), "P", 1)
    check(decomposed(halo("range"), "P", 1), halo("range"))


@pytest.mark.parametrize("at", range(4))
def test_decompose_padding_same_in_convolutions(at: int) -> None:
    program = ms.workloads.create("CBR", **C2D)
    check(decomposed(program, "pad", at), program)


@pytest.mark.parametrize(("low", "inner", "high"), [(0, 5, 0), (0, 5, 3), (3, 1, 0), (2, 4, 2)])
def test_decompose_padding_same_borders(low: int, inner: int, high: int) -> None:
    program = padding(low, inner, high)
    check(decomposed(program, "P"), program)


def test_decompose_padding_same_of_an_expression_and_a_fused_nest() -> None:
    program = ms.workloads.create("C2D", **C2D)
    sch = Schedule(program)
    block = sch.get_block("pad")
    n, h, w, c = sch.get_loops(block)
    h0, h1 = sch.split(h, [None, 3])
    outer = sch.fuse(n, h0)
    inner = sch.fuse(w, c)
    sch.decompose_padding(block, h1)
    sch.split(outer, [None, 2])
    sch.split(inner, [None, 4])
    check(sch, program)


# --- any ---


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.data())
def test_any_padding_of_matmul_preserves_results(n: int, m: int, k: int, data: st.DataObject) -> None:
    program = matmul(n, m, k)
    sch = Schedule(program)
    block = sch.get_block("C")
    multiples = data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=3))
    if data.draw(st.booleans()):
        sch.reorder(*data.draw(st.permutations(sch.get_loops(block))))
    copies = sch.pad_einsum(block, multiples)
    for copy in copies:
        loops = sch.get_loops(copy)
        try:
            if data.draw(st.booleans()):
                sch.split(data.draw(st.sampled_from(loops)), [None, data.draw(st.integers(1, 4))])
            if data.draw(st.booleans()):
                sch.decompose_padding(copy, data.draw(st.sampled_from(sch.get_loops(copy))))
            elif data.draw(st.booleans()):
                sch.compute_inline(copy)
        except ScheduleError as error:
            str(error)  # can be shown
    check(sch, program, compiled=False)


@given(st.data())
def test_any_decomposition_preserves_results(data: st.DataObject) -> None:
    sizes = st.integers(0, 3)
    lows, highs = [data.draw(sizes) for _ in range(2)], [data.draw(sizes) for _ in range(2)]
    inner = [data.draw(st.integers(1, 4)) for _ in range(2)]
    shape = [a + b + c for a, b, c in zip(lows, inner, highs, strict=True)]
    x = te.placeholder(inner, name="X")

    def element(i: ms.ir.Expr, j: ms.ir.Expr) -> ms.ir.Expr:
        inside = [c for v, a, n in zip((i, j), lows, inner, strict=True) for c in (v - a >= 0, v < a + n)]
        return te.select(te.all_of(inside), x[i - lows[0], j - lows[1]] * 2.0, 0.25)

    program = te.program([x], [te.compute(shape, element, name="P")])
    sch = Schedule(program)
    block = sch.get_block("P")
    for _ in range(data.draw(st.integers(0, 3))):
        loops = sch.get_loops(block)
        try:
            if data.draw(st.booleans()):
                sch.split(data.draw(st.sampled_from(loops)), [None, data.draw(st.integers(1, 4))])
            elif data.draw(st.booleans()):
                sch.fuse(*loops[:2])
            else:
                sch.reorder(*data.draw(st.permutations(loops)))
        except ScheduleError as error:
            str(error)  # can be shown
    sch.decompose_padding(block, data.draw(st.sampled_from(sch.get_loops(block))))
    check(sch, program, compiled=False)
