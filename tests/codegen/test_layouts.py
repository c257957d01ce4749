"""Machine code over layouts against the interpreter: padded rows, transposed, steps, backwards, an offset."""

from __future__ import annotations

import ctypes
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Layout, dense_strides, reach, strided_array
from metaschedule.runtime import load

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 20))


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> Layout | None:
    """None, or strides without overlap: dimensions in some order, each with a step, or rows with a gap."""
    if draw(st.booleans()):
        return None
    strides, step = [0] * len(shape), 1
    for d in draw(st.permutations(range(len(shape)))):
        step = step * draw(st.integers(1, 3)) + draw(st.integers(0, 3))
        strides[d] = step * draw(st.sampled_from([1, 1, 1, -1]))
        step *= shape[d]
    return Layout(tuple(strides))


def in_memory(values: np.ndarray, layout: Layout | None, before: int) -> tuple[np.ndarray, np.ndarray]:
    """The values in that layout, some way into a larger allocation; and the allocation."""
    strides = layout.strides if layout else dense_strides(values.shape)
    low, high = reach(values.shape, strides)
    memory = np.full(before + high - low + 7, np.nan, values.dtype)
    array = strided_array(memory, before - low, values.shape, strides)
    array[...] = values
    return array, memory


def program_of(shape: tuple[int, int], a: Layout | None, b: Layout | None, c: Layout | None) -> ms.Program:
    x = te.placeholder(shape, name="x", layout=a)
    y = te.placeholder(shape[::-1], name="y", layout=b)
    k = te.reduce_axis(shape[1], name="k")
    sums = te.compute((shape[0],), lambda i: te.sum(x[i, k] * y[k, i], axis=k), name="sums")
    z = te.compute(shape, lambda i, j: x[i, j] + 2.0 * y[j, i] + sums[i], name="z", layout=c)
    return te.program([x, y], [z])


@settings(max_examples=60)
@given(st.data(), SHAPES, st.integers(0, 3), st.integers(0, 2**32))
def test_random_layouts_of_parameters(data: Any, shape: tuple[int, int], before: int, seed: int) -> None:
    a, b, c = data.draw(layouts(shape)), data.draw(layouts(shape[::-1])), data.draw(layouts(shape))
    program = program_of(shape, a, b, c)
    rng = np.random.default_rng(seed)
    x, _ = in_memory(rng.integers(-4, 5, shape).astype(np.float32), a, before)
    y, _ = in_memory(rng.integers(-4, 5, shape[::-1]).astype(np.float32), b, before)
    expected = ms.interpret(program, x, y)
    np.testing.assert_array_equal(expected, x + 2 * y.T + (x * y.T).sum(axis=1, keepdims=True))
    schedules = [ms.Schedule(program), ms.space.default().sample(program, random.Random(seed))]
    for schedule in schedules:
        z, memory = in_memory(np.zeros(shape, np.float32), c, before)
        gaps = np.isnan(memory)
        assert ms.build(schedule)(x, y, z) is z
        np.testing.assert_array_equal(z, expected)
        assert np.array_equal(np.isnan(memory), gaps), "what is between elements was written"


@settings(max_examples=30)
@given(st.data(), SHAPES, st.integers(0, 2**32))
def test_random_layouts_of_intermediate_buffers(data: Any, shape: tuple[int, int], seed: int) -> None:
    layout = data.draw(layouts(shape)) or Layout(dense_strides(shape))
    offset = data.draw(st.integers(0, 5)) - reach(shape, layout.strides)[0]
    text = f"""
def middle(X: T.Tensor({shape}, "float32"), Y: T.Output({shape}, "float32")):
    B = T.alloc({shape}, "float32", strides={layout.strides}, offset={offset})
    for i, j in T.grid{shape}:
        with T.block("B"):
            vi = T.spatial({shape[0]}, i)
            vj = T.spatial({shape[1]}, j)
            B[vi, vj] = X[vi, vj] * 2.0
    for i, j in T.grid{shape}:
        with T.block("Y"):
            vi = T.spatial({shape[0]}, i)
            vj = T.spatial({shape[1]}, j)
            Y[vi, vj] = B[vi, vj] + B[{shape[0] - 1} - vi, vj]
"""
    program = ms.parse(text)
    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
    np.testing.assert_array_equal(ms.interpret(program, x), 2 * x + 2 * x[::-1])
    for schedule in (ms.Schedule(program), ms.space.default().sample(program, random.Random(seed))):
        assert ms.build(schedule)(x).tolist() == (2 * x + 2 * x[::-1]).tolist()


def columns() -> ms.Program:
    """Every second one of rows of 128."""
    x = te.placeholder((64, 37), name="x", layout=Layout(strides=(128, 2), offset=5))
    w = te.placeholder((64, 37), name="w", constant=True, layout=Layout((1, 64)))
    return te.program([x, w], te.compute((64, 37), lambda i, j: x[i, j] * w[i, j], name="y"))


def test_one_kernel_is_called_with_many_addresses() -> None:
    big = np.random.default_rng(0).standard_normal((8, 64, 128)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((64, 37)).astype(np.float32)
    kernel = ms.build(columns(), constants={"w": w})
    for t in range(8):
        part = big[t, :, t : t + 74 : 2]
        np.testing.assert_array_equal(kernel(part), part * w)


def test_layouts_survive_files(tmp_path: Path) -> None:
    kernel = ms.build(columns(), constants={"w": np.full((64, 37), 3, np.float32)})
    kernel.save(tmp_path / "kernel.ms")
    again = load(tmp_path / "kernel.ms")
    assert again.inputs == kernel.inputs
    assert again.inputs[0].strides == (128, 2)
    x = kernel.inputs[0].empty()
    x[...] = np.arange(64 * 37).reshape(64, 37)
    np.testing.assert_array_equal(again(x), 3 * x)


def test_neighbouring_columns_of_one_array_do_not_overlap() -> None:
    x = te.placeholder((4, 3), name="x", layout=Layout((8, 1)))
    y = te.compute((4, 3), lambda i, j: x[i, j] + 1.0, name="y", layout=Layout((8, 1)))
    kernel = ms.build(te.program([x], [y]))
    both = np.zeros((4, 8), np.float32)
    kernel(both[:, :3], both[:, 3:6])
    assert both.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0]] * 4
    with pytest.raises(ValueError, match="overlaps input 'x'"):
        kernel(both[:, :3], both[:, 2:5])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            lambda: (np.zeros((4, 3), np.float32),),
            "input 'x' (argument 0): expected strides (8, 1), got (3, 1); pass an array with these strides "
            "(exe.inputs[i].empty() makes one), or build the kernel for its layout",
        ),
        (lambda: (np.zeros((4, 9), np.float32)[:, :3],), "expected strides (8, 1), got (9, 1)"),
        (lambda: (np.zeros((4, 8), "f4")[:, :3].T,), "expected shape (4, 3), got (3, 4)"),
        (
            lambda: (np.zeros((4, 8), "f4")[:, :3], np.zeros((3, 4), "f4").T),
            "output 'y' (argument 1): expected",
        ),
        (
            lambda: (np.zeros((4, 33), np.uint8)[:, :24].view(np.dtype([("a", "f4"), ("b", "f4")]))["a"],),
            "got (33, 8) in bytes",
        ),
    ],
)
def test_other_strides_are_named(arrays: Any, message: str) -> None:
    x = te.placeholder((4, 3), name="x", layout=Layout((8, 1)))
    kernel = ms.build(te.program([x], te.compute((4, 3), lambda i, j: x[i, j] + 1.0, name="y")))
    with pytest.raises(ValueError, match=re.escape(message)):
        kernel(*arrays())


def test_results_have_the_layout_of_the_output() -> None:
    x = te.placeholder((3, 4), name="x")
    y = te.compute((3, 4), lambda i, j: x[i, j] + 1.0, name="y", layout=Layout((1, 5)))
    result = ms.build(te.program([x], [y]))(np.zeros((3, 4), np.float32))
    assert result.strides == (4, 20)
    assert (result == 1).all()


def test_tuning_measures_arrays_of_the_layout(tmp_path: Path) -> None:
    x = te.placeholder((40, 36), name="x", layout=Layout((50, 1)))
    y = te.compute((40, 36), lambda i, j: x[i, j] * x[i, 35 - j], name="y", layout=Layout((1, 43)))
    program, path = te.program([x], [y]), tmp_path / "tuning.db"
    result = ms.tune(program, trials=4, database=path)
    assert [record.outcome for record in result.records] == ["ok"] * len(result.records)
    kernel = ms.build(program, database=path)
    assert kernel.inputs[0].strides == (50, 1)
    dense = te.placeholder((40, 36), name="x")
    other = te.program([dense], te.compute((40, 36), lambda i, j: dense[i, j] * dense[i, 35 - j], name="y"))
    with ms.database.open(path) as db:
        assert db.records(program)
        assert not db.records(other)  # another program


def test_matching_arguments_never_leave_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((4, 3), name="x", layout=Layout((32, 2)))
    kernel = ms.build(te.program([x], te.compute((4, 3), lambda i, j: x[i, j] + 1.0, name="y")))
    monkeypatch.setattr(kernel, "_call_slowly", None)
    part = np.arange(128, dtype=np.float32).reshape(8, 16)[::2, 3:9:2]
    np.testing.assert_array_equal(kernel(part), part + 1)


def test_tensors_of_torch_are_passed_with_their_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    x = te.placeholder((4, 3), name="x", layout=Layout((8, 2)))
    y = te.compute((4, 3), lambda i, j: x[i, j] + 1.0, name="y", layout=Layout((1, 4)))
    kernel = ms.build(te.program([x], [y]))
    part = torch.arange(64.0).reshape(8, 8)[3:7, 1:7:2]
    result = kernel(part)
    assert result.stride() == (1, 4)
    torch.testing.assert_close(result, part + 1, check_stride=False)
    monkeypatch.setattr(kernel, "_call_slowly", None)
    assert kernel(part, result) is result


def test_exported_libraries_say_and_have_the_layout(tmp_path: Path) -> None:
    x = te.placeholder((4, 3), name="x", layout=Layout((8, 1)))
    w = te.placeholder((4, 3), name="w", constant=True, layout=Layout((-5, 1)))
    y = te.compute((4, 3), lambda i, j: x[i, j] * w[i, j], name="y", layout=Layout((1, 6)))
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    library = ms.build(te.program([x, w], [y]), constants={"w": values}).export_library(tmp_path / "part.so")
    assert "x: input, float32[4, 3] with strides (8, 1)" in (tmp_path / "part.h").read_text()
    given, out = np.full((4, 8), 2, np.float32), np.zeros((3, 6), np.float32)
    function = ctypes.CDLL(str(library)).part
    assert function(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(out.ctypes.data)) == 0
    np.testing.assert_array_equal(out[:, :4].T, 2 * values)
    assert not out[:, 4:].any()


def test_padded_rows_of_what_is_made_of_constants() -> None:
    x = te.placeholder((5, 7), name="x")
    w = te.placeholder((5, 7), name="w", constant=True)
    program = te.program([x, w], te.compute((5, 7), lambda i, j: x[i, j] * w[i, j], name="y"))
    sch = ms.Schedule(program)
    copy = sch.cache_read(sch.get_block("y"), 1, "global")
    sch.storage_align(copy, 0, 0, 16)
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    kernel = ms.build(sch, constants={"w": values})
    (packed,) = [spec for spec in kernel.kernel.inputs if spec.constant]
    assert packed.strides == (16, 1)
    np.testing.assert_array_equal(kernel(values), values * values)
