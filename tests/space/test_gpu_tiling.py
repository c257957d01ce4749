"""Tiles for the blocks and threads of a GPU, and reductions that threads share: their structure."""

from __future__ import annotations

import random
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.codegen.gpu.lower import lower_gpu
from metaschedule.errors import ScheduleError
from metaschedule.schedule import Schedule
from metaschedule.space import Space
from metaschedule.space.gpu_tiling import GpuTiling
from metaschedule.space.thread_tile import ThreadTile
from metaschedule.target import resolve

TARGET = "cuda:sm_86"


def test_a_product_is_tiled_for_blocks_threads_and_registers() -> None:
    program = ms.workloads.create("GMM", b=1, n=64, m=96, k=40)
    (sketch,) = ms.space.default(TARGET).sketches(program)
    text = str(sketch.apply(program).program)
    for word in ("blockIdx.x", "vthread.x", "threadIdx.x"):
        assert word in text
    assert text.count('scope="shared"') == 2  # both operands
    assert text.count('scope="local"') == 1  # the results
    assert text.count("T.vectorized") == 2  # the fetches


def test_the_structure_does_not_depend_on_decisions() -> None:
    program = ms.workloads.create("C2D", n=1, h=11, w=9, ci=3, co=18, k=3, s=2, p=1)
    space, rng = ms.space.default(TARGET), random.Random(0)
    sketches = space.sketches(program)
    assert len(sketches) == 3  # padding while fetching, for several chunks, and as a kernel of its own
    for sketch in sketches:
        shapes = {len(sketch.apply(program, rng=rng).program.body) for _ in range(8)}
        assert len(shapes) == 1
        assert [i.primitive.op for i in sketch.instructions] == [
            i.primitive.op for i in sketch.apply(program, rng=rng).trace.instructions
        ]


def test_an_epilogue_is_written_by_the_threads_that_have_the_results() -> None:
    program = ms.workloads.create("FDENSE", m=7, n=19, k=11)
    sketch = ms.space.default(TARGET).sketches(program)[-1]
    assert len(sketch.apply(program).program.body) == 1  # one kernel


def test_a_chain_of_rows_is_one_kernel() -> None:
    program = ms.workloads.create("SFM", shape=(8, 24))
    sketches = ms.space.default(TARGET).sketches(program)
    assert sorted(len(s.apply(program).program.body) for s in sketches) == [1, 4]


def test_most_draws_are_kernels() -> None:
    program = ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024)
    space, rng, good = ms.space.default(TARGET), random.Random(0), 0
    (sketch,) = space.sketches(program)
    for _ in range(20):
        try:
            space.check(sketch.apply(program, rng=rng))
            good += 1
        except ScheduleError:
            pass
    assert good >= 10


@pytest.mark.parametrize(
    ("decisions", "shapes"),
    [
        (
            [[1, 1, 4, 8], [1, 2, 2, 1], [1, 1, 1, 2], [1, 2, 1, 1], [1, 1, 3], [2, 4, 1], 0, 0, 1, 0, 0, 3],
            [(1, 8, 18, 3), (2, 4, 3, 16)],
        ),
        (
            [[1, 8, 4, 4], [1, 1, 1, 1], [1, 2, 2, 2], [1, 1, 2, 2], [1, 1, 1], [1, 2, 3], 0, 2, 0, 0, 0, 3],
            [(1, 31, 32, 3), (1, 2, 3, 16)],
        ),
    ],
    ids=["small", "large"],
)
def test_shared_memory_has_room_for_a_chunk(decisions: list[list[int] | int], shapes: list[Any]) -> None:
    """Of a convolution with stride 2 in tiles that do not divide, over taps in chunks that do not, fetched by
    threads whose number divides nothing."""
    program = ms.workloads.create("C2D", n=1, h=57, w=57, ci=3, co=16, k=7, s=2, p=3)
    sketch = ms.space.default(TARGET).sketches(program)[0]
    sch = sketch.with_decisions(dict(zip(sketch.decisions, decisions, strict=True))).apply(program)
    (kernel,) = lower_gpu(sch.program, resolve(TARGET)).kernels
    assert [b.shape for b in kernel.shared] == shapes


def test_a_kernel_has_its_own_shared_memory_alone() -> None:
    program = ms.workloads.create("C2D", n=1, h=57, w=57, ci=3, co=16, k=7, s=2, p=3)
    space = ms.space.default(TARGET)
    sketch = space.sketches(program)[-1]
    tiles = [[1, 2, 4, 8], [1, 2, 1, 1], [1, 2, 1, 1], [1, 1, 2, 2], [2, 1, 1], [1, 2, 1]]
    sch = sketch.with_decisions(dict(zip(sketch.decisions, tiles, strict=False))).apply(program)
    padding, convolution = lower_gpu(sch.program, resolve(TARGET)).kernels
    assert [b.name for b in padding.shared] == []
    assert [b.name for b in convolution.shared] == ["pad_shared", "W_shared"]
    space.check(sch)


def test_a_block_has_one_problem_of_a_batch() -> None:
    program = ms.workloads.create("GMM", b=6, n=16, m=16, k=8)
    space, rng = ms.space.default(TARGET), random.Random(0)
    (sketch,) = space.sketches(program)
    for _ in range(4):
        (kernel,) = lower_gpu(sketch.apply(program, rng=rng).program, resolve(TARGET)).kernels
        assert kernel.grid[0] % 6 == 0
        assert all(b.shape[-3] == 1 for b in kernel.shared)


def test_padding_is_computed_for_some_chunks_by_the_threads_of_their_block() -> None:
    program = ms.workloads.create("C2D", n=1, h=11, w=9, ci=3, co=18, k=3, s=2, p=1)
    located = ms.space.default(TARGET).sketches(program)[1]
    (site,) = [i for i in located.instructions if i.primitive.op == "sample_compute_location"]
    assert "moves=True" in str(site.primitive)
    sch = located.apply(program)
    (kernel,) = lower_gpu(sch.program, resolve(TARGET)).kernels
    assert {b.name for b in kernel.shared} >= {"pad_shared", "W_shared"}
    threads = sch.get(sch.get_loops(sch.get_block("pad"))[-1])
    assert (threads.kind, threads.fixed_extent) == ("threadIdx.x", kernel.threads)


def test_convolutions_are_filtered_by_tiles() -> None:
    """Winograd: both transforms, a product for each point, and the transform of the results."""
    program = ms.workloads.create("C2D", n=1, h=14, w=13, ci=16, co=64, k=3, s=1, p=1)
    space = ms.space.default(TARGET)
    sketch = space.sketches(program)[0]
    assert [i.primitive.op for i in sketch.instructions].count("winograd") == 2
    sch = sketch.apply(program)
    space.check(sch)
    data, weights, products, results = lower_gpu(sch.program, resolve(TARGET)).kernels
    assert [len(k.shared) for k in (data, weights, products, results)] == [0, 0, 2, 0]
    assert data.local
    assert weights.local
    assert results.local
    assert products.grid[0] % 36 == 0  # a block takes one point of 6 x 6


def test_a_wrong_structure_is_refused() -> None:
    with pytest.raises(ValueError, match="first SSSR"):
        GpuTiling("SSRSRS")


def test_users_modules_compose() -> None:
    program = ms.workloads.create("GMM", b=1, n=8, m=8, k=8)
    space = Space([GpuTiling(unroll_steps=(0,))], target=TARGET)
    (sketch,) = space.sketches(program)
    assert "candidates=[0]" in str(sketch)


def test_sizes_are_bounded_and_near_each_other() -> None:
    tile = ThreadTile((13, 1024), 256, 32)
    rng = random.Random(0)
    for _ in range(32):
        drawn = tile.draw(rng)
        assert tile.valid(drawn)
        assert drawn[0] * drawn[1] <= 256
        near = tile.neighbour(drawn, rng)
        assert tile.valid(near)
        assert near != drawn
    assert tile.repair([4, 60], rng) == [4, 64]


def test_what_was_taken_is_divided_before() -> None:
    program = ms.workloads.create("GMM", b=1, n=8, m=8, k=8)
    sch = Schedule(program)
    loops = tuple(sch.get_loops(sch.get_block("matmul"))[1:3])
    threads = sch.sample(ThreadTile(loops, 16), [4, 4])
    assert ThreadTile((8, 8), 64, 1, (4, 4)).support()[-1] == [2, 2]
    inner = sch.sample(ThreadTile(loops, 64, 1, threads))
    assert all(sch.get(v) <= 2 for v in inner)
    with pytest.raises(ScheduleError, match="no decision"):
        sch.sample(ThreadTile(loops, 16), [8, 4])
    with pytest.raises(ScheduleError, match="tiles of all loops"):
        sch.sample(ThreadTile(loops, 16, 1, threads[:1]))
