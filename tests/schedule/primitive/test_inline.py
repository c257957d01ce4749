"""compute_inline, reverse_compute_inline."""

from __future__ import annotations

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


def inline(program: Program, *names: str) -> Schedule:
    sch = Schedule(program)
    for name in names:
        sch.compute_inline(sch.get_block(name))
    return sch


def reverse_inline(program: Program, *names: str) -> Schedule:
    sch = Schedule(program)
    for name in names:
        sch.reverse_compute_inline(sch.get_block(name))
    return sch


def names_of(sch: Schedule) -> list[str]:
    return [b.name for b in blocks(sch.program)]


def chain() -> Program:
    a = te.placeholder((5, 7), name="A")
    b = te.compute((5, 7), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((7, 5), lambda i, j: b[j, i] * 2.0, name="C")
    return te.program([a], [c], name="chain")


# A program with one producer P of B and one consumer C; pieces vary.
def two_stages(
    producer: str = "B[vi] = A[vi] + 1.0",
    consumer: str = "C[vj] = B[vj] * 2.0",
    between: str = "",
    first: str = "",
    n: int = 8,
    where: str = "",
) -> Program:
    def indented(text: str) -> str:
        return "".join(f"    {line}\n" for line in text.splitlines())

    return ms.parse(
        'def main(A: T.Tensor((8,), "float32"), I: T.Tensor((8,), "int64"), C: T.Output((8,), "float32")):\n'
        '    B = T.alloc((8,), "float32")\n'
        '    S = T.alloc((8,), "float32")\n' + indented(first) + f"    for i in range({n}):\n"
        '        with T.block("P"):\n'
        f"            vi = T.spatial({n}, i)\n"
        + (f"            T.where({where})\n" if where else "")
        + f"            {producer}\n"
        + indented(between)
        + "    for j in range(8):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(8, j)\n"
        f"            {consumer}\n"
    )


def stage(name: str, line: str, loop: str = "t") -> str:
    return (
        f"for {loop} in range(8):\n"
        f'    with T.block("{name}"):\n'
        f"        v{loop} = T.spatial(8, {loop})\n"
        f"        {line}\n"
    )


# --- compute_inline ---


def test_compute_inline_golden() -> None:
    program = chain()
    assert str(program) == (
        "@ms.program\n"
        'def chain(A: T.Tensor((5, 7), "float32"), C: T.Output((7, 5), "float32")):\n'
        '    B = T.alloc((5, 7), "float32")\n'
        "    for i, j in T.grid(5, 7):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            T.reads(A[v_i, v_j])\n"
        "            T.writes(B[v_i, v_j])\n"
        "            B[v_i, v_j] = A[v_i, v_j] + 1.0\n"
        "    for i, j in T.grid(7, 5):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(7, i)\n"
        "            v_j = T.spatial(5, j)\n"
        "            T.reads(B[v_j, v_i])\n"
        "            T.writes(C[v_i, v_j])\n"
        "            C[v_i, v_j] = B[v_j, v_i] * 2.0"
    )
    sch = inline(program, "B")
    assert str(sch.program) == (
        "@ms.program\n"
        'def chain(A: T.Tensor((5, 7), "float32"), C: T.Output((7, 5), "float32")):\n'
        "    for i, j in T.grid(7, 5):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(7, i)\n"
        "            v_j = T.spatial(5, j)\n"
        "            T.reads(A[v_j, v_i])\n"
        "            T.writes(C[v_i, v_j])\n"
        "            C[v_i, v_j] = (A[v_j, v_i] + 1.0) * 2.0"
    )
    check(sch, program)


def test_compute_inline_golden_with_the_inverse_of_a_fused_layout() -> None:
    packed = ms.parse(
        'def main(A: T.Tensor((4, 6), "float32"), C: T.Output((24,), "float32")):\n'
        '    B = T.alloc((24,), "float32")\n'
        "    for i, j in T.grid(4, 6):\n"
        '        with T.block("B"):\n'
        "            vi = T.spatial(4, i)\n"
        "            vj = T.spatial(6, j)\n"
        "            B[vi * 6 + vj] = A[vi, vj] * 3.0\n"
        "    for k in range(24):\n"
        '        with T.block("C"):\n'
        "            vk = T.spatial(24, k)\n"
        "            C[vk] = B[23 - vk] + 1.0\n"
    )
    sch = inline(packed, "B")
    assert "C[vk] = A[(23 - vk) // 6, (5 - vk) % 6] * 3.0 + 1.0" in str(sch.program)
    check(sch, packed)


def test_compute_inline_refuses_an_output_with_the_whole_message() -> None:
    assert refusal(inline, chain(), "C") == "C is an output of the program"


def test_compute_inline_refuses_reductions() -> None:
    program = ms.workloads.create("SFM", shape=(3, 4))
    assert refusal(inline, program, "sum") == "block 'sum' is a reduction"


def test_compute_inline_refuses_several_stores_and_tuples() -> None:
    a = te.placeholder((5,), name="A")
    b, c = te.compute((5,), lambda i: (a[i] + 1.0, a[i] + 2.0), name="B")
    d = te.compute((5,), lambda i: b[i] * c[i], name="D")
    assert "does more than one store" in refusal(inline, te.program([a], [d]), "B")


def test_compute_inline_refuses_what_reads_itself() -> None:
    program = two_stages("B[vi] = B[vi] + A[vi]", first=stage("Z", "B[vt] = 0.0"))
    assert refusal(inline, program, "P") == "block 'P' reads what it writes"


def test_compute_inline_refuses_two_writers() -> None:
    program = two_stages(first=stage("Z", "B[vt] = 0.0"))
    assert refusal(inline, program, "P") == "B is also written elsewhere"


def test_compute_inline_same_results_of_a_scalar() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((), "float32"), X: T.Tensor((5,), "float32"), C: T.Output((5,), "float32")):\n'
        '    B = T.alloc((), "float32")\n'
        '    with T.block("P"):\n'
        "        B[()] = A[()] * 2.0\n"
        "    for j in range(5):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(5, j)\n"
        "            C[vj] = B[()] * X[vj]\n"
    )
    sch = Schedule(program)
    sch.compute_inline(sch.get_block("P"))
    assert [b.name for b in blocks(sch.program)] == ["C"]
    check(sch, program)


def test_compute_inline_refuses_opaque_producers() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((2,), "float32"), C: T.Output((2,), "float32")):\n'
        '    B = T.alloc((1,), "float32")\n'
        '    with T.block("P"):\n'
        "        B[0] = A[0]\n"
        "    for j in range(2):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(2, j)\n"
        "            C[vj] = B[0] * A[vj]\n"
    )
    assert refusal(inline, program, "P") == "block 'P' has no iterators: it is opaque"


def test_compute_inline_refuses_opaque_consumers() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((1,), "float32"), C: T.Output((1,), "float32")):\n'
        '    B = T.alloc((1,), "float32")\n'
        "    for i in range(1):\n"
        '        with T.block("P"):\n'
        "            vi = T.spatial(1, i)\n"
        "            B[vi] = A[vi]\n"
        '    with T.block("C"):\n'
        "        C[0] = B[0]\n"
    )
    assert refusal(inline, program, "P") == "block 'C', which reads B, is opaque"


def test_compute_inline_refuses_sources_written_in_between() -> None:
    program = two_stages(
        "B[vi] = S[vi] + 1.0", first=stage("Z", "S[vt] = A[vt]"), between=stage("Y", "S[vt] = A[vt] * 3.0")
    )
    assert refusal(inline, program, "P") == (
        "block 'P' would be computed from other values: S is written again by block 'Y'"
    )


def test_compute_inline_refuses_sources_that_the_consumer_writes() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):\n'
        '    B = T.alloc((8,), "float32")\n'
        + "".join(f"    {line}\n" for line in stage("Z", "C[vt] = A[vt]").splitlines())
        + "".join(f"    {line}\n" for line in stage("P", "B[vt] = C[7 - vt]").splitlines())
        + "".join(f"    {line}\n" for line in stage("Q", "C[vt] = B[vt] * 2.0").splitlines())
    )
    assert "C is written again by block 'Q'" in refusal(inline, program, "P")


def test_compute_inline_refuses_partial_sums() -> None:
    """B holds the running sums; S ends as the total."""
    program = ms.parse(
        'def main(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):\n'
        '    B = T.alloc((8,), "float32")\n'
        '    S = T.alloc((1,), "float32")\n'
        "    for k in range(8):\n"
        '        with T.block("S"):\n'
        "            vs = T.spatial(1, 0)\n"
        "            vk = T.reduce(8, k)\n"
        "            with T.init():\n"
        "                S[vs] = 0.0\n"
        "            S[vs] = S[vs] + A[vk]\n"
        '        with T.block("B"):\n'
        "            vb = T.spatial(8, k)\n"
        "            B[vb] = S[0]\n"
        "    for j in range(8):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(8, j)\n"
        "            C[vj] = B[vj] * 2.0\n"
    )
    assert "the reduction of block 'S' goes on around 'B'" in refusal(inline, program, "B")


def test_compute_inline_refuses_consumers_before_it() -> None:
    program = two_stages(first=stage("E", "S[vt] = B[vt]"))
    assert refusal(inline, program, "P") == "block 'E' runs before block 'P'"


def test_compute_inline_refuses_indices_that_do_not_determine_iterators() -> None:
    assert "do not determine" in refusal(inline, two_stages("B[vi // 2] = A[vi]"), "P")
    assert "do not determine" in refusal(inline, two_stages("B[vi * 2] = A[vi]", n=4), "P")
    assert "do not determine" in refusal(inline, two_stages("B[I[vi]] = A[vi]"), "P")


def test_compute_inline_refuses_reads_of_what_is_not_written() -> None:
    program = two_stages(n=4)
    assert refusal(inline, program, "P") == "block 'C' may read more than is written"


def test_compute_inline_refuses_a_part_that_cannot_be_computed_elsewhere() -> None:
    program = two_stages("B[vi] = A[vi + 3]", "C[vj] = T.select(vj < 5, B[vj], 0.0)", where="i < 5")
    assert "runs on a part of its iterators only" in refusal(inline, program, "P")
    fine = two_stages("B[vi] = A[vi]", "C[vj] = T.select(vj < 5, B[vj], 0.0)", where="i < 5")
    check(inline(fine, "P"), fine)


def test_compute_inline_refuses_reads_outside_of_blocks() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((4,), "int64"), C: T.Output((4, 4), "int64")):\n'
        '    B = T.alloc((4,), "int64")\n'
        "    for i in range(4):\n"
        '        with T.block("P"):\n'
        "            vi = T.spatial(4, i)\n"
        "            B[vi] = A[vi] % 4\n"
        "    for i, j in T.grid(4, 4):\n"
        '        with T.block("Z"):\n'
        "            vi = T.spatial(4, i)\n"
        "            vj = T.spatial(4, j)\n"
        "            C[vi, vj] = 0\n"
        "    for i in range(4):\n"
        "        for j in range(B[i]):\n"
        '            with T.block("C"):\n'
        "                vi = T.spatial(4, i)\n"
        "                vj = T.spatial(4, j)\n"
        "                C[vi, vj] = 1\n"
    )
    assert refusal(inline, program, "P") == "B is read outside of block bodies"


def test_compute_inline_refuses_what_nothing_reads() -> None:
    assert refusal(inline, two_stages(consumer="C[vj] = A[vj]"), "P") == "nothing reads B"


def test_compute_inline_refuses_signatures_without_loads() -> None:
    program = two_stages(consumer="T.reads(B[vj])\n            T.writes(C[vj])\n            C[vj] = 1.0")
    assert refusal(inline, program, "P") == "block 'C' reads B in its signature only"


CBR = {"n": 1, "h": 6, "w": 5, "ci": 2, "co": 3, "k": 3, "s": 2, "p": 1}


def test_compute_inline_same_in_cbr() -> None:
    program = ms.workloads.create("CBR", **CBR)
    sch = inline(program, "pad", "bias_add", "bn")
    assert names_of(sch) == ["conv", "relu"]
    check(sch, program)


def test_compute_inline_same_transposes_into_matmul() -> None:
    program = ms.workloads.create("TBG", b=1, s=5, h=3, d=4)
    sch = inline(program, "Q_transposed", "K_transposed")
    assert names_of(sch) == ["matmul"]
    check(sch, program)


def test_compute_inline_same_into_two_consumers() -> None:
    program = ms.workloads.create("SFM", shape=(5, 7))
    sch = inline(program, "exp")
    assert names_of(sch) == ["max", "sum", "softmax"]
    check(sch, program)


@pytest.mark.parametrize("name", ["T2D", "C1D", "C3D", "GRP", "DIL", "DEP", "CAP"])
def test_compute_inline_same_padding_of_convolutions(name: str) -> None:
    config = {k: v for k, v in ms.workloads.configurations(name)[0].items() if k != "dtype"}
    small = {"n": 1, "h": 4, "w": 5, "l": 7, "d": 3, "ci": 2, "co": 2, "c": 2, "k": 3, "s": 1, "p": 1}
    small |= {"groups": 1, "dilation": 1, "capsule": 2}
    program = ms.workloads.create(name, 0, **{k: small.get(k, v) for k, v in config.items()})
    first = blocks(program)[0].name
    check(inline(program, first), program)


def test_compute_inline_same_after_splits_and_fusion() -> None:
    program = chain()
    sch = Schedule(program)
    b = sch.get_block("B")
    i, j = sch.get_loops(b)
    i0, i1 = sch.split(i, [None, 2])
    j0, j1 = sch.split(j, [None, 3])
    sch.reorder(i0, j0, i1, j1)
    sch.split(sch.fuse(i0, j0), [None, 4])
    loops = sch.get_loops(sch.get_block("C"))
    sch.split(loops[0], [None, 4])
    sch.compute_inline(b)
    check(sch, program)


def test_compute_inline_same_chains_of_element_wise_stages() -> None:
    a = te.placeholder((5, 7), name="A")
    v = te.placeholder((7,), name="V")
    at = te.placeholder((5,), name="at", dtype="int64")
    b = te.compute((5, 7), lambda i, j: te.select(a[i, j] > 0.0, a[i, j] * v[j], v[j] - 1.0), name="B")
    c = te.compute((5, 7), lambda i, j: te.cast(te.cast(b[i, j], "int32"), "float32"), name="C")
    d = te.compute((7, 5), lambda i, j: c[te.minimum(te.maximum(at[j], 0), 4), 6 - i], name="D")
    e = te.compute((9, 5), lambda i, j: te.select(te.all_of([i >= 1, i < 8]), d[i - 1, j], 0.5), name="E")
    f = te.compute((3, 5, 3), lambda i, j, k: e[i * 3 + k, j] + e[i * 3 + k, 4 - j], name="F")
    program = te.program([a, v, at], [f])
    for order in ("BCDE", "EDCB", "CEBD"):
        sch = inline(program, *order)
        assert names_of(sch) == ["F"]
        check(sch, program)


def test_compute_inline_same_with_sources_computed_in_the_same_loop() -> None:
    """S is computed beside P, tile by tile, each element once: it may be read later as well."""
    program = ms.parse(
        'def main(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):\n'
        '    B = T.alloc((8,), "float32")\n'
        '    S = T.alloc((8,), "float32")\n'
        "    for t in range(4):\n"
        "        for u in range(2):\n"
        '            with T.block("S"):\n'
        "                vs = T.spatial(8, t * 2 + u)\n"
        "                S[vs] = A[vs] * 2.0\n"
        "        for u in range(2):\n"
        '            with T.block("P"):\n'
        "                vp = T.spatial(8, t * 2 + u)\n"
        "                B[vp] = S[vp] + 1.0\n"
        "    for j in range(8):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(8, j)\n"
        "            C[vj] = B[7 - vj]\n"
    )
    sch = inline(program, "P")
    assert names_of(sch) == ["S", "C"]
    check(sch, program)
    check(inline(program, "P", "S"), program)


NESTED = """
def main(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):
    B = T.alloc((8,), "float32")
    for t in range(2):
        with T.block("outer"):
            vt = T.spatial(2, t)
            T.reads(A[vt * 4 : vt * 4 + 4])
            T.writes(B[vt * 4 : vt * 4 + 4]%s)
            for i in range(4):
                with T.block("P"):
                    vi = T.spatial(8, vt * 4 + i)
                    B[vi] = A[vi] + 1.0
%s"""
CONSUMER = """for i in range(%d):
    with T.block("C"):
        vj = T.spatial(8, %s)
        C[vj] = B[vj] * 2.0
"""


def indented(text: str, by: int) -> str:
    return "".join(" " * by + line + "\n" for line in text.splitlines())


def test_compute_inline_same_inside_a_block() -> None:
    program = ms.parse(NESTED % (", C[vt * 4 : vt * 4 + 4]", indented(CONSUMER % (4, "vt * 4 + i"), 12)))
    sch = inline(program, "P")
    check(sch, program)
    outer = blocks(sch.program)[0]
    assert [r.buffer.name for r in (*outer.reads, *outer.writes)] == ["A", "C"]


def test_compute_inline_refuses_other_scopes() -> None:
    program = ms.parse(NESTED % ("", indented(CONSUMER % (8, "i"), 4)))
    assert refusal(inline, program, "P") == "the two blocks are not in the same scope"


def test_reverse_compute_inline_refuses_other_scopes() -> None:
    program = ms.parse(NESTED % ("", indented(CONSUMER % (8, "i"), 4)))
    assert refusal(reverse_inline, program, "C") == "the two blocks are not in the same scope"


def test_compute_inline_refuses_what_is_gone() -> None:
    sch = Schedule(chain())
    b = sch.get_block("B")
    loop = sch.get_loops(b)[0]
    sch.compute_inline(b)
    assert refusal(sch.compute_inline, b) == "the block of b0 ('B') is gone"
    assert refusal(sch.unroll, loop) == "the loop of l1 is gone"


# --- reverse_compute_inline ---


def test_reverse_compute_inline_golden() -> None:
    program = chain()
    sch = reverse_inline(program, "C")
    assert str(sch.program) == (
        "@ms.program\n"
        'def chain(A: T.Tensor((5, 7), "float32"), C: T.Output((7, 5), "float32")):\n'
        "    for i, j in T.grid(5, 7):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            T.reads(A[v_i, v_j])\n"
        "            T.writes(C[v_j, v_i])\n"
        "            C[v_j, v_i] = (A[v_i, v_j] + 1.0) * 2.0"
    )
    check(sch, program)


def test_reverse_compute_inline_golden_with_a_guard() -> None:
    a = te.placeholder((9,), name="A")
    b = te.compute((9,), lambda i: a[i] + 1.0, name="B")
    program = te.program([a], [te.compute((4,), lambda i: b[i + 2] * 2.0, name="C")])
    sch = reverse_inline(program, "C")
    text = str(sch.program)
    assert "T.where(i >= 2)" in text
    assert "T.where(i < 6)" in text
    assert "C[v_i - 2] = (A[v_i] + 1.0) * 2.0" in text
    check(sch, program)


@pytest.mark.parametrize("read", ["B[8 - vk * 2]", "B[vk * 2]", "B[vk + 3]", "B[7 - vk]"])
def test_reverse_compute_inline_same_with_strided_reads(read: str) -> None:
    program = ms.parse(
        'def main(A: T.Tensor((9,), "float32"), C: T.Output((4,), "float32")):\n'
        '    B = T.alloc((9,), "float32")\n'
        "    for i in range(9):\n"
        '        with T.block("B"):\n'
        "            vi = T.spatial(9, i)\n"
        "            B[vi] = A[vi] * 3.0\n"
        "    for k in range(4):\n"
        '        with T.block("C"):\n'
        "            vk = T.spatial(4, k)\n"
        f"            C[vk] = {read} + T.cast(vk, 'float32')\n"
    )
    check(reverse_inline(program, "C"), program)


def test_reverse_compute_inline_refuses_reductions_with_the_whole_message() -> None:
    program = ms.workloads.create("NRM", b=2, m=3, n=4)
    assert refusal(reverse_inline, program, "norm") == "block 'squares' is a reduction"


def test_reverse_compute_inline_refuses_other_readers() -> None:
    program = two_stages(between=stage("E", "S[vt] = B[vt]"))
    assert refusal(reverse_inline, program, "C") == "B is read by others than block 'C'"


def test_reverse_compute_inline_refuses_no_producer() -> None:
    program = two_stages(consumer="C[vj] = A[vj]")
    assert refusal(reverse_inline, program, "C") == "block 'C' reads nothing that a block computes"


def test_reverse_compute_inline_refuses_outputs_between() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((5,), lambda i: b[i] * 2.0, name="C")
    assert refusal(reverse_inline, te.program([a], [b, c]), "C") == "B is an output of the program"


def test_reverse_compute_inline_refuses_several_reads() -> None:
    program = two_stages(consumer="C[vj] = B[vj] + B[7 - vj]")
    assert refusal(reverse_inline, program, "C") == "block 'C' reads several elements of B"


def test_reverse_compute_inline_refuses_broadcasts() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((5, 3), lambda i, j: b[i] * 2.0, name="C")
    assert "more than once" in refusal(reverse_inline, te.program([a], [c]), "C")
    assert "more than once" in refusal(reverse_inline, two_stages(consumer="C[vj] = B[I[vj]]"), "C")


def test_reverse_compute_inline_refuses_reads_beyond() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] + 1.0, name="B")
    pad = te.compute((7,), lambda i: te.select(te.all_of([i >= 1, i < 6]), b[i - 1], 0.0), name="C")
    assert refusal(reverse_inline, te.program([a], [pad]), "C") == "block 'C' reads more of B than is written"


def test_reverse_compute_inline_refuses_holes() -> None:
    program = two_stages("B[vi * 2] = A[vi]", "C[vj] = T.select(vj % 2 == 0, B[vj], 0.0)", n=4)
    assert refusal(reverse_inline, program, "C") == "block 'P' may not write every element of B once"


def test_reverse_compute_inline_refuses_sources_that_are_not_ready() -> None:
    program = two_stages(consumer="C[vj] = B[vj] + A[vj]", between=stage("Y", "S[vt] = A[vt]"))
    check(reverse_inline(program, "C"), program)
    program = two_stages(
        "B[vi] = A[vi]", "C[vj] = B[vj] + S[vj]", first=stage("Y", "S[vt] = A[vt]"),
        between=stage("X", "S[vt] = A[vt] * 2.0"),
    )  # fmt: skip
    assert "S is also written elsewhere" in refusal(reverse_inline, program, "C")


def test_reverse_compute_inline_refuses_sources_that_are_not_final() -> None:
    program = ms.parse(
        'def main(A: T.Tensor((8,), "float32"), C: T.Output((8,), "float32")):\n'
        '    B = T.alloc((8,), "float32")\n'
        '    S = T.alloc((1,), "float32")\n'
        "    for k in range(8):\n"
        '        with T.block("S"):\n'
        "            vs = T.spatial(1, 0)\n"
        "            vk = T.reduce(8, k)\n"
        "            with T.init():\n"
        "                S[vs] = 0.0\n"
        "            S[vs] = S[vs] + A[vk]\n"
        '        with T.block("B"):\n'
        "            vb = T.spatial(8, k)\n"
        "            B[vb] = A[vb]\n"
        "    for j in range(8):\n"
        '        with T.block("C"):\n'
        "            vj = T.spatial(8, j)\n"
        "            C[vj] = B[vj] * S[0]\n"
    )
    assert refusal(reverse_inline, program, "C") == (
        "block 'C' would read other values in block 'B': S may change: "
        "the reduction of block 'S' goes on around 'B'"
    )


def test_reverse_compute_inline_refuses_outputs_touched_before() -> None:
    program = two_stages(consumer="C[7 - vj] = B[vj]", between=stage("Y", "C[vt] = A[vt]"))
    assert refusal(reverse_inline, program, "C") == "C is used before block 'C' writes it"


def test_reverse_compute_inline_refuses_parts() -> None:
    program = two_stages(where="i < 6")
    assert "does not certainly run at every point" in refusal(reverse_inline, program, "C")


def test_reverse_compute_inline_refuses_stores_to_one_element() -> None:
    program = two_stages(consumer="C[vj // 2] = B[vj]", between=stage("Y", "S[vt] = A[vt]"))
    assert "may matter" in refusal(reverse_inline, program, "C")


def test_reverse_compute_inline_same_in_cbr() -> None:
    program = ms.workloads.create("CBR", **CBR)
    sch = reverse_inline(program, "bn", "relu")
    assert names_of(sch) == ["pad", "conv", "bias_add"]
    check(sch, program)


def test_reverse_compute_inline_same_into_a_tiled_producer() -> None:
    program = chain()
    sch = Schedule(program)
    i, j = sch.get_loops(sch.get_block("B"))
    i0, i1 = sch.split(i, [None, 2])
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i0, j0, i1, j1)
    sch.fuse(i0, j0)
    c = sch.get_block("C")
    sch.split(sch.get_loops(c)[1], [None, 3])
    sch.reverse_compute_inline(c)
    assert names_of(sch) == ["B"]
    check(sch, program)


# --- any ---

SIZES = st.integers(1, 5)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Chains of stages over two-dimensional tensors, some of them reductions or padding."""
    n, m = draw(SIZES), draw(SIZES)
    x = te.placeholder((n, m), name="X")
    known = [x]
    for at in range(draw(st.integers(1, 4))):
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        h, w = a.shape
        kind = draw(
            st.sampled_from(["unary", "transpose", "both", "pad", "crop", "row", "sum", "flip", "broadcast"])
        )
        name = f"S{at}"
        if kind == "unary":
            new = te.compute((h, w), lambda i, j, a=a: te.maximum(a[i, j], 0.0) + 1.0, name=name)
        elif kind == "transpose":
            new = te.compute((w, h), lambda i, j, a=a: a[j, i] * 2.0, name=name)
        elif kind == "both":
            p, q = min(h, b.shape[0]), min(w, b.shape[1])
            new = te.compute((p, q), lambda i, j, a=a, b=b: a[i, j] - b[i, j], name=name)
        elif kind == "pad":
            new = te.compute(
                (h + 2, w),
                lambda i, j, a=a, h=h: te.select(te.all_of([i >= 1, i < h + 1]), a[i - 1, j], 0.0),
                name=name,
            )
        elif kind == "crop":
            new = te.compute((h, max(w - 1, 1)), lambda i, j, a=a, w=w: a[i, j + min(1, w - 1)], name=name)
        elif kind == "row":
            new = te.compute((1, h * w), lambda i, j, a=a, w=w: a[j // w, j % w], name=name)
        elif kind == "sum":
            k = te.reduce_axis(w)
            new = te.compute((h, 1), lambda i, j, a=a, k=k: te.sum(a[i, k], axis=k), name=name)
        elif kind == "flip":
            new = te.compute((h, w), lambda i, j, a=a, h=h, w=w: a[h - 1 - i, w - 1 - j], name=name)
        else:
            new = te.compute((h, w), lambda i, j, a=a: a[i, 0] + a[0, j], name=name)
        known.append(new)
    return te.program([x], [known[-1]])


@given(programs(), st.data())
def test_any_inlining_preserves_results(program: Program, data: st.DataObject) -> None:
    sch = Schedule(program)
    for _ in range(data.draw(st.integers(1, 5))):
        block = sch.get_block(data.draw(st.sampled_from(names_of(sch))))
        loops = sch.get_loops(block)
        step = data.draw(st.sampled_from(["compute_inline", "reverse_compute_inline", "split", "fuse"]))
        try:
            if step == "split":
                sch.split(data.draw(st.sampled_from(loops)), [None, data.draw(st.integers(1, 4))])
            elif step == "fuse":
                sch.fuse(*loops[:2])
            else:
                getattr(sch, step)(block)
        except ScheduleError as error:
            str(error)  # can be shown
    check(sch, program, compiled=False)


def test_compute_inline_same_whatever_the_values() -> None:
    program = ms.workloads.create("CBR", **CBR)
    assert_same_results(program, inline(program, "bn", "bias_add", "pad").program)
