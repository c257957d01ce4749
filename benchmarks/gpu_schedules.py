"""The kernels of published tuning data, written as schedules: a matrix product with the parameters of
CLBlast's `Xgemm`, and a convolution of one channel with the parameters of Kernel Tuner's. What the
parameters mean is said beside the data (benchmarks/gpu_prediction.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import metaschedule as ms
from metaschedule import te

Config = Mapping[str, int]
FILTER = 15
SIDE = 4096
UNROLLED_K = 2  # steps of k that `Xgemm` writes out


def product(m: int = SIDE, n: int = SIDE, k: int = SIDE) -> ms.Program:
    """C[n, m] of A[k, m] and B[k, n], as CLBlast stores them."""
    a = te.placeholder((k, m), name="A")
    b = te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((n, m), lambda j, i: te.sum(a[r, i] * b[r, j], axis=r), name="C")
    return te.program([a, b], [c], name="product")


def split_side(
    sch: ms.Schedule, loop: ms.LoopRV, each: int, threads: int, lanes: int, strided: int
) -> list[ms.LoopRV]:
    """A side of the tile: blocks, threads, vectors of a thread, lanes. A thread's vectors are next to each
    other, or, `strided`, as far apart as there are threads."""
    own = each // threads // lanes
    if strided:
        block, vectors, thread, lane = sch.split(loop, [None, own, threads, lanes])
    else:
        block, thread, vectors, lane = sch.split(loop, [None, threads, own, lanes])
    return [block, thread, vectors, lane]


def schedule_product(program: ms.Program, c: Config) -> ms.Schedule:
    """`Xgemm`: results in registers, operands through registers, and through shared memory with SA and SB."""
    sch = ms.Schedule(program)
    block = sch.get_block("C")
    result = sch.cache_write(block, 0, "local")
    operands: dict[str, ms.BlockRV] = {}
    for index, name in ((0, "A"), (1, "B")):
        if c[f"S{name}"]:
            operands[name] = sch.cache_read(block, index, "shared")
    registers = [sch.cache_read(block, index, "local") for index in (0, 1)]
    j, i, k = sch.get_loops(block)
    j0, j1, j2, j3 = split_side(sch, j, c["NWG"], c["NDIMC"], c["VWN"], c["STRN"])
    i0, i1, i2, i3 = split_side(sch, i, c["MWG"], c["MDIMC"], c["VWM"], c["STRM"])
    k0, k1, k2 = sch.split(k, [None, c["KWG"] // UNROLLED_K, UNROLLED_K])
    sch.reorder(j0, i0, k0, j1, i1, k1, k2, j2, j3, i2, i3)
    sch.bind(j0, "blockIdx.y")
    sch.bind(i0, "blockIdx.x")
    threads = sch.fuse(j1, i1)
    for copy, vectors in zip(registers, (i2, j2), strict=True):
        sch.compute_at(copy, vectors)
        sch.vectorize(sch.get_loops(copy)[-1])
    for name, fetch in operands.items():
        sch.compute_at(fetch, k0)
        depth, across = sch.get_loops(fetch)[-2:]
        side, dim, lanes, strided = (
            (c["MWG"], c["MDIMA"], c["VWM"], c["STRM"])
            if name == "A"
            else (c["NWG"], c["NDIMB"], c["VWN"], c["STRN"])
        )
        rows = c["MDIMC"] * c["NDIMC"] // dim
        if strided:
            vectors, across1, lane = sch.split(across, [None, dim, lanes])
        else:
            across1, vectors, lane = sch.split(across, [dim, None, lanes])
        depth1, each = sch.split(depth, [rows, None])
        sch.reorder(depth1, across1, vectors, each, lane)
        sch.bind(sch.fuse(depth1, across1), "threadIdx.x")
        sch.unroll(vectors)
        sch.unroll(each)
        sch.vectorize(lane)
    sch.bind(threads, "threadIdx.x")
    for loop in (k2, j2, j3, i2, i3):
        sch.unroll(loop)
    sch.reverse_compute_at(result, i0)
    y, x = sch.get_loops(result)[-2:]
    _, y1, y2, y3 = split_side(sch, y, c["NWG"], c["NDIMC"], c["VWN"], c["STRN"])
    _, x1, x2, x3 = split_side(sch, x, c["MWG"], c["MDIMC"], c["VWM"], c["STRM"])
    sch.reorder(y1, x1, y2, y3, x2, x3)
    sch.bind(sch.fuse(y1, x1), "threadIdx.x")
    for loop in (y2, y3, x2):
        sch.unroll(loop)
    sch.vectorize(x3)
    sch.decompose_reduction(block, k0)
    return sch


def convolution(c: Config, side: int = SIDE) -> ms.Program:
    """The convolution as a configuration computes it: of as many results as its blocks have room for, where
    those do not divide the image, with every element of the image that is read tested for being one."""
    rows, columns = (-(-side // (c[f"block_size_{d}"] * c[f"tile_size_{d}"])) for d in "yx")
    rows, columns = (
        rows * c["block_size_y"] * c["tile_size_y"],
        columns * c["block_size_x"] * c["tile_size_x"],
    )
    reach = side + FILTER - 1
    image = te.placeholder((reach, reach), name="image")
    weights = te.table(
        np.linspace(-1, 1, FILTER * FILTER, dtype="float32").reshape(FILTER, FILTER), name="weights"
    )
    i, j = te.reduce_axis(FILTER, name="i"), te.reduce_axis(FILTER, name="j")
    whole = (rows, columns) == (side, side)
    source = image
    if not whole:
        shape = (rows + FILTER - 1, columns + FILTER - 1)
        source = te.compute(
            shape,
            lambda y, x: te.select(te.all_of([y < reach, x < reach]), image[y, x], 0.0),
            name="inside",
        )
    total = te.compute(
        (rows, columns),
        lambda y, x: te.sum(source[y + i, x + j] * weights[i, j], axis=[i, j]),
        name="total",
    )
    if whole:
        return te.program([image], [total], name="convolution")
    result = te.compute((side, side), lambda y, x: total[y, x], name="result")
    return te.program([image], [result], name="convolution")


def schedule_convolution(c: Config, side: int = SIDE) -> ms.Schedule:
    """Results of a thread in registers, as far apart as there are threads; the image in shared memory, with
    `use_shmem`; loops over the filter written out."""
    program = convolution(c, side)
    sch = ms.Schedule(program)
    block = sch.get_block("total")
    whole = len(program.allocs) == 1 or not any(b.name == "inside" for b in program.allocs)
    result = sch.cache_write(block, 0, "local") if whole else sch.get_block("result")
    if not whole:
        sch.set_scope(block, 0, "local")
    threads_y, threads_x = c["block_size_y"], c["block_size_x"]
    y, x, i, j = sch.get_loops(block)
    y0, y1, y2 = sch.split(y, [None, c["tile_size_y"], threads_y])
    x0, x1, x2 = sch.split(x, [None, c["tile_size_x"], threads_x])
    sch.reorder(y0, x0, y2, x2, i, j, y1, x1)
    sch.bind(y0, "blockIdx.y")
    sch.bind(x0, "blockIdx.x")
    if c["use_shmem"]:
        if whole:
            fetch = sch.cache_read(block, 0, "shared")
        else:
            fetch = sch.get_block("inside")
            sch.set_scope(fetch, 0, "shared")
        sch.compute_at(fetch, x0)
        row, column = sch.get_loops(fetch)[-2:]
        some, thread_y = sch.split(row, [None, threads_y])
        more, thread_x = sch.split(column, [None, threads_x])
        sch.reorder(thread_y, thread_x, some, more)
        sch.bind(thread_y, "threadIdx.y")
        sch.bind(thread_x, "threadIdx.x")
        width = threads_x * c["tile_size_x"] + FILTER - 1
        if c["use_padding"] and threads_x % 32 and (width - threads_x) % 32:
            sch.storage_align(fetch, 0, 0, 32, threads_x % 32)
    elif not whole:
        sch.compute_inline(sch.get_block("inside"))
    sch.bind(y2, "threadIdx.y")
    sch.bind(x2, "threadIdx.x")
    for loop in (i, j, y1, x1):
        sch.unroll(loop)
    sch.reverse_compute_at(result, x0)
    out_y, out_x = sch.get_loops(result)[-2:]
    own_y, thread_y = sch.split(out_y, [c["tile_size_y"], threads_y])
    own_x, thread_x = sch.split(out_x, [c["tile_size_x"], threads_x])
    sch.reorder(thread_y, thread_x, own_y, own_x)
    sch.bind(thread_y, "threadIdx.y")
    sch.bind(thread_x, "threadIdx.x")
    sch.unroll(own_y)
    sch.unroll(own_x)
    sch.decompose_reduction(block, i)
    return sch
