"""blockize, tensorize, and the registry of intrinsics."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program
from metaschedule.schedule import LoopRV, Schedule, register_intrinsic
from metaschedule.schedule.intrinsics import INTRINSICS
from tests.cases.programs import CASES
from tests.schedule.checks import check
from tests.schedule.refusals import refusal

TILE = 'A: T.Tensor((4, 4), "float32"), B: T.Tensor((4, 4), "float32"), C: T.Output((4, 4), "float32")'
MATMUL = f"""
def matmul_4x4x4({TILE}):
    for i, j, k in T.grid(4, 4, 4):
        with T.block("matmul"):
            v_i = T.spatial(4, i)
            v_j = T.spatial(4, j)
            v_k = T.reduce(4, k)
            C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""
OUTER_PRODUCTS = f"""
def outer_products({TILE}):
    tile = T.alloc((4, 4), "float32")
    for i in T.unrolled(4):
        for j in T.vectorized(4):
            tile[i, j] = C[i, j]
    for k in range(4):
        for i in T.unrolled(4):
            for j in T.vectorized(4):
                tile[i, j] = tile[i, j] + A[i, k] * B[k, j]
    for i in T.unrolled(4):
        for j in T.vectorized(4):
            C[i, j] = tile[i, j]
"""
BYTES = 'A: T.Tensor((4,), "uint8"), B: T.Tensor((4,), "int8"), C: T.Output((1,), "int32")'
DOT = f"""
def dot({BYTES}):
    for k in range(4):
        with T.block("dot"):
            v_k = T.reduce(4, k)
            C[0] = C[0] + T.cast(A[v_k], "int32") * T.cast(B[v_k], "int32")
"""
DOT_AT_ONCE = f"""
def dot_at_once({BYTES}):
    C[0] = C[0] + (
        T.cast(A[0], "int32") * T.cast(B[0], "int32") + T.cast(A[1], "int32") * T.cast(B[1], "int32")
        + T.cast(A[2], "int32") * T.cast(B[2], "int32") + T.cast(A[3], "int32") * T.cast(B[3], "int32")
    )
"""
SCALE = """
def scale(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):
    for i in {}(8):
        C[i] = A[i] * 2.0
"""
register_intrinsic("test.matmul", ms.parse(MATMUL), ms.parse(OUTER_PRODUCTS))
register_intrinsic("test.dot", ms.parse(DOT), ms.parse(DOT_AT_ONCE))
register_intrinsic("test.scale", ms.parse(SCALE.format("range")), ms.parse(SCALE.format("T.vectorized")))


def gmm(n: int = 5, m: int = 7, k: int = 6, b: int = 1) -> Program:
    return ms.workloads.create("GMM", b=b, n=n, m=m, k=k)


def tiled(program: Program, ti: int = 4, tj: int = 4, tk: int = 4) -> tuple[Schedule, list[LoopRV]]:
    """b i0 j0 k0 i1 j1 k1"""
    sch = Schedule(program)
    b, i, j, k = sch.get_loops(sch.get_block("matmul"))
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(loop, [None, t]) for loop, t in ((i, ti), (j, tj), (k, tk)))
    loops = [b, i0, j0, k0, i1, j1, k1]
    sch.reorder(*loops)
    return sch, loops


def scale(n: int = 16) -> Program:
    a = te.placeholder((n,), name="A")
    return te.program([a], [te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="scale")


def body_of(sch: Schedule) -> str:
    """The printed program from its first loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    for")) :])


# --- blockize ---------------------------------------------------------------------------------------------


def test_blockize_golden() -> None:
    program = scale(13)
    sch = Schedule(program)
    i0, i1 = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 4])
    block = sch.blockize(i1)
    assert sch.get(block).name == "B_o"
    assert body_of(sch) == (
        "    for i_0 in range(4):\n"
        '        with T.block("B_o"):\n'
        "            v_i_o = T.spatial(4, i_0)\n"
        "            T.reads(A[v_i_o * 4 : T.size(4)])\n"
        "            T.writes(B[v_i_o * 4 : T.size(4)])\n"
        "            for i_1 in range(4):\n"
        '                with T.block("B"):\n'
        "                    v_i = T.spatial(13, v_i_o * 4 + i_1)\n"
        "                    T.where(v_i_o * 4 + i_1 < 13)\n"
        "                    T.reads(A[v_i])\n"
        "                    T.writes(B[v_i])\n"
        "                    B[v_i] = A[v_i] * 2.0"
    )
    check(sch, program)
    sch.blockize(i0)
    check(sch, program)


def test_blockize_golden_of_a_reduction() -> None:
    program = gmm(4, 6, 6)
    sch, loops = tiled(program, 2, 3, 2)
    sch.blockize(loops[4])
    assert body_of(sch) == (
        "    for b, i_0, j_0, k_0 in T.grid(1, 2, 2, 3):\n"
        '        with T.block("matmul_o"):\n'
        "            v_b_o = T.spatial(1, 0)\n"
        "            v_i_o = T.spatial(2, i_0)\n"
        "            v_j_o = T.spatial(2, j_0)\n"
        "            v_k_o = T.reduce(3, k_0)\n"
        "            T.reads(X[v_b_o, v_i_o * 2 : T.size(2), v_k_o * 2 : T.size(2)], "
        "Y[v_b_o, v_k_o * 2 : T.size(2), v_j_o * 3 : T.size(3)])\n"
        "            T.writes(matmul[v_b_o, v_i_o * 2 : T.size(2), v_j_o * 3 : T.size(3)])\n"
        "            with T.init():\n"
        "                for i_1, j_1 in T.grid(2, 3):\n"
        '                    with T.block("matmul_init"):\n'
        "                        v_b = T.spatial(1, v_b_o)\n"
        "                        v_i = T.spatial(4, v_i_o * 2 + i_1)\n"
        "                        v_j = T.spatial(6, v_j_o * 3 + j_1)\n"
        "                        T.reads()\n"
        "                        T.writes(matmul[v_b, v_i, v_j])\n"
        "                        matmul[v_b, v_i, v_j] = 0.0\n"
        "            for i_1, j_1, k_1 in T.grid(2, 3, 2):\n"
        '                with T.block("matmul"):\n'
        "                    v_b = T.spatial(1, v_b_o)\n"
        "                    v_i = T.spatial(4, v_i_o * 2 + i_1)\n"
        "                    v_j = T.spatial(6, v_j_o * 3 + j_1)\n"
        "                    v_k = T.reduce(6, v_k_o * 2 + k_1)\n"
        "                    T.reads(matmul[v_b, v_i, v_j], X[v_b, v_i, v_k], Y[v_b, v_k, v_j])\n"
        "                    T.writes(matmul[v_b, v_i, v_j])\n"
        "                    matmul[v_b, v_i, v_j] = "
        "matmul[v_b, v_i, v_j] + X[v_b, v_i, v_k] * Y[v_b, v_k, v_j]"
    )
    check(sch, program)


def test_blockize_refuses_several_blocks() -> None:
    source = """
@ms.program
def two(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32"), C: T.Output((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            v_i = T.spatial(4, i)
            B[v_i] = A[v_i] + 1.0
        with T.block("C"):
            v_i = T.spatial(4, i)
            C[v_i] = A[v_i] + 2.0
"""
    sch = Schedule(ms.parse(source))
    assert (
        refusal(sch.blockize, sch.get_loops(sch.get_block("B"))[0])
        == "the loop over i does not hold one block in loops, and nothing else"
    )


def test_blockize_refuses_bindings_that_do_not_come_apart() -> None:
    sch = Schedule(gmm(4, 6, 4))
    _, i, j, _ = sch.get_loops(sch.get_block("matmul"))
    _, inner = sch.split(sch.fuse(i, j), [None, 4])  # 4 does not divide 6
    assert "the loops inside and outside do not come apart in it" in refusal(sch.blockize, inner)


def test_blockize_refuses_tiles_that_do_not_line_up() -> None:
    sch = Schedule(scale(12))
    (i,) = sch.get_loops(sch.get_block("B"))
    _, i1 = sch.split(i, [None, 6])
    _, i11 = sch.split(i1, [None, 4])
    text = refusal(sch.blockize, i11)
    assert "v_i of block 'B' is bound to i_0 * 6 + (i_1_0 * 4 + i_1_1): " in text
    assert "is no multiple of 4" in text


def test_blockize_refuses_conditions_across() -> None:
    source = """
@ms.program
def where(A: T.Tensor((4, 4, 4), "float32"), B: T.Output((4, 4, 4), "float32")):
    for i, r, j, k in T.grid(4, 2, 4, 4):
        with T.block("B"):
            v_i = T.spatial(4, i)
            v_j = T.spatial(4, j)
            v_k = T.spatial(4, k)
            T.where(i + r * 2 + j < 9)
            B[v_i, v_j, v_k] = A[v_i, v_j, v_k]
"""
    sch = Schedule(ms.parse(source))
    _, _, j, k = sch.get_loops(sch.get_block("B"))
    assert "the condition i + r * 2 + j < 9 is over loops inside and outside" in refusal(sch.blockize, j)
    assert "T.where" in str(sch.program)
    sch.blockize(k)  # all of the condition is outside


def test_blockize_refuses_extents_from_outside() -> None:
    source = """
@ms.program
def triangle(A: T.Tensor((4, 4), "float32"), B: T.Output((4, 4), "float32")):
    for i in range(4):
        for j in range(i + 1):
            with T.block("B"):
                v_i = T.spatial(4, i)
                v_j = T.spatial(4, j)
                B[v_i, v_j] = A[v_i, v_j]
"""
    sch = Schedule(ms.parse(source))
    _, j = sch.get_loops(sch.get_block("B"))
    assert "the extent of j depends on what is outside of the new block" in refusal(sch.blockize, j)


def test_blockize_refuses_inits_that_cannot_be_first() -> None:
    sch = Schedule(gmm(3, 4, 5))
    _, _, j, k = sch.get_loops(sch.get_block("matmul"))
    fused = sch.fuse(j, k)
    assert "drives spatial and reduction iterators" in refusal(sch.blockize, fused)


@pytest.mark.parametrize("at", range(7))
def test_blockize_same_on_tiles_with_tails(at: int) -> None:
    program = gmm(5, 7, 6)
    sch, loops = tiled(program, 2, 4, 4)
    sch.blockize(loops[at])
    check(sch, program)


def test_blockize_same_then_inner_and_outer_steps() -> None:
    program = gmm(5, 7, 6)
    sch, loops = tiled(program, 2, 4, 4)
    outer = sch.blockize(loops[4])
    inner = sch.get_block("matmul")
    i1, _, k1 = sch.get_loops(inner)
    sch.reorder(k1, i1)
    sch.decompose_reduction(outer, loops[3])
    init = sch.get_block("matmul_init")
    sch.vectorize(sch.get_loops(init)[-1])
    sch.fuse(loops[1], loops[2])
    check(sch, program)


def test_blockize_same_twice() -> None:
    program = gmm(8, 8, 8)
    sch, loops = tiled(program)
    sch.blockize(loops[4])
    outer = sch.blockize(loops[3])
    sch.blockize(sch.get_loops(outer)[1])
    check(sch, program)


def test_blockize_same_on_workloads() -> None:
    conv = ms.workloads.create("C2D", n=1, h=5, w=4, ci=3, co=4, k=3, s=2, p=1)
    for name in ("pad", "conv"):
        for at in range(4):
            sch = Schedule(conv)
            sch.blockize(sch.get_loops(sch.get_block(name))[at])
            check(sch, conv)
    softmax = ms.workloads.create("SFM", shape=(3, 5))
    sch = Schedule(softmax)
    for name in ("max", "exp", "sum", "softmax"):
        sch.blockize(sch.get_loops(sch.get_block(name))[1])
    check(sch, softmax)


# --- tensorize --------------------------------------------------------------------------------------------


def test_tensorize_golden() -> None:
    program = scale(16)
    sch = Schedule(program)
    _, i1 = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 8])
    sch.tensorize(i1, "test.scale")
    assert body_of(sch) == (
        "    for i_0 in range(2):\n"
        '        with T.block("B_o"):\n'
        "            v_i_o = T.spatial(2, i_0)\n"
        "            T.reads(A[v_i_o * 8 : T.size(8)])\n"
        "            T.writes(B[v_i_o * 8 : T.size(8)])\n"
        "            for i in T.vectorized(8):\n"
        "                B[v_i_o * 8 + i] = A[v_i_o * 8 + i] * 2.0"
    )
    check(sch, program)


@pytest.mark.parametrize("blocks_first", [False, True])
def test_tensorize_same_on_tiled_gmm(blocks_first: bool) -> None:
    program = gmm(8, 12, 16, b=2)
    sch, loops = tiled(program)
    if blocks_first:
        outer = sch.blockize(loops[4])
        sch.decompose_reduction(outer, loops[3])
        sch.tensorize(outer, "test.matmul")
    else:
        sch.tensorize(loops[4], "test.matmul")
    assert "tile[i, j] + X[v_b_o, v_i_o * 4 + i, v_k_o * 4 + k]" in str(sch.program)
    sch.parallel(loops[1])
    check(sch, program)


def test_tensorize_same_on_bytes_case_18224() -> None:
    """The case has the 4 elements as a reduction of its own; a plain dense is split by 4."""
    program = CASES["18224"].small_program()
    sch = Schedule(program)
    block = sch.get_block("dense")
    sch.tensorize(sch.get_loops(block)[-1], "test.dot")
    check(sch, program)
    x, w = te.placeholder((3, 12), "uint8", name="X"), te.placeholder((5, 12), "int8", name="W")
    k = te.reduce_axis(12, name="k")
    y = te.compute(
        (3, 5),
        lambda i, j: te.sum(
            te.cast(w[j, k], "int32") * te.cast(x[i, k], "int32"), axis=k
        ),  # other way around
        name="dense",
    )
    program = te.program([x, w], [y])
    sch = Schedule(program)
    loops = sch.get_loops(sch.get_block("dense"))
    k0, k1 = sch.split(loops[2], [None, 4])
    sch.tensorize(k1, "test.dot")
    sch.decompose_reduction(sch.get_block("dense_o"), k0)
    assert "T.cast(X[v_i_o, v_k_o * 4 + 3]" in str(sch.program)
    check(sch, program)


def test_tensorize_same_with_factors_that_were_drawn() -> None:
    """A sampled split keeps its test, which is always true where the tiles are whole."""
    program = gmm(8, 8, 8)
    sch = Schedule(program)
    b, i, j, k = sch.get_loops(sch.get_block("matmul"))
    inner, outer = [], []
    for loop in (i, j, k):
        one, two = sch.split(loop, sch.sample_tile(loop, 2, 4, decision=[2, 4]))
        outer.append(one)
        inner.append(two)
    sch.reorder(b, *outer, *inner)
    sch.tensorize(inner[0], "test.matmul")
    check(sch, program)


def test_tensorize_refuses_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in INTRINSICS.keys() - {"test.dot", "test.scale"}:
        monkeypatch.delitem(INTRINSICS, name)
    sch, loops = tiled(gmm(8, 8, 8))
    assert refusal(sch.tensorize, loops[4], "test.nothing") == "there is no intrinsic 'test.nothing'"


def test_tensorize_refuses_other_extents() -> None:
    sch, loops = tiled(gmm(4, 4, 4), 2, 2, 4)
    assert refusal(sch.tensorize, loops[4], "test.matmul") == (
        "the loop over i_1 is not what intrinsic 'test.matmul' describes: "
        "its loops are (2, 2, 4), described are (4, 4, 4)"
    )


def test_tensorize_refuses_partial_tiles() -> None:
    sch, loops = tiled(gmm(6, 8, 8))
    text = refusal(sch.tensorize, loops[4], "test.matmul")
    assert "the tile is not always whole: it runs only where v_i_o * 4 + i_1 < 6" in text


def test_tensorize_refuses_other_computations() -> None:
    a = te.placeholder((16,), name="A")
    for f in (lambda i: a[i] * 3.0, lambda i: a[i] + 2.0, lambda i: a[15 - i] * 2.0, lambda i: te.exp(a[i])):
        sch = Schedule(te.program([a], [te.compute((16,), f, name="B")]))
        _, i1 = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 8])
        text = refusal(sch.tensorize, i1, "test.scale")
        assert "the loop over i_1 is not what intrinsic 'test.scale' describes: it stores B[" in text
        assert ", described is C[i] = A[i] * 2.0" in text


def test_tensorize_refuses_other_dtypes() -> None:
    a = te.placeholder((16,), "float64", name="A")
    sch = Schedule(te.program([a], [te.compute((16,), lambda i: a[i] * 2.0, name="B")]))
    _, i1 = sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 8])
    assert "is not what intrinsic 'test.scale' describes" in refusal(sch.tensorize, i1, "test.scale")


def test_tensorize_refuses_several_statements() -> None:
    source = """
@ms.program
def two(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32"), C: T.Output((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v_i = T.spatial(8, i)
            B[v_i] = A[v_i] * 2.0
            C[v_i] = A[v_i] * 2.0
"""
    sch = Schedule(ms.parse(source))
    text = refusal(sch.tensorize, sch.get_loops(sch.get_block("B"))[0], "test.scale")
    assert "it has 2 statements, described are 1 stores" in text


def test_tensorize_refuses_updates_in_place() -> None:
    source = """
@ms.program
def twice(A: T.Tensor((8,), "float32"), B: T.Output((8,), "float32")):
    for i in range(8):
        with T.block("copy"):
            v_i = T.spatial(8, i)
            B[v_i] = A[v_i]
    for i in range(8):
        with T.block("B"):
            v_i = T.spatial(8, i)
            B[v_i] = B[v_i] * 2.0
"""
    sch = Schedule(ms.parse(source))
    text = refusal(sch.tensorize, sch.get_loops(sch.get_block("B"))[0], "test.scale")
    assert "B is both C and A" in text


def test_tensorize_refuses_blocks_without_loops() -> None:
    sch = Schedule(scale())
    text = refusal(sch.tensorize, sch.get_block("B"), "test.scale")
    assert "its loops are (), described are (8)" in text


def test_tensorize_refuses_blocks_inside() -> None:
    sch = Schedule(scale())
    _, i1, i2 = sch.split(sch.get_loops(sch.get_block("B"))[0], [2, 4, 2])
    sch.blockize(i2)
    outer = sch.blockize(i1)
    assert refusal(sch.tensorize, outer, "test.scale") == "block 'B_o' has blocks inside"


def test_tensorize_refuses_inits_inside() -> None:
    source = """
@ms.program
def nested(X: T.Tensor((2, 4), "uint8"), W: T.Tensor((4,), "int8"), Y: T.Output((2,), "int32")):
    for i in range(2):
        with T.block("outer"):
            v_o = T.spatial(2, i)
            for k in range(4):
                with T.block("Y"):
                    v_i = T.spatial(2, v_o)
                    v_k = T.reduce(4, k)
                    with T.init():
                        Y[v_i] = 0
                    Y[v_i] = Y[v_i] + T.cast(X[v_i, v_k], "int32") * T.cast(W[v_k], "int32")
"""
    program = ms.parse(source)
    sch = Schedule(program)
    outer = sch.get_block("outer")
    assert "the init of block 'Y' is inside of the loops" in refusal(sch.tensorize, outer, "test.dot")
    sch.decompose_reduction(sch.get_block("Y"), sch.get_loops(sch.get_block("Y"))[0])
    assert "block 'outer' is not one block in loops" in refusal(sch.tensorize, outer, "test.dot")
    sch.tensorize(sch.get_loops(sch.get_block("Y"))[0], "test.dot")
    check(sch, program)


# --- the registry -----------------------------------------------------------------------------------------


def test_register_refuses_other_parameters() -> None:
    with pytest.raises(ValueError, match="the same shapes and dtypes"):
        register_intrinsic("test.bad", ms.parse(MATMUL), ms.parse(DOT_AT_ONCE))


def test_register_refuses_implementations_that_differ() -> None:
    wrong = ms.parse(SCALE.format("range").replace("2.0", "3.0"))
    with pytest.raises(ValueError, match="gives another C than the description"):
        register_intrinsic("test.bad", ms.parse(SCALE.format("range")), wrong)


def test_register_refuses_descriptions_with_an_init() -> None:
    with_init = ms.parse(
        MATMUL.replace(
            "            C[v_i",
            "            with T.init():\n                C[v_i, v_j] = 0.0\n            C[v_i",
            1,
        )
    )
    with pytest.raises(ValueError, match="one nest of loops of constant extents with stores in it"):
        register_intrinsic("test.bad", with_init, with_init)


def test_register_refuses_parameters_that_are_not_used_up() -> None:
    part = ms.parse(SCALE.format("range").replace("range(8)", "range(7)"))
    with pytest.raises(ValueError, match="the description does not use all of A"):
        register_intrinsic("test.bad", part, part)


def test_register_refuses_another_meaning_of_a_name() -> None:
    register_intrinsic("test.dot", ms.parse(DOT), ms.parse(DOT_AT_ONCE))  # the same again is fine
    with pytest.raises(ValueError, match="registered already"):
        register_intrinsic("test.dot", ms.parse(MATMUL), ms.parse(OUTER_PRODUCTS))
    with pytest.raises(TypeError, match="description must be Program, got"):
        register_intrinsic("test.bad", DOT, DOT)  # pyright: ignore[reportArgumentType]


# --- anything goes ----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_accepted_steps_keep_the_results(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((4, 7, 8, 12)) for _ in range(3)]
    program = rng.choice((gmm(*sizes), CASES["18224"].small_program(), scale(rng.choice((8, 13, 24)))))
    sch = Schedule(program)
    for _ in range(7):
        blocks = [n for n in sch.state.nodes if isinstance(n, str)]
        block = sch.get_block(rng.choice(blocks))
        loops = sch.get_loops(block)
        name = rng.choice(("test.matmul", "test.dot", "test.scale"))
        try:
            match rng.randrange(7) if loops else 6:
                case 0 | 1:
                    sch.split(rng.choice(loops), [None, rng.choice((2, 4, 8))])
                case 2:
                    sch.reorder(*rng.sample(loops, min(3, len(loops))))
                case 3:
                    sch.blockize(rng.choice(loops))
                case 4:
                    sch.tensorize(rng.choice(loops), name)
                case 5:
                    sch.decompose_reduction(block, rng.choice(loops))
                case _:
                    sch.tensorize(block, name)
        except ScheduleError as error:
            str(error)
    check(sch, program, compiled=seed % 4 == 0)
