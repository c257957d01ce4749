"""Reductions by the threads of a warp through registers: by simulation, and by NVIDIA's compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen.gpu.lower import lower_gpu
from metaschedule.codegen.gpu.model import Barrier, is_shuffle
from metaschedule.codegen.gpu.simulate import simulate
from metaschedule.ir import walk
from metaschedule.target import resolve
from tests.codegen.gpu.schedules import nvrtc

TARGET = resolve("cuda:sm_80")


def divide(program: ms.ir.Program, threads: int, rows: int | None = None) -> ms.Schedule:
    """A reduction of rows, the terms of each on so many threads, and so many rows a block."""
    sch = ms.Schedule(program)
    block = sch.get_block(ms.ir.blocks(program)[-1].name)
    i, k = sch.get_loops(block)
    own, thread = sch.split(k, [None, threads])
    sch.reorder(thread, own)
    sch.bind(thread, "threadIdx.x")
    if rows is None:
        sch.bind(i, "blockIdx.x")
    else:
        outer, inner = sch.split(i, [None, rows])
        sch.bind(outer, "blockIdx.x")
        sch.bind(inner, "threadIdx.y")
    return sch


def sums(rows: int, terms: int, dtype: str = "float32") -> ms.ir.Program:
    x, k = te.placeholder((rows, terms), name="x", dtype=dtype), te.reduce_axis(terms, name="k")
    return te.program([x], [te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="sums")])


def count(lowered: ms.ir.Program) -> tuple[int, int]:
    """Shuffles and barriers."""
    found = list(walk(lowered.body))
    return sum(map(is_shuffle, found)), sum(isinstance(s, Barrier) for s in found)


@pytest.mark.parametrize(
    ("threads", "rows", "shuffles", "barriers"),
    [
        (2, None, 1, 0),
        (8, 5, 3, 0),  # four rows a warp, and a warp that is not full
        (16, 3, 4, 0),
        (32, None, 5, 0),
        (32, 3, 5, 0),
        (96, None, 5 + 2, 1),
        (128, 2, 5 + 2, 1),
        (1024, None, 5 + 5, 1),
        (48, None, 0, 5),  # one and a half warps: through shared memory
        (12, 4, 0, 3),
    ],
)
def test_sums(threads: int, rows: int | None, shuffles: int, barriers: int) -> None:
    program = sums(7, 70)
    lowered = lower_gpu(divide(program, threads, rows).program, TARGET)
    assert count(lowered.kernels[0].program) == (shuffles, barriers)
    x = np.random.default_rng(0).integers(-9, 9, (7, 70)).astype("float32")
    for seed in range(2):
        assert np.array_equal(simulate(lowered, program, x, seed=seed), x.sum(axis=1))


def test_positions_and_values_are_exchanged_together() -> None:
    x, k = te.placeholder((3, 75), name="x"), te.reduce_axis(75, name="k")
    program = te.program([x], [te.compute((3,), lambda i: te.argmax(x[i, k], axis=k), name="best")])
    data = np.random.default_rng(0).integers(0, 30, (3, 75)).astype("float32")
    sch = divide(program, 64)
    lowered = lower_gpu(sch.program, TARGET)
    assert count(lowered.kernels[0].program)[0] > 0
    assert np.array_equal(simulate(lowered, program, data), data.argmax(axis=1))


def test_a_lane_that_stays_away_is_found() -> None:
    """Sums of rows only where the number of the row's thread is even."""
    x = te.placeholder((4, 32), name="x")
    k = te.reduce_axis(32, name="k")
    program = te.program([x], [te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="sums")])
    sch = divide(program, 8, rows=4)
    kernel = lower_gpu(sch.program, TARGET).kernels[0]
    (y,) = kernel.axes.vars_of(("threadIdx.y",))
    body = tuple(skip_odd_rows(kernel.program.body, y))
    lowered = lower_gpu(sch.program, TARGET)
    lowered.kernels[0] = type(kernel)(
        kernel.name,
        kernel.axes,
        ms.ir.replace_fields(kernel.program, body=body),
        kernel.local,
        kernel.shared,
        kernel.unproved,
        kernel.ahead,
    )
    with pytest.raises(ms.interpreter.InterpreterError, match="threads do not agree"):
        simulate(lowered, program, np.ones((4, 32), "float32"))


def skip_odd_rows(body: ms.ir.Body, y: ms.ir.Var) -> list[ms.ir.Stmt]:
    if len(body) == 1 and isinstance(body[0], ms.ir.For) and body[0].kind in ms.ir.GPU_AXES:
        return [ms.ir.replace_fields(body[0], body=tuple(skip_odd_rows(body[0].body, y)))]
    return [ms.ir.If(ms.ir.binary("==", ms.ir.binary("%", y, 2), 0), body)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64"])
def test_they_are_compiled_by_nvidia(dtype: str) -> None:
    nvrtc()
    exe: Any = ms.build(divide(sums(4, 300, dtype), 128), target="cuda:sm_75")
    assert exe.source("cuda").count("__shfl_down_sync") == 7
    assert exe.resources()["main_0"]["spilled"] == 0


def test_opencl_has_no_warps() -> None:
    lowered = lower_gpu(divide(sums(4, 300), 128).program, resolve("opencl:mi250x"))
    assert count(lowered.kernels[0].program) == (0, 7)
