"""From programs to nests and tables: extents, strides and footprints that can be worked out by hand."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen.lower import steps
from metaschedule.cost.nest import nests
from metaschedule.cost.table import PARALLEL, Table
from metaschedule.ir import For, walk
from metaschedule.target import resolve
from tests.schedule.random_steps import programs, step


def test_a_fused_loop_is_its_digits() -> None:
    sch = ms.Schedule(ms.workloads.create("GMM", b=1, n=6, m=8, k=4))
    _, i, j, _ = sch.get_loops(sch.get_block("matmul"))
    sch.parallel(sch.fuse(i, j))
    for program in (sch, sch.program):
        update = Table([program])
        assert update.extent[-1].tolist()[-3:] == [6, 8, 4]
        assert (update.kind[-1, -3:-1] == PARALLEL).all()
        assert update.stride[-1, :, -3:].tolist() == [[8, 1, 0], [4, 0, 1], [0, 1, 8]]


def test_splitting_a_fused_loop_again_cuts_it_there() -> None:
    sch = ms.Schedule(ms.workloads.create("GMM", b=1, n=6, m=8, k=4))
    _, i, j, _ = sch.get_loops(sch.get_block("matmul"))
    sch.split(sch.fuse(i, j), [12, 4])
    table = Table([sch])
    assert table.extent[-1].tolist()[-4:] == [6, 2, 4, 4]
    assert table.stride[-1, 0, -4:].tolist() == [8, 4, 1, 0]


def test_a_window_touches_its_span() -> None:
    program = ms.parse("""
@ms.program
def pool(X: T.Tensor((64,), "float32"), Y: T.Output((31,), "float32")):
    for i, k in T.grid(31, 3):
        Y[i] = T.max(Y[i], X[i * 2 + k])
""")
    table = Table([program])
    assert table.elements[0, 1].tolist()[-3:] == [63, 3, 1]
    assert table.updates.tolist() == [True]


def test_an_intermediate_needs_room_for_one_iteration() -> None:
    sch = ms.Schedule(ms.workloads.create("SFM", shape=(16, 32)))
    row = sch.get_loops(sch.get_block("softmax"))[0]
    sch.compute_at(sch.get_block("sum"), row)
    sch.compute_at(sch.get_block("exp"), row)
    table = Table([sch])
    written = [nest.accesses[0].buffer.name for nest in nests(sch)]
    assert table.elements[written.index("exp"), 0, 0] == 32
    assert table.elements[written.index("softmax"), 0, 0] == 16 * 32


def test_init_runs_without_the_reduction_loops() -> None:
    init, update = nests(ms.workloads.create("GMM", b=1, n=3, m=5, k=7))
    assert [loop.extent for loop in init.loops] == [3, 5]
    assert [loop.extent for loop in update.loops] == [3, 5, 7]
    assert len(update.conditions) == 1


def test_guards_that_never_fail_cost_nothing() -> None:
    sch = ms.Schedule(ms.workloads.create("GMM", b=1, n=64, m=64, k=64))
    _, i, j, _ = sch.get_loops(sch.get_block("matmul"))
    sch.unroll(sch.split(i, [16, 4])[1])
    exact = Table([sch])
    assert exact.cut[-1] == 0
    rows = ms.Schedule(ms.workloads.create("GMM", b=1, n=64, m=64, k=64))
    _, i, j, _ = rows.get_loops(rows.get_block("matmul"))
    rows.unroll(rows.split(i, [11, 6])[1])
    assert np.isclose(Table([rows]).cut[-1], 1 / 11)


def test_padding_is_tested_outside_of_tiles() -> None:
    """Lowering makes versions of the tiles at the borders; the others are left without a test."""
    sch = ms.Schedule(ms.workloads.create("DEP", h=8, w=12, c=8))
    sch.compute_inline(sch.get_block("pad"))
    block = sch.get_block("depthwise")
    sch.annotate(block, "skip_zeros", 1)
    _, _, w, c, _, rw = sch.get_loops(block)
    _, tile = sch.split(w, [3, 4])
    sch.reorder(rw, tile, c)
    sch.unroll(tile)
    sch.vectorize(c)
    sch.decompose_reduction(block, sch.get_loops(block)[-4])
    table = Table([sch])
    assert table.tests[-1] == 2  # both borders, for every step of rw
    assert 0 < table.cut[-1] < 1


def test_a_guard_given_twice_counts_once() -> None:
    def skipped(tests: str) -> float:
        return Table([ms.parse(f"""
@ms.program
def half(X: T.Tensor((64,), "float32"), Y: T.Output((64,), "float32")):
    for i in range(128):
        if {tests}:
            Y[i] = X[i]
""")]).executed[0]  # fmt: skip

    assert skipped("i < 64") == skipped("i < 64 and i < 64") == 0.5
    assert skipped("i >= 32 and i < 64") == 0.375


def test_indirect_reads_have_no_stride_of_one() -> None:
    program = ms.parse("""
@ms.program
def gather(X: T.Tensor((64,), "float32"), N: T.Tensor((16,), "int32"), Y: T.Output((16,), "float32")):
    for i in T.vectorized(16):
        Y[i] = X[N[i]]
""")
    table = Table([program])
    strides = dict(
        zip([a.buffer.name for a in nests(program)[0].accesses], table.stride[0, :, -1], strict=True)
    )
    assert strides["Y"] == strides["N"] == 1
    assert strides["X"] > 1


def test_ragged_loops_and_while_have_an_extent() -> None:
    program = ms.parse("""
@ms.program
def triangle(X: T.Tensor((16, 16), "float32"), Y: T.Output((16,), "float32")):
    for i in range(16):
        for j in range(i + 1):
            Y[i] += X[i, j]
""")
    assert [loop.extent for loop in nests(program)[0].loops] == [16, 7]


# --- one model of lowering ------------------------------------------------------------------------


def differing_kinds(sch: ms.Schedule) -> list[tuple[str, str, set[str]]]:
    """Loops that are something else to a cost model than in the lowered program."""
    lowered = dict(steps(sch.program))["serialize_loops"]
    runs = {s.var: s.kind for s in walk(lowered) if isinstance(s, For)}
    seen: dict[object, set[str]] = {}
    for nest in nests(sch):
        for loop in nest.loops:
            seen.setdefault(loop.var, set()).add(loop.kind)
    return [(v.name, kind, seen[v]) for v, kind in runs.items() if v in seen and seen[v] != {kind}]


@pytest.mark.parametrize("name", ms.workloads.names())
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_loops_of_candidates_are_what_lowering_makes_of_them(name: str, target: str) -> None:
    space = ms.space.default(resolve(target))
    for seed in range(3):
        assert differing_kinds(space.sample(ms.workloads.create(name), seed)) == []


def test_loops_of_random_schedules_are_mostly_what_lowering_makes_of_them() -> None:
    """Left are intermediates that every lane would need a copy of, and lanes within such."""
    examples, wrong, total = programs(), 0, 0
    for seed in range(60):
        rng = random.Random(seed)
        program, _ = examples[rng.choice(sorted(examples))]()
        sch = ms.Schedule(program, seed=seed)
        for _ in range(rng.randint(2, 8)):
            sch = step(sch, rng, Counter(), rng.choice([None, "vectorize", "parallel", "split"]))
        if any("." in s.kind for s in walk(sch.program) if isinstance(s, For)):
            continue
        wrong += len(differing_kinds(sch))
        total += sum(isinstance(s, For) for s in walk(sch.program))
    assert total > 300
    assert wrong <= total // 100


def test_copies_that_blocks_ask_for_are_shared_by_loops_around_several() -> None:
    sch = ms.Schedule(ms.workloads.create("GMM", b=1, n=4, m=8, k=16))
    block = sch.get_block("matmul")
    sch.annotate(block, "unroll", 16)
    assert differing_kinds(sch) == []
    assert [loop.kind for loop in nests(sch)[-1].loops] == ["serial", "serial", "unrolled"]
