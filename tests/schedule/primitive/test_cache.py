"""cache_read, cache_write, reindex, set_scope, storage_align."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen.lower import lower
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.refusals import refusal

SMALL: dict[str, dict[str, Any]] = {
    "GMM": {"b": 1, "n": 5, "m": 7, "k": 6},
    "C2D": {"n": 1, "h": 7, "w": 6, "ci": 3, "co": 4, "k": 3, "s": 2, "p": 1},
    "CBR": {"n": 1, "h": 5, "w": 4, "ci": 2, "co": 3, "k": 3, "s": 1, "p": 1},
    "T2D": {"n": 1, "h": 3, "w": 2, "ci": 2, "co": 3, "k": 4, "s": 2, "p": 1},
    "SFM": {"shape": (5, 7)},
    "TBG": {"b": 1, "s": 5, "h": 2, "d": 3},
    "NRM": {"b": 2, "m": 3, "n": 5},
}


def small(name: str) -> Program:
    return ms.workloads.create(name, **SMALL[name])


def scale(n: int = 5) -> Program:
    a = te.placeholder((n,), name="A")
    return te.program([a], [te.compute((n,), lambda i: a[i] * 2.0, name="B")], name="scale")


def chain(n: int = 6, m: int = 5) -> Program:
    """Three stages, the second read by the third at two places."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((m, n), lambda i, j: b[j, i] * 2.0, name="C")
    d = te.compute((m, n - 1), lambda i, j: c[i, j] + c[i, j + 1] * b[j, i], name="D")
    return te.program([a], [d], name="chain")


def block_names(sch: Schedule) -> list[str]:
    return [k for k in sch.state.nodes if isinstance(k, str)]


def body_of(sch: Schedule) -> str:
    """The printed program from its first buffer or loop on."""
    lines = str(sch.program).splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("    ")) :])


def split_everything(sch: Schedule, block: Any, factor: int = 2) -> None:
    for loop in sch.get_loops(block):
        sch.split(loop, [None, factor])


IN_ONE_LOOP = """
@ms.program
def nest(A: T.Tensor((6, 5), "float32"), C: T.Output((6, 5), "float32")):
    B = T.alloc((6, 5), "float32")
    for i in range(6):
        for j in range(5):
            with T.block("B"):
                v = T.spatial(6, i)
                w = T.spatial(5, j)
                B[v, w] = A[v, w] + 1.0
        for j in range(5):
            with T.block("C"):
                v = T.spatial(6, i)
                w = T.spatial(5, j)
                C[v, w] = B[v, 4 - w] * 2.0
"""

TRIANGLE = """
@ms.program
def triangle(A: T.Tensor((5, 5), "float32"), C: T.Output((5, 5), "float32")):
    B = T.alloc((5, 5), "float32")
    for i in range(5):
        for j in range(i + 1):
            with T.block("B"):
                v = T.spatial(5, i)
                w = T.spatial(5, j)
                B[v, w] = A[v, w] + 1.0
    for i, j in T.grid(5, 5):
        with T.block("C"):
            v = T.spatial(5, i)
            w = T.spatial(5, j)
            C[v, w] = T.select(w <= v, B[v, w], 0.0)
"""

IN_PLACE = """
@ms.program
def in_place(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
    for i in range(4):
        with T.block("start"):
            v = T.spatial(4, i)
            B[v] = A[v]
    for i in range(4):
        with T.block("again"):
            v = T.spatial(4, i)
            B[v] = B[v] * 2.0
"""

TWICE = """
@ms.program
def twice(A: T.Tensor((4,), "float32"), C: T.Output((4,), "float32"), D: T.Output((4,), "float32")):
    B = T.alloc((4,), "float32")
    for i in range(4):
        with T.block("B"):
            v = T.spatial(4, i)
            B[v] = A[v]
    for i in range(4):
        with T.block("C"):
            v = T.spatial(4, i)
            C[v] = B[v] + 1.0
    for i in range(4):
        with T.block("B2"):
            v = T.spatial(4, i)
            B[v] = A[v] * 3.0
    for i in range(4):
        with T.block("D"):
            v = T.spatial(4, i)
            D[v] = B[v] + 2.0
"""

NESTED = """
@ms.program
def nested(A: T.Tensor((8, 6), "float32"), B: T.Output((8, 6), "float32")):
    for i, j in T.grid(4, 3):
        with T.block("outer"):
            vi = T.spatial(4, i)
            vj = T.spatial(3, j)
            T.reads(A[vi * 2 : T.size(2), vj * 2 : T.size(2)])
            T.writes(B[vi * 2 : T.size(2), vj * 2 : T.size(2)])
            for x, y in T.grid(2, 2):
                with T.block("inner"):
                    u = T.spatial(8, vi * 2 + x)
                    w = T.spatial(6, vj * 2 + y)
                    B[u, w] = A[u, w] * 2.0
"""

GATHER = """
@ms.program
def gather(A: T.Tensor((7, 3), "float32"), I: T.Tensor((5,), "int64"), B: T.Output((5, 3), "float32")):
    for i, j in T.grid(5, 3):
        with T.block("B"):
            v = T.spatial(5, i)
            w = T.spatial(3, j)
            B[v, w] = A[T.max(I[v], 0), w]
"""


# --- cache_read ---


def test_cache_read_golden() -> None:
    sch = Schedule(scale())
    copy = sch.cache_read(sch.get_block("B"), 0)
    assert sch.get(copy).name == "A_local"
    assert str(sch.program) == (
        "@ms.program\n"
        'def scale(A: T.Tensor((5,), "float32"), B: T.Output((5,), "float32")):\n'
        '    A_local = T.alloc((5,), "float32", scope="local")\n'
        "    for ax0 in range(5):\n"
        '        with T.block("A_local"):\n'
        "            v0 = T.spatial(5, ax0)\n"
        "            T.reads(A[v0])\n"
        "            T.writes(A_local[v0])\n"
        "            A_local[v0] = A[v0]\n"
        "    for i in range(5):\n"
        '        with T.block("B"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            T.reads(A_local[v_i])\n"
        "            T.writes(B[v_i])\n"
        "            B[v_i] = A_local[v_i] * 2.0"
    )


def test_cache_read_golden_in_the_loop_that_writes() -> None:
    program = ms.parse(IN_ONE_LOOP)
    sch = Schedule(program)
    sch.cache_read(sch.get_block("C"), 0)
    assert (
        "        for ax0, ax1 in T.grid(1, 5):\n"
        '            with T.block("B_local"):\n'
        "                v0 = T.spatial(6, i)\n"
        "                v1 = T.spatial(5, ax1)\n"
    ) in str(sch.program)
    check(sch, program)


def test_cache_read_same_results_in_a_split_loop_that_writes() -> None:
    program = ms.parse(IN_ONE_LOOP)
    sch = Schedule(program)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.split(i, [None, 4])
    sch.split(j, [None, 3])
    sch.cache_read(sch.get_block("C"), 0)
    check(sch, program)


def test_cache_read_same_results_for_several_consumers() -> None:
    program = chain()
    sch = Schedule(program)
    c, d = sch.get_block("C"), sch.get_block("D")
    reads = [r.buffer.name for r in sch.get(c).reads]
    sch.cache_read(c, reads.index("B"), "global", consumers=[d])
    assert "B_global" in str(sch.get(d))
    assert "B_global" in str(sch.get(c))
    check(sch, program)


@pytest.mark.parametrize("name", SMALL)
def test_cache_read_same_results_of_every_read(name: str) -> None:
    program = small(name)
    sch = Schedule(program)
    for block in map(sch.get_block, block_names(sch)):
        split_everything(sch, block)
        for n in range(len(sch.get(block).reads)):
            copy = sch.cache_read(block, n)
            sch.cache_read(copy, 0, "global")
    check(sch, program)


def test_cache_read_same_results_between_two_writers() -> None:
    program = ms.parse(TWICE)
    sch = Schedule(program)
    sch.cache_read(sch.get_block("C"), 0)
    sch.cache_read(sch.get_block("D"), 0)
    check(sch, program)


def test_cache_read_same_results_inside_a_block() -> None:
    program = ms.parse(NESTED)
    sch = Schedule(program)
    sch.cache_read(sch.get_block("inner"), 0)
    assert "for ax0, ax1 in T.grid(2, 2):" in str(sch.program)
    check(sch, program)
    sch = Schedule(program)
    sch.cache_read(sch.get_block("outer"), 0)
    assert "for ax0, ax1 in T.grid(8, 6):" in str(sch.program)
    check(sch, program)


def test_cache_read_same_results_of_an_indirect_read() -> None:
    program = ms.parse(GATHER)
    sch = Schedule(program)
    for n in (0, 1):
        sch.cache_read(sch.get_block("B"), n)
    check(sch, program)


def test_cache_read_same_results_of_copies_moved_into_the_tile() -> None:
    program = small("GMM")
    sch = Schedule(program)
    block = sch.get_block("matmul")
    copies = [sch.cache_read(block, n) for n in (0, 1)]
    write = sch.cache_write(block, 0)
    b, i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(x, [None, 4]) for x in (i, j, k))
    sch.reorder(b, i0, j0, k0, i1, j1, k1)
    for copy in copies:
        sch.compute_at(copy, k0)
    sch.reverse_compute_at(write, j0)
    sch.cache_read(copies[0], 0, "global")
    check(sch, program)


def test_cache_read_same_results_below_a_block_moved_there() -> None:
    # The producer now fills a tile at a time, so the copy is of a tile, and clipped as the producer is.
    program = chain()
    sch = Schedule(program)
    sch.compute_inline(sch.get_block("B"))
    consumer = sch.get_block("D")
    i, _ = sch.get_loops(consumer)
    i0, _ = sch.split(i, [None, 2])
    sch.compute_at(sch.get_block("C"), i0)
    reads = [r.buffer.name for r in sch.get(consumer).reads]
    sch.cache_read(consumer, reads.index("C"))
    sch.cache_write(sch.get_block("C"), 0)
    check(sch, program)


def test_cache_read_same_results_of_a_number_without_dimensions() -> None:
    a = te.placeholder((), name="A")
    program = te.program([a], [te.compute((3,), lambda i: a[()] * 2.0, name="B")])
    sch = Schedule(program)
    sch.cache_read(sch.get_block("B"), 0)
    check(sch, program)


def test_cache_read_same_results_of_padded_rows() -> None:
    # storage_align leaves elements that nobody writes: they are not copied.
    program = chain()
    sch = Schedule(program)
    sch.storage_align(sch.get_block("B"), 0, 0, 8)
    sch.cache_read(sch.get_block("C"), 0)
    assert "for ax0, ax1 in T.grid(6, 5):" in str(sch.program)
    check(sch, program)


def test_cache_read_refuses_an_index_out_of_range() -> None:
    sch = Schedule(scale())
    assert refusal(sch.cache_read, sch.get_block("B"), 1) == "block 'B' has no read 1"


def test_cache_read_refuses_an_unknown_scope() -> None:
    sch = Schedule(scale())
    assert "unknown scope 'moon'" in refusal(sch.cache_read, sch.get_block("B"), 0, "moon")


def test_cache_read_refuses_a_block_that_writes_the_buffer() -> None:
    sch = Schedule(ms.parse(IN_PLACE))
    assert "block 'again' reads and writes B" in refusal(sch.cache_read, sch.get_block("again"), 0)


def test_cache_read_refuses_a_writer_between_the_consumers() -> None:
    sch = Schedule(ms.parse(TWICE))
    assert "B is written between the copy and its readers" in refusal(
        sch.cache_read, sch.get_block("C"), 0, consumers=[sch.get_block("D")]
    )


def test_cache_read_refuses_a_consumer_that_does_not_read() -> None:
    sch = Schedule(chain())
    assert "block 'D' does not read A" in refusal(
        sch.cache_read, sch.get_block("B"), 0, consumers=[sch.get_block("D")]
    )


def test_cache_read_refuses_consumers_of_other_scopes() -> None:
    sch = Schedule(ms.parse(NESTED))
    assert "the consumers are not in the same scope" in refusal(
        sch.cache_read, sch.get_block("inner"), 0, consumers=[sch.get_block("outer")]
    )


def test_cache_read_refuses_what_may_not_be_written() -> None:
    sch = Schedule(ms.parse(TRIANGLE))
    assert "not all of B is known to be written where it would be copied" in refusal(
        sch.cache_read, sch.get_block("C"), 0
    )


def test_cache_read_refuses_loops_bound_to_an_axis() -> None:
    sch = Schedule(ms.parse(IN_ONE_LOOP))
    sch.bind(sch.get_loops(sch.get_block("B"))[0], "blockIdx.x")
    assert "the copy would have to run inside of a blockIdx" in refusal(sch.cache_read, sch.get_block("C"), 0)
    assert "the copy would have to run inside of a blockIdx" in refusal(
        sch.cache_write, sch.get_block("B"), 0
    )


def test_cache_read_same_results_in_a_parallel_loop() -> None:
    program = ms.parse(IN_ONE_LOOP)
    sch = Schedule(program)
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    sch.cache_read(sch.get_block("C"), 0)
    sch.cache_write(sch.get_block("B"), 0)
    check(sch, program)


# --- cache_write ---


def test_cache_write_golden() -> None:
    sch = Schedule(small("GMM"))
    sch.cache_write(sch.get_block("matmul"), 0)
    assert body_of(sch).split('T.Output((1, 5, 7), "float32"),\n):\n')[1] == (
        '    matmul_local = T.alloc((1, 5, 7), "float32", scope="local")\n'
        "    for b, i, j, k in T.grid(1, 5, 7, 6):\n"
        '        with T.block("matmul"):\n'
        "            v_b = T.spatial(1, 0)\n"
        "            v_i = T.spatial(5, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            v_k = T.reduce(6, k)\n"
        "            T.reads(X[v_b, v_i, v_k], Y[v_b, v_k, v_j])\n"
        "            T.writes(matmul_local[v_b, v_i, v_j])\n"
        "            with T.init():\n"
        "                matmul_local[v_b, v_i, v_j] = 0.0\n"
        "            matmul_local[v_b, v_i, v_j] = matmul_local[v_b, v_i, v_j] + "
        "X[v_b, v_i, v_k] * Y[v_b, v_k, v_j]\n"
        "    for ax0, ax1, ax2 in T.grid(1, 5, 7):\n"
        '        with T.block("matmul_local"):\n'
        "            v0 = T.spatial(1, 0)\n"
        "            v1 = T.spatial(5, ax1)\n"
        "            v2 = T.spatial(7, ax2)\n"
        "            T.reads(matmul_local[v0, v1, v2])\n"
        "            T.writes(matmul[v0, v1, v2])\n"
        "            matmul[v0, v1, v2] = matmul_local[v0, v1, v2]"
    )


@pytest.mark.parametrize("name", SMALL)
def test_cache_write_same_results_of_every_block(name: str) -> None:
    program = small(name)
    sch = Schedule(program)
    for block in map(sch.get_block, block_names(sch)):
        split_everything(sch, block, 3)
        sch.cache_write(block, 0)
        sch.cache_write(block, 0, "global")
    check(sch, program)


def test_cache_write_same_results_in_the_loop_that_reads() -> None:
    program = ms.parse(IN_ONE_LOOP)
    sch = Schedule(program)
    i, _ = sch.get_loops(sch.get_block("B"))
    sch.split(i, [None, 4])
    sch.cache_write(sch.get_block("B"), 0)
    sch.cache_write(sch.get_block("C"), 0)
    check(sch, program)


def test_cache_write_same_results_of_several_outputs() -> None:
    program = ms.parse(TWICE)
    sch = Schedule(program)
    for name in ("C", "D"):
        sch.cache_write(sch.get_block(name), 0)
    check(sch, program)


def test_cache_write_same_results_of_an_output_written_under_a_condition() -> None:
    # The proof of what a block writes fails here; an output is written whole all the same.
    program = ms.parse("""
@ms.program
def sides(A: T.Tensor((6,), "float32"), B: T.Output((6,), "float32")):
    for i in range(6):
        with T.block("B"):
            v = T.spatial(6, i)
            if v < 3:
                B[v] = A[v]
            else:
                B[v] = A[v] * 2.0
""")
    sch = Schedule(program)
    sch.cache_write(sch.get_block("B"), 0)
    check(sch, program)


def test_cache_write_same_results_of_a_block_with_blocks_inside() -> None:
    program = ms.parse(NESTED)
    sch = Schedule(program)
    sch.cache_write(sch.get_block("outer"), 0)
    check(sch, program)


def test_cache_write_same_results_then_moved_into_the_reduction() -> None:
    """Case 17799: partial sums copied in every step of the outer reduction loop, the last of them right."""
    a = te.placeholder((6, 8, 4), name="A")
    k = te.reduce_axis(8, name="k")
    program = te.program([a], [te.compute((6, 4), lambda i, j: te.sum(a[i, k, j], axis=k), name="B")])
    sch = Schedule(program)
    block = sch.get_block("B")
    i, j, k = sch.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(x, [None, 2]) for x in (i, j, k))
    sch.reorder(i0, k0, j0, i1, k1, j1)
    copy = sch.cache_write(block, 0)
    with contextlib.suppress(ms.ScheduleError):
        sch.reverse_compute_at(copy, j0)
    check(sch, program)


def test_cache_write_refuses_two_writers() -> None:
    sch = Schedule(ms.parse(TWICE))
    assert refusal(sch.cache_write, sch.get_block("B"), 0) == "block 'B' is not the only writer of B"


def test_cache_write_refuses_a_block_that_reads_the_buffer() -> None:
    sch = Schedule(ms.parse(IN_PLACE))
    assert "block 'again' reads and writes B" in refusal(sch.cache_write, sch.get_block("again"), 0)


def test_cache_write_refuses_blocks_inside_of_blocks() -> None:
    sch = Schedule(ms.parse(NESTED))
    assert "block 'inner' is inside of block 'outer'" in refusal(sch.cache_write, sch.get_block("inner"), 0)


def test_cache_write_refuses_what_may_not_be_written() -> None:
    sch = Schedule(ms.parse(TRIANGLE))
    assert "not all of B is known to be written by block 'B'" in refusal(
        sch.cache_write, sch.get_block("B"), 0
    )


def test_cache_write_refuses_an_index_out_of_range() -> None:
    sch = Schedule(scale())
    assert "block 'B' has no write -1" in refusal(sch.cache_write, sch.get_block("B"), -1)


# --- reindex ---


def test_reindex_golden_of_a_read() -> None:
    a = te.placeholder((5, 9), name="A")
    k = te.reduce_axis(5, name="k")
    program = te.program([a], [te.compute((4,), lambda i: te.sum(a[k, i * 2], axis=k), name="B")])
    sch = Schedule(program)
    sch.reindex(sch.get_block("B"), 0, "read")
    text = str(sch.program)
    assert (
        '    A_reindex = T.alloc((4, 5), "float32")\n'
        "    for ax0, ax1 in T.grid(4, 5):\n"
        '        with T.block("A_reindex"):\n'
        "            v_i = T.spatial(4, ax0)\n"
        "            v_k = T.spatial(5, ax1)\n"
        "            T.reads(A[v_k, v_i * 2])\n"
        "            T.writes(A_reindex[v_i, v_k])\n"
        "            A_reindex[v_i, v_k] = A[v_k, v_i * 2]\n"
    ) in text
    assert "B[v_i] = B[v_i] + A_reindex[v_i, v_k]" in text
    check(sch, program)


def test_reindex_golden_of_a_write() -> None:
    a = te.placeholder((3, 4), name="A")
    program = te.program([a], [te.compute((3, 4), lambda i, j: a[i, j] + 1.0, name="B")])
    sch = Schedule(program)
    sch.reorder_block_iter_var(sch.get_block("B"), (1, 0))
    sch.reindex(sch.get_block("B"), 0, "write")
    assert "B_reindex[v_j, v_i] = A[v_i, v_j] + 1.0" in str(sch.program)
    assert "B[v_i, v_j] = B_reindex[v_j, v_i]" in str(sch.program)
    check(sch, program)


@pytest.mark.parametrize("name", SMALL)
def test_reindex_same_results_of_everything(name: str) -> None:
    program = small(name)
    sch = Schedule(program)
    accepted, refused = 0, list[str]()
    for block in map(sch.get_block, block_names(sch)):
        split_everything(sch, block)
        calls = [(n, "read") for n in range(len(sch.get(block).reads))] + [(0, "write")]
        for n, kind in calls:
            try:
                sch.reindex(block, n, kind)
                accepted += 1
            except ms.ScheduleError as error:
                refused.append(error.message)
    assert accepted
    assert all("at several places" in why or "not all values" in why for why in refused)
    check(sch, program)


def test_reindex_same_results_of_a_read_that_is_guarded() -> None:
    # The padding's read of X at -1 never happens, so the copy must not do it either.
    program = small("C2D")
    sch = Schedule(program)
    sch.reindex(sch.get_block("pad"), 0, "read")
    assert "T.where(ax1 >= 1)" in str(sch.program)
    check(sch, program)


def test_reindex_refuses_several_places() -> None:
    sch = Schedule(chain())
    block = sch.get_block("D")
    reads = [r.buffer.name for r in sch.get(block).reads]
    assert refusal(sch.reindex, block, reads.index("C"), "read") == "block 'D' uses C at several places"


def test_reindex_refuses_an_unknown_kind() -> None:
    sch = Schedule(scale())
    assert "kind is 'both'" in refusal(sch.reindex, sch.get_block("B"), 0, "both")


def test_reindex_refuses_indirect_reads() -> None:
    sch = Schedule(ms.parse(GATHER))
    block = sch.get_block("B")
    reads = [r.buffer.name for r in sch.get(block).reads]
    assert "does not use A by iterators of constant extent alone" in refusal(
        sch.reindex, block, reads.index("A"), "read"
    )


def test_reindex_refuses_blocks_inside() -> None:
    sch = Schedule(ms.parse(NESTED))
    assert "block 'outer' has blocks inside" in refusal(sch.reindex, sch.get_block("outer"), 0, "read")


def test_reindex_refuses_elements_written_twice() -> None:
    program = ms.parse("""
@ms.program
def overlap(A: T.Tensor((4, 3), "float32"), B: T.Output((6,), "float32")):
    for i, j in T.grid(4, 3):
        with T.block("B"):
            v = T.spatial(4, i)
            w = T.spatial(3, j)
            B[v + w] = A[v, w]
""")
    sch = Schedule(program)
    assert "several values of the iterators may give the same element of B" in refusal(
        sch.reindex, sch.get_block("B"), 0, "write"
    )


def test_reindex_refuses_loops_that_write() -> None:
    sch = Schedule(ms.parse(IN_ONE_LOOP))
    assert "B is written in a loop around the block" in refusal(sch.reindex, sch.get_block("C"), 0, "read")


# --- set_scope ---


def test_set_scope_golden() -> None:
    program = chain()
    sch = Schedule(program)
    sch.set_scope(sch.get_block("B"), 0, "local")
    assert 'B = T.alloc((6, 5), "float32", scope="local")' in str(sch.program)
    assert str(sch.program).replace(', scope="local"', "") == str(program)


def test_set_scope_same_results() -> None:
    program = small("CBR")
    sch = Schedule(program)
    for name in block_names(sch):
        block = sch.get_block(name)
        copy = sch.cache_write(block, 0, "global")
        sch.set_scope(block, 0, "local")
        sch.set_scope(block, 0, "local")
        del copy
    check(sch, program)


def test_set_scope_refuses_parameters() -> None:
    sch = Schedule(scale())
    assert refusal(sch.set_scope, sch.get_block("B"), 0, "local") == "B is a parameter of the program"


def test_set_scope_refuses_unknown_scopes() -> None:
    sch = Schedule(chain())
    assert "unknown scope 'moon'" in refusal(sch.set_scope, sch.get_block("B"), 0, "moon")


# --- storage_align ---


def test_storage_align_golden() -> None:
    program = chain()
    sch = Schedule(program)
    sch.storage_align(sch.get_block("B"), 0, axis=0, factor=8, offset=3)
    expected = str(program).replace(
        'B = T.alloc((6, 5), "float32")', 'B = T.alloc((6, 5), "float32", strides=(11, 1))'
    )
    assert (
        str(sch.program).replace('            T.annotate({"storage_align": ((0, 0, 8, 3),)})\n', "")
        == expected
    )


@pytest.mark.parametrize(("factor", "offset"), [(8, 0), (8, 3), (1, 0), (5, 0), (16, 1)])
def test_storage_align_same_results(factor: int, offset: int) -> None:
    program = small("C2D")
    sch = Schedule(program)
    block = sch.get_block("pad")
    sch.storage_align(block, 0, 2, factor, offset)
    sch.storage_align(block, 0, 0, 2, 0)
    for lowered in (sch.program, lower(sch.program).program):
        (pad,) = [b for b in lowered.allocs if b.name == "pad"]
        assert pad.strides[2] % factor == offset
        assert pad.strides[0] % 2 == 0
        assert pad.strides[2] >= pad.shape[3]
        assert pad.strides[3] == 1
    check(sch, program)


def test_storage_align_refuses_parameters() -> None:
    sch = Schedule(small("GMM"))
    assert (
        refusal(sch.storage_align, sch.get_block("matmul"), 0, 0, 8) == "matmul is a parameter of the program"
    )


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "message"),
    [
        (1, 8, 0, "axis 1 of B, which has 2 dimension"),
        (-1, 8, 0, "axis -1 of B"),
        (0, 0, 0, "factor 0 and offset 0"),
        (0, 4, 4, "factor 4 and offset 4"),
    ],
)
def test_storage_align_refuses_bad_numbers(axis: int, factor: int, offset: int, message: str) -> None:
    sch = Schedule(chain())
    assert message in refusal(sch.storage_align, sch.get_block("B"), 0, axis, factor, offset)


def test_storage_align_of_an_outer_axis_holds_what_was_asked_for_inner_ones() -> None:
    program = small("C2D")
    sch = Schedule(program)
    block = sch.get_block("pad")
    sch.storage_align(block, 0, 1, 3, 1)  # no padding of whole rows gives that
    sch.storage_align(block, 0, 2, 8, 5)
    (pad,) = [b for b in sch.program.allocs if b.name == "pad"]
    assert pad.strides[1] % 3 == 1
    assert pad.strides[2] % 8 == 5
    check(sch, program)


# --- together ---


@given(st.sampled_from([*SMALL, "chain", "nest", "twice", "triangle", "nested"]), st.integers(0, 2**32))
def test_cache_primitives_keep_results(name: str, seed: int) -> None:
    scripts = {"nest": IN_ONE_LOOP, "twice": TWICE, "triangle": TRIANGLE, "nested": NESTED}
    program = small(name) if name in SMALL else ms.parse(scripts[name]) if name in scripts else chain()
    rng = random.Random(seed)
    sch = Schedule(program)
    for _ in range(rng.randrange(1, 7)):
        block = sch.get_block(rng.choice(block_names(sch)))
        loops = sch.get_loops(block)
        node = sch.get(block)
        read, write = rng.randrange(len(node.reads) + 1), rng.randrange(len(node.writes) + 1)
        scope = rng.choice(["local", "global"])
        others = [h for h in sch.get_consumers(block) if rng.random() < 0.3]
        steps = [
            lambda b=block, n=read, s=scope, o=others: sch.cache_read(
                b, n, s, o if rng.random() < 0.2 else ()
            ),
            lambda b=block, n=write, s=scope: sch.cache_write(b, n, s),
            lambda b=block, n=read: sch.reindex(b, n, "read"),
            lambda b=block, n=write: sch.reindex(b, n, "write"),
            lambda b=block, n=write, s=scope: sch.set_scope(b, n, s),
            lambda b=block, n=write: sch.storage_align(
                b, n, rng.randrange(3), rng.randrange(9), rng.randrange(3)
            ),
            lambda x=loops: sch.split(rng.choice(x), [None, rng.randrange(1, 5)]) if x else None,
            lambda x=loops: sch.fuse(*x[-2:]) if x else None,
            lambda x=loops: sch.reorder(*rng.sample(x, min(2, len(x)))) if x else None,
        ]
        try:
            rng.choice(steps)()
        except ms.ScheduleError:
            continue
    check(sch, program, compiled=seed % 4 == 0)
