"""Schedules for GPUs, written by hand."""

from __future__ import annotations

import pytest

import metaschedule as ms
from metaschedule import ir


def opencl() -> None:
    """Skip where no OpenCL device is."""
    pytest.importorskip("pyopencl", reason="needs pyopencl")
    from metaschedule.runtime.gpu.device import DeviceError, open_device

    try:
        open_device("opencl")
    except DeviceError as error:
        pytest.skip(str(error))


def nvrtc() -> None:
    """Skip where NVIDIA's compiler is not."""
    from metaschedule.runtime.gpu.device import DeviceError
    from metaschedule.runtime.gpu.nvrtc import load_nvrtc

    try:
        load_nvrtc()
    except DeviceError as error:
        pytest.skip(str(error))


def bound_product(program: ms.ir.Program, threads: int = 64) -> ms.Schedule:
    """A matrix product with one result a thread."""
    sch = ms.Schedule(program)
    block = sch.get_block(ir.blocks(program)[0].name)
    b, i, j, _ = sch.get_loops(block)
    outer, inner = sch.split(sch.fuse(b, i, j), [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return sch


def tiled_product(
    program: ms.ir.Program, tile: int = 32, side: int = 8, depth: int = 8, lanes: int = 2, virtual: int = 1
) -> ms.Schedule:
    """A matrix product by tiles: operands in shared memory, fetched by all threads, results in registers."""
    sch = ms.Schedule(program)
    block = sch.get_block(ir.blocks(program)[0].name)
    result = sch.cache_write(block, 0, "local")
    b, i, j, k = sch.get_loops(block)
    each = tile // side // virtual
    i0, iv, i1, i2 = sch.split(i, [None, virtual, side, each])
    j0, jv, j1, j2 = sch.split(j, [None, virtual, side, each])
    k0, k1 = sch.split(k, [None, depth])
    sch.reorder(b, i0, j0, k0, iv, jv, i1, j1, k1, i2, j2)
    blocks = sch.fuse(b, i0, j0)
    sch.bind(blocks, "blockIdx.x")
    for operand in (0, 1):
        fetch = sch.cache_read(block, operand, "shared")
        sch.compute_at(fetch, k0)
        _, threads, vector = sch.split(sch.fuse(*sch.get_loops(fetch)[2:]), [None, side * side, lanes])
        sch.bind(threads, "threadIdx.x")
        sch.vectorize(vector)
    sch.bind(sch.fuse(i1, j1), "threadIdx.x")
    sch.bind(iv, "vthread.x")
    sch.bind(jv, "vthread.y")
    sch.unroll(i2)
    sch.unroll(j2)
    sch.reverse_compute_at(result, blocks)
    x, y = sch.get_loops(result)[-2:]
    xv, x1, x2 = sch.split(x, [virtual, side, each])
    yv, y1, y2 = sch.split(y, [virtual, side, each])
    sch.reorder(xv, yv, x1, y1, x2, y2)
    sch.bind(sch.fuse(x1, y1), "threadIdx.x")
    sch.bind(xv, "vthread.x")
    sch.bind(yv, "vthread.y")
    return sch
