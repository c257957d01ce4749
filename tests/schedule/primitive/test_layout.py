"""transform_layout, transform_block_layout, reorder_block_iter_var."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule, Trace
from metaschedule.schedule.analysis.index_text import index_texts
from tests.schedule.checks import assert_same_results, check
from tests.schedule.primitive.test_cache import (
    IN_ONE_LOOP,
    NESTED,
    SMALL,
    TWICE,
    block_names,
    chain,
    scale,
    small,
    split_everything,
)
from tests.schedule.refusals import refusal


def elementwise(n: int = 128, m: int = 128) -> Program:
    a = te.placeholder((n, m), name="A")
    return te.program([a], [te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")], name="elementwise")


def two_stages(n: int = 5, m: int = 7) -> Program:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda k, n: a[k, n] + 1.0, name="B")
    return te.program([a], [te.compute((n, m), lambda i, j: b[i, j] * 2.0, name="C")], name="two_stages")


# --- transform_layout ---


def test_transform_layout_golden() -> None:
    program = two_stages()
    sch = Schedule(program)
    sch.transform_layout(sch.get_block("B"), 0, "write", lambda k, n: (n // 4, k, n % 4))
    assert str(sch.program) == (
        "@ms.program\n"
        'def two_stages(A: T.Tensor((5, 7), "float32"), C: T.Output((5, 7), "float32")):\n'
        '    B = T.alloc((2, 5, 4), "float32")\n'
        "    for k, n in T.grid(5, 7):\n"
        '        with T.block("B"):\n'
        "            v_k = T.spatial(5, k)\n"
        "            v_n = T.spatial(7, n)\n"
        "            T.reads(A[v_k, v_n])\n"
        "            T.writes(B[v_n // 4, v_k, v_n % 4])\n"
        "            B[v_n // 4, v_k, v_n % 4] = A[v_k, v_n] + 1.0\n"
        "    for i, j in T.grid(5, 7):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(5, i)\n"
        "            v_j = T.spatial(7, j)\n"
        "            T.reads(B[v_j // 4, v_i, v_j % 4])\n"
        "            T.writes(C[v_i, v_j])\n"
        "            C[v_i, v_j] = B[v_j // 4, v_i, v_j % 4] * 2.0"
    )
    assert 'index_map=["i1 // 4", "i0", "i1 % 4"])' in str(sch.trace)
    check(sch, program)


def test_transform_layout_golden_with_pad_value() -> None:
    program = two_stages()
    sch = Schedule(program)
    sch.transform_layout(sch.get_block("C"), 0, "read", lambda k, n: (n // 4, k, n % 4), pad_value=1.5)
    assert (
        "    for ax0, ax1, ax2 in T.grid(2, 5, 4):\n"
        '        with T.block("B_pad"):\n'
        "            v0 = T.spatial(2, ax0)\n"
        "            v1 = T.spatial(5, ax1)\n"
        "            v2 = T.spatial(4, ax2)\n"
        "            T.where(ax0 * 4 + ax2 >= 7)\n"
        "            T.reads()\n"
        "            T.writes(B[v0, v1, v2])\n"
        "            B[v0, v1, v2] = 1.5\n"
        "    for k, n in T.grid(5, 7):\n"
    ) in str(sch.program)
    check(sch, program)


def test_transform_layout_writes_pad_value_to_everything_else() -> None:
    # Read the whole new buffer: packed rows of 7 in panels of 4, the last element of each row is padding.
    program = ms.parse("""
@ms.program
def pack(A: T.Tensor((5, 7), "float32"), C: T.Output((2, 5, 4), "float32")):
    B = T.alloc((5, 7), "float32")
    for i, j in T.grid(5, 7):
        with T.block("B"):
            v = T.spatial(5, i)
            w = T.spatial(7, j)
            B[v, w] = A[v, w]
    for p, i, q in T.grid(2, 5, 4):
        with T.block("C"):
            x = T.spatial(2, p)
            y = T.spatial(5, i)
            z = T.spatial(4, q)
            C[x, y, z] = T.select(x * 4 + z < 7, B[y, T.min(x * 4 + z, 6)], -1.0)
""")
    sch = Schedule(program)
    sch.transform_layout(sch.get_block("B"), 0, "write", lambda k, n: (n // 4, k, n % 4), pad_value=-1.0)
    check(sch, program)
    # With the padding in place the test is not needed any more.
    text = str(sch.program)
    packed = next(line for line in text.splitlines() if "T.select" in line)
    indent = packed[: len(packed) - len(packed.lstrip())]
    plain = text.replace(packed, f"{indent}C[x, y, z] = B[x, y, z]")
    reads = next(line for line in plain.splitlines() if "T.reads(B[" in line)
    again = ms.parse(plain.replace(reads, f"{indent}T.reads(B[x, y, z])"))
    assert_same_results(program, again)


PACKINGS: list[Callable[..., Any]] = [
    lambda i, j: (j, i),
    lambda i, j: i * 7 + j,
    lambda i, j: (j // 4, i, j % 4),
    lambda i, j: (i // 2, j // 3, i % 2, j % 3),
    lambda i, j: (i, 6 - j),
    lambda i, j: (i * 2, j),
    lambda i, j: ((i * 7 + j) // 5, (i * 7 + j) % 5),
]


@pytest.mark.parametrize("pad_value", [None, 0.0, float("-inf"), "nan", 3])
@pytest.mark.parametrize("packing", PACKINGS)
def test_transform_layout_same_results(packing: Callable[..., Any], pad_value: Any) -> None:
    program = two_stages()
    sch = Schedule(program)
    split_everything(sch, sch.get_block("B"))
    sch.transform_layout(sch.get_block("B"), 0, "write", packing, pad_value)
    check(sch, program, compiled=pad_value in (None, 0.0))


@pytest.mark.parametrize("name", ["GMM", "C2D", "CBR", "SFM", "T2D"])
@pytest.mark.parametrize("pad_value", [None, 0.0])
def test_transform_layout_same_results_of_cached_reads(name: str, pad_value: float | None) -> None:
    """Packing: every operand of every block is copied and laid out in panels of its last dimension."""
    program = small(name)
    sch = Schedule(program)
    for block in map(sch.get_block, block_names(sch)):
        for n in range(len(sch.get(block).reads)):
            copy = sch.cache_read(block, n, "global")
            sch.transform_layout(copy, 0, "write", lambda *i: (i[-1] // 4, *i[:-1], i[-1] % 4), pad_value)
    check(sch, program)


def test_transform_layout_same_results_of_the_text_of_a_lambda() -> None:
    program = two_stages()
    sch = Schedule(program)
    sch.transform_layout(sch.get_block("B"), 0, "write", "lambda k, n: (n // 4, k, n % 4)")
    sch.transform_layout(sch.get_block("B"), 0, "write", ("i1", "i2 * 2 + i0"))
    check(sch, program)


def test_transform_layout_same_results_of_chained_caches() -> None:
    program = small("GMM")
    sch = Schedule(program)
    block = sch.get_block("matmul")
    write = sch.cache_write(block, 0)
    sch.transform_layout(block, 0, "write", lambda b, i, j: (j // 3, b, i, j % 3))
    read = sch.cache_read(block, 1, "global")
    sch.transform_layout(read, 0, "write", lambda b, k, j: (b, j // 4, k, j % 4), pad_value=0.0)
    for one in (block, write, read):
        split_everything(sch, one)
    check(sch, program)


def test_transform_layout_by_a_drawn_panel() -> None:
    program = ms.workloads.create("GMM", b=1, n=5, m=11, k=7)
    sch = Schedule(program)
    panel = sch.sample_categorical([4, 8], [0.5, 0.5], decision=0)
    read = sch.cache_read(sch.get_block("matmul"), 1, "global")
    sch.transform_layout(read, 0, "write", ("i0", "i2 // p0", "i1", "i2 % p0"), parameters=[panel])
    assert [b.shape for b in sch.program.allocs] == [(1, 3, 7, 4)]
    check(sch, program)
    again = sch.trace.apply(program, decisions={0: 1})
    assert [b.shape for b in again.program.allocs] == [(1, 2, 7, 8)]


def test_transform_layout_refuses_parameters() -> None:
    sch = Schedule(scale())
    assert (
        refusal(sch.transform_layout, sch.get_block("B"), 0, "read", lambda i: (i // 4, i % 4))
        == "A is a parameter of the program"
    )


@pytest.mark.parametrize(
    ("packing", "message"),
    [
        (lambda i, j: i + j, "may send two indices within"),
        (lambda i, j: i, "may send two indices within"),
        (lambda i, j: (i - 1, j), "may be negative"),
        (lambda i: i, "takes 1 indices, not 2"),
        (("i0", "i2"), "has more than indices"),
        (("i0", "__import__('os')"), "has more than indices"),
        (("i0", "i1 if i0 else 3"), "has more than indices"),
        (("i0", "i1 +"), "cannot be read"),
        (("i0", "(" * 300), "cannot be read"),
        (("i0", "-" * 1900 + "i1"), "is nested too deeply"),
        (("i0", "i" * 2001), "no index of an index map"),
        ((), "is no index map"),
        (("i0", "i1 // 0"), "has no known bounds"),
        ("i0, i1", "is not a lambda"),
    ],
)
def test_transform_layout_refuses_other_maps(packing: Any, message: str) -> None:
    sch = Schedule(two_stages())
    assert message in refusal(sch.transform_layout, sch.get_block("B"), 0, "write", packing)


@pytest.mark.parametrize("value", ["moon", float("nan"), 0.5, 1000])
def test_transform_layout_refuses_pad_values_of_other_dtypes(value: Any) -> None:
    a = te.placeholder((4, 3), "int8", name="A")
    b = te.compute((4, 3), lambda i, j: a[i, j], name="B")
    sch = Schedule(te.program([a], [te.compute((4, 3), lambda i, j: b[i, j], name="C")]))
    assert "is no number of dtype int8" in refusal(
        sch.transform_layout, sch.get_block("B"), 0, "write", lambda i, j: (j // 2, i, j % 2), pad_value=value
    )


def test_transform_layout_refuses_unknown_accesses() -> None:
    sch = Schedule(two_stages())
    assert "block 'B' has no write 2" in refusal(
        sch.transform_layout, sch.get_block("B"), 2, "write", lambda i, j: (j, i)
    )


def test_index_map_texts_of_functions() -> None:
    assert index_texts(lambda k, n: (n // 4, k, n % 4), 2) == ("i1 // 4", "i0", "i1 % 4")
    assert index_texts(lambda *i: i[::-1], 3) == ("i2", "i1", "i0")


# --- transform_block_layout ---


def test_transform_block_layout_golden() -> None:
    """Case 16288: stored, reloaded, replayed."""
    program = elementwise()
    sch = Schedule(program)
    sch.transform_block_layout(sch.get_block("B"), lambda i, j: i * 128 + j)
    assert str(sch.program) == (
        "@ms.program\n"
        'def elementwise(A: T.Tensor((128, 128), "float32"), B: T.Output((128, 128), "float32")):\n'
        "    for ax0 in range(16384):\n"
        '        with T.block("B"):\n'
        "            v0 = T.spatial(16384, ax0)\n"
        "            T.reads(A[v0 // 128, v0 % 128])\n"
        "            T.writes(B[v0 // 128, v0 % 128])\n"
        "            B[v0 // 128, v0 % 128] = A[v0 // 128, v0 % 128] * 2.0"
    )
    again = Trace.from_json(sch.trace.to_json()).apply(program)
    assert str(again.program) == str(sch.program)
    check(sch, program)


def test_transform_block_layout_same_results_after_splits_and_fusions() -> None:
    program = elementwise(12, 8)
    sch = Schedule(program)
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    _, i1 = sch.split(i, [None, 5])
    sch.split(sch.fuse(i1, j), [None, 3])
    sch.transform_block_layout(block, lambda i, j: (j // 4, i * 4 + j % 4))
    outer, inner = sch.get_loops(block)
    sch.split(inner, [None, 7])
    sch.reorder(*reversed([outer, *sch.get_loops(block)[1:]]))
    check(sch, program)


@pytest.mark.parametrize(
    "layout",
    [
        lambda b, i, j, k: (i, j, k, b),
        lambda b, i, j, k: (i * 7 + j, k, b),
        lambda b, i, j, k: (b, i, j, k // 3, k % 3),
        lambda b, i, j, k: (k % 2, b * 35 + i * 7 + j, k // 2),
        lambda b, i, j, k: (b, 4 - i, j, k),
        lambda b, i, j, k: (i % 2, b, i // 2, j, k),
        lambda b, i, j, k: (i % 2, j % 2, b, i // 2, j // 2, k // 4, k % 4),
        lambda b, i, j, k: (b, i * 2, j, k),
    ],
)
def test_transform_block_layout_same_results_of_a_reduction(layout: Callable[..., Any]) -> None:
    program = small("GMM")
    sch = Schedule(program)
    block = sch.get_block("matmul")
    _, i, _, k = sch.get_loops(block)
    sch.split(i, [None, 2])
    sch.split(k, [None, 4])
    sch.transform_block_layout(block, layout)
    check(sch, program)


TESTED = """
def tested(A: T.Tensor((30,), "float32"), C: T.Output((30,), "float32")):
    for i, j in T.grid(5, 8):
        with T.block("C"):
            v = T.spatial(30, i * 6 + j)
            T.where(j < 6)
            C[v] = A[v] * 2.0
"""


def test_transform_block_layout_of_loops_that_a_test_cuts() -> None:
    """6 of 8 iterations run, each element once: the new loops need no test."""
    program = ms.parse(TESTED)
    sch = Schedule(program)
    sch.transform_block_layout(sch.get_block("C"), lambda v: (v // 5, v % 5))
    assert "T.where" not in str(sch.program)
    assert_same_results(program, sch.program)


def test_transform_block_layout_runs_nothing_in_gaps() -> None:
    program = elementwise(4, 6)
    sch = Schedule(program)
    block = sch.get_block("B")
    sch.transform_block_layout(block, lambda i, j: (j // 4, i, j % 4))
    assert [str(test) for test in sch.get(block).predicate] == ["ax0 * 4 + ax2 < 6"]
    check(sch, program)


def in_halves(*names: str) -> tuple[Schedule, Program]:
    """Two stages; those of the names compute even rows before odd ones."""
    program = two_stages()
    sch = Schedule(program)
    for name in names:
        sch.transform_block_layout(sch.get_block(name), lambda i, j: (i % 2, i // 2, j))
    sch.transform_layout(sch.get_block("B"), 0, "write", lambda i, j: (i % 2, i // 2, j))
    return sch, program


@pytest.mark.parametrize("at", [1, 2, 3])
def test_blocks_with_the_same_gaps_follow_each_other(at: int) -> None:
    sch, program = in_halves("B", "C")
    producer, consumer = sch.get_block("B"), sch.get_block("C")
    sch.split(sch.get_loops(producer)[1], [None, 2])
    sch.reverse_compute_at(consumer, sch.get_loops(producer)[at])
    assert "ax1_0 * 4 + ax" in str(sch.program)
    check(sch, program)


def test_reverse_compute_at_refuses_gaps_that_only_the_producer_has() -> None:
    sch, _ = in_halves("B", "C")
    consumer = sch.get_block("C")
    sch.state.update("C", predicate=())  # reads what B does not store
    assert "is not known to run for all values" in refusal(
        sch.reverse_compute_at, consumer, sch.get_loops(sch.get_block("B"))[1]
    )


def test_transform_block_layout_refuses_maps_that_are_not_one_to_one() -> None:
    sch = Schedule(elementwise(4, 6))
    assert "may send two indices within" in refusal(
        sch.transform_block_layout, sch.get_block("B"), lambda i, j: i + j
    )


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (lambda b, i, j, k: (b, i, j * 6 + k), "mixes spatial iterators and reductions"),
        (lambda b, i, j, k: (b, i, j, 5 - k), "is not 0 where the reduction starts"),
    ],
)
def test_transform_block_layout_refuses_reductions_taken_apart(layout: Any, message: str) -> None:
    sch = Schedule(small("GMM"))
    assert message in refusal(sch.transform_block_layout, sch.get_block("matmul"), layout)


def test_transform_block_layout_refuses_reductions_that_do_not_commute() -> None:
    program = ms.parse("""
@ms.program
def last(A: T.Tensor((2, 3, 4), "float32"), B: T.Output((2,), "float32")):
    for h, i, j in T.grid(2, 3, 4):
        with T.block("last"):
            u = T.spatial(2, h)
            v = T.reduce(3, i)
            w = T.reduce(4, j)
            with T.init():
                B[u] = 0.0
            B[u] = A[u, v, w]
""")
    sch = Schedule(program)
    block = sch.get_block("last")
    assert "does not reduce by an operation that is known to commute" in refusal(
        sch.transform_block_layout, block, lambda u, v, w: (u, w, v)
    )
    sch.transform_block_layout(block, lambda u, v, w: (v, w, u))
    check(sch, program)


def test_transform_block_layout_refuses_an_order_that_matters() -> None:
    program = ms.parse("""
@ms.program
def scan(A: T.Tensor((4, 5), "float32"), B: T.Output((5, 5), "float32")):
    for j in range(5):
        with T.block("start"):
            w = T.spatial(5, j)
            B[0, w] = 0.0
    for i, j in T.grid(4, 5):
        with T.block("scan"):
            v = T.spatial(4, i)
            w = T.spatial(5, j)
            B[v + 1, w] = B[v, w] + A[v, w]
""")
    sch = Schedule(program)
    assert "the order of the instances of block 'scan' may matter" in refusal(
        sch.transform_block_layout, sch.get_block("scan"), lambda i, j: (j, i)
    )


def test_transform_block_layout_refuses_loops_that_hold_more() -> None:
    sch = Schedule(ms.parse(IN_ONE_LOOP))
    assert "the loops of block 'B' are not known to run every point" in refusal(
        sch.transform_block_layout, sch.get_block("B"), lambda i, j: (j, i)
    )


def test_transform_block_layout_refuses_blocks_inside() -> None:
    sch = Schedule(ms.parse(NESTED))
    assert "it has blocks inside" in refusal(
        sch.transform_block_layout, sch.get_block("outer"), lambda i, j: (j, i)
    )


# --- reorder_block_iter_var ---


def test_reorder_block_iter_var_golden() -> None:
    sch = Schedule(small("GMM"))
    sch.reorder_block_iter_var(sch.get_block("matmul"), (3, 1, 0, 2))
    assert (
        "            v_k = T.reduce(6, k)\n"
        "            v_i = T.spatial(5, i)\n"
        "            v_b = T.spatial(1, 0)\n"
        "            v_j = T.spatial(7, j)\n"
    ) in str(sch.program)


def test_reorder_block_iter_var_same_results() -> None:
    program = small("C2D")
    sch = Schedule(program)
    block = sch.get_block("conv")
    split_everything(sch, block)
    sch.reorder_block_iter_var(block, [6, 5, 4, 3, 2, 1, 0])
    sch.reindex(block, 0, "read")
    check(sch, program)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (1, 2, 3, 4)])
def test_reorder_block_iter_var_refuses_no_permutation(order: Any) -> None:
    sch = Schedule(small("GMM"))
    message = refusal(sch.reorder_block_iter_var, sch.get_block("matmul"), order)
    assert message == f"new_order {order!r} is no permutation of the 4 iterators"


def test_reorder_block_iter_var_refuses_extents_that_depend() -> None:
    program = ms.parse("""
@ms.program
def triangle(A: T.Tensor((5, 5), "float32"), B: T.Output((5,), "float32")):
    for i in range(5):
        for j in range(i + 1):
            with T.block("sum"):
                v = T.spatial(5, i)
                w = T.reduce(v + 1, j)
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, w]
""")
    sch = Schedule(program)
    assert "the extent of w depends on v, which would come after it" in refusal(
        sch.reorder_block_iter_var, sch.get_block("sum"), (1, 0)
    )


# --- together ---


def random_map(rng: random.Random, rank: int) -> Any:
    """A permutation of the indices, some split by a small number."""
    texts: list[str] = []
    for n in range(rank):
        factor = rng.choice([1, 1, 2, 3, 4])
        texts += [f"i{n}"] if factor == 1 else [f"i{n} // {factor}", f"i{n} % {factor}"]
    rng.shuffle(texts)
    return tuple(texts)


@given(st.sampled_from([*SMALL, "chain", "nest", "twice", "nested"]), st.integers(0, 2**32))
def test_layout_primitives_keep_results(name: str, seed: int) -> None:
    scripts = {"nest": IN_ONE_LOOP, "twice": TWICE, "nested": NESTED}
    program = small(name) if name in SMALL else ms.parse(scripts[name]) if name in scripts else chain()
    rng = random.Random(seed)
    sch = Schedule(program)
    for _ in range(rng.randrange(1, 7)):
        block = sch.get_block(rng.choice(block_names(sch)))
        loops = sch.get_loops(block)
        node = sch.get(block)
        kind = rng.choice(["read", "write"])
        regions = node.reads if kind == "read" else node.writes
        index = rng.randrange(len(regions) + 1)
        rank = len(regions[index].buffer.shape) if index < len(regions) else 1
        order = rng.sample(range(len(node.iters)), len(node.iters))
        pad = rng.choice([None, 0, 1])
        layout, other = random_map(rng, rank), random_map(rng, len(node.iters))
        steps: list[Callable[[], Any]] = [
            lambda b=block, n=index, k=kind, m=layout, p=pad: sch.transform_layout(b, n, k, m, p),
            lambda b=block, m=other: sch.transform_block_layout(b, m),
            lambda b=block, o=order: sch.reorder_block_iter_var(b, o),
            lambda b=block, n=index: sch.cache_read(b, n),
            lambda b=block, n=index: sch.cache_write(b, n, "global"),
            lambda b=block, n=index, k=kind: sch.reindex(b, n, k),
            lambda x=loops: sch.split(rng.choice(x), [None, rng.randrange(1, 5)]) if x else None,
            lambda x=loops: sch.fuse(*x[-2:]) if x else None,
        ]
        try:
            rng.choice(steps)()
        except ms.ScheduleError:
            continue
    check(sch, program, compiled=seed % 4 == 0)
