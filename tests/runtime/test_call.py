"""Calls with NumPy arrays: results, and what is said of wrong arguments."""

from __future__ import annotations

import ctypes
import gc
import itertools
import re
import time
import weakref
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from handmade_kernels import add, exponential, fails, scratch

from metaschedule.ir import DTYPES, numpy_dtype
from metaschedule.runtime import Executable, Kernel, KernelAssertion
from metaschedule.runtime.native import PROCESS, native_module
from metaschedule.target import resolve


@pytest.fixture(scope="module")
def adder() -> Executable:
    return Executable(add())


def ones(shape: tuple[int, ...] = (4, 6), dtype: Any = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


def test_one_output_is_an_array(adder: Executable) -> None:
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    c = adder(a, ones())
    np.testing.assert_array_equal(c, a + 1)
    assert c.dtype == np.float32
    assert repr(adder) == "<Executable add(A: float32[4, 6], B: float32[4, 6]) -> C: float32[4, 6]>"


def test_several_outputs_are_a_tuple() -> None:
    exe = Executable(exponential())
    e, n = exe(np.zeros(1, np.float32))
    assert (e[0], n[0]) == (1.0, -1.0)
    given = np.empty(1, np.float32), np.empty(1, np.float32)
    result = exe(np.zeros(1, np.float32), *given)
    assert all(r is g for r, g in zip(result, given, strict=True))


def test_given_outputs_are_filled_and_returned(adder: Executable) -> None:
    out = np.full((4, 6), np.nan, np.float32)
    assert adder(ones(), ones(), out) is out
    assert (out == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(dtype: str) -> None:
    exe = Executable(add((3, 5), dtype))
    kind = numpy_dtype(dtype)
    a = np.arange(15).reshape(3, 5).astype(kind)
    zero = np.zeros((3, 5), kind)
    np.testing.assert_array_equal(exe(a, zero), a)
    out = np.empty((3, 5), kind)
    assert exe(a, zero, out) is out
    assert exe(a, zero).dtype == kind


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 7)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    exe = Executable(add(shape))
    a = np.full(shape, 2, np.float32)
    result = exe(a, a)
    assert result.shape == shape
    assert (result == 4).all()
    if a.size == 0:  # nothing is written, so nothing overlaps
        exe(a, a, a)


def test_layouts_that_numpy_calls_contiguous() -> None:
    exe = Executable(add((1, 4)))
    a = np.arange(8, dtype=np.float32).reshape(2, 4)[::2]  # extent 1: its stride does not matter
    np.testing.assert_array_equal(exe(a, a), 2 * a)


def test_dtypes_that_are_the_same_by_another_name() -> None:
    exe = Executable(add((4,), "int64"))
    a = np.arange(4, dtype=np.longlong)
    np.testing.assert_array_equal(exe(a, a), 2 * a)


def test_subclasses_and_read_only_inputs(adder: Executable, tmp_path: Any) -> None:
    a = ones()
    a.flags.writeable = False
    assert (adder(a, a) == 2).all()  # inputs may share memory
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 6))
    mapped[:] = 3
    assert (adder(mapped, a) == 4).all()


def unaligned() -> np.ndarray:
    return np.frombuffer(bytearray(97), np.float32, 24, offset=1).reshape(4, 6)


def read_only() -> np.ndarray:
    a = ones()
    a.flags.writeable = False
    return a


MISTAKES = {
    "shape": (
        lambda: (ones(), ones((6, 4))),
        ValueError,
        "input 'B' (argument 1): expected shape (4, 6), got (6, 4)",
    ),
    "rank": (
        lambda: (ones((24,)), ones()),
        ValueError,
        "input 'A' (argument 0): expected shape (4, 6), got (24,)",
    ),
    "dtype": (
        lambda: (ones(), ones(dtype="float64")),
        TypeError,
        "input 'B' (argument 1): expected dtype float32, got float64; convert it first (x.astype('float32'))",
    ),
    "byte order": (
        lambda: (ones(dtype=">f4"), ones()),
        TypeError,
        "input 'A' (argument 0): expected dtype float32, got >f4; convert it first (x.astype('float32'))",
    ),
    "foreign dtype": (
        lambda: (ones(dtype="complex64"), ones()),
        TypeError,
        "expected dtype float32, got complex64",
    ),
    "layout": (
        lambda: (ones((6, 4)).T, ones()),
        ValueError,
        "input 'A' (argument 0): expected C-contiguous (row-major) memory, strides (6, 1), got (1, 4); "
        "pass np.ascontiguousarray(x), or build the kernel for this layout",
    ),
    "output layout": (
        lambda: (ones(), ones(), ones((6, 4)).T),
        ValueError,
        "output 'C' (argument 2): expected C-contiguous (row-major) memory, strides (6, 1), got (1, 4); "
        "pass a fresh array, or build the kernel for this layout",
    ),
    "alignment": (
        lambda: (ones(), unaligned()),
        ValueError,
        "input 'B' (argument 1): expected memory aligned to 4 bytes, got address",
    ),
    "read-only": (
        lambda: (ones(), ones(), read_only()),
        ValueError,
        "output 'C' (argument 2): expected a writable array, got a read-only one; pass a copy",
    ),
    "a list": (
        lambda: (ones(), [[1.0] * 6] * 4),
        TypeError,
        "input 'B' (argument 1): expected float32[4, 6] as a NumPy array, a torch tensor or "
        "anything with __dlpack__, got list; np.asarray(x, dtype='float32') makes one",
    ),
    "a scalar": (lambda: (ones(), np.float32(3)), TypeError, "got float32; np.asarray(x"),
    "None": (lambda: (ones(), ones(), None), TypeError, "output 'C' (argument 2): expected"),
    "a mask": (
        lambda: (np.ma.masked_array(ones()), ones()),
        TypeError,
        "expected an array without a mask, got a masked array; pass x.filled()",
    ),
    "too few": (
        lambda: (ones(),),
        TypeError,
        "add: expected 2 input(s) (A: float32[4, 6], B: float32[4, 6]), optionally followed by "
        "1 output(s) (C: float32[4, 6]), got 1 argument(s)",
    ),
    "too many": (lambda: (ones(),) * 4, TypeError, "got 4 argument(s)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_the_argument(adder: Executable, mistake: str) -> None:
    make, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=re.escape(message)):
        adder(*make())


def test_overlaps(adder: Executable) -> None:
    memory = np.zeros(72, np.float32)
    a = memory[:24].reshape(4, 6)
    for start in (0, 1, 23):
        with pytest.raises(ValueError, match=r"output 'C' \(argument 2\) overlaps input 'A' \(argument 0\)"):
            adder(a, ones(), memory[start : start + 24].reshape(4, 6))
    adder(a, a, memory[24:48].reshape(4, 6))
    pair = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match=r"output 'N' .* overlaps output 'E'"):
        Executable(exponential())(ones((1,)), pair, pair)


def test_every_answer_is_the_same_without_the_fast_path(
    adder: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native caller refuses everything if it does not know NumPy's arrays."""
    monkeypatch.setattr(PROCESS, "array_type", None)
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(adder(a, ones()), a + 1)
    out = np.empty_like(a)
    assert adder(a, ones(), out) is out
    with pytest.raises(ValueError, match="overlaps"):
        adder(a, ones(), a)


def test_both_paths_agree() -> None:
    """Whatever the arguments are, the native caller runs what Python would, or leaves it to
    Python."""
    exe = Executable(add((2, 3)))
    memory = np.zeros(64, np.float32)
    pool = [memory[i : i + 6].reshape(2, 3) for i in (0, 3, 6, 12, 24)]
    pool += [ones((2, 3)), ones((3, 2)).T, ones((2, 3), "f8"), ones((2, 3), ">f4"), ones((2, 3, 1))]
    pool += [ones((6,)), ones((4, 3))[::2], ones((2, 6))[:, ::2], ones((0, 3)), ones((2, 3))[::-1]]
    pool += [unaligned()[:2, :3], read_only()[:2, :3], read_only()[:1].reshape(2, 3)]
    pool += [np.broadcast_to(np.float32(1), (2, 3)), np.asfortranarray(ones((2, 3)))]
    accepted = 0
    for a, b, c in itertools.product(pool, repeat=3):
        try:
            exe._read((a, b), (c,))
            legal = True
        except (TypeError, ValueError):
            legal = False
        assert exe._native(a, b, c) == (0 if legal else -1)
        accepted += legal
    assert accepted > 50


class Foreign:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, array: np.ndarray, device: int = 1, old: bool = False) -> None:
        self.array, self.device, self.old = array, device, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("an old producer takes no options")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(adder: Executable, old: bool) -> None:
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(adder(Foreign(a, old=old), ones()), a + 1)
    out = np.zeros_like(a)
    wrapped = Foreign(out, old=old)
    assert adder(a, ones(), wrapped) is wrapped
    np.testing.assert_array_equal(out, a + 1)
    with pytest.raises(TypeError, match="expected dtype float32, got int64"):
        adder(Foreign(np.zeros((4, 6), np.int64), old=old), a)
    with pytest.raises(ValueError, match="expected C-contiguous"):
        adder(Foreign(ones((6, 4)).T, old=old), a)
    with pytest.raises(ValueError, match="overlaps"):
        adder(a, ones(), Foreign(a, old=old))


def test_dlpack_of_another_device_or_read_only(adder: Executable) -> None:
    with pytest.raises(ValueError, match=r"expected an array in the CPU's memory, got one on cuda"):
        adder(Foreign(ones(), device=2), ones())
    with pytest.raises(ValueError, match=r"output 'C' .* expected a writable array"):
        adder(ones(), ones(), Foreign(read_only()))
    with pytest.raises(ValueError, match="does not give its memory"):
        adder(ones(), Foreign(read_only(), old=True))


def test_assertions_of_the_program() -> None:
    exe = Executable(fails())
    assert exe(np.array(0, np.int32)).shape == ()
    with pytest.raises(KernelAssertion, match="fails: x must be small"):
        exe(np.array(1, np.int32))
    with pytest.raises(RuntimeError, match="y must be positive"):
        exe(np.array(2, np.int32))
    with pytest.raises(AssertionError, match="y must be positive"):
        exe.benchmark(np.array(2, np.int32))
    with pytest.raises(RuntimeError, match="status 3"):
        exe(np.array(3, np.int32))
    with pytest.raises(RuntimeError, match="status -1"):
        exe(np.array(-1, np.int32))


def test_workspace() -> None:
    exe = Executable(scratch())
    a = np.arange(100, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(exe(a), 2 * a)
    exe.fill_workspace()
    np.testing.assert_array_equal(exe(a), 2 * a)


def test_a_workspace_that_cannot_be() -> None:
    exe = Executable(replace(scratch(), shared_bytes=1 << 60))
    a = np.zeros(100, np.float32)
    for attempt in (lambda: exe(a), lambda: exe.benchmark(a), exe.fill_workspace):
        with pytest.raises(MemoryError):
            attempt()


def test_executables_and_their_memory_go() -> None:
    exe = Executable(scratch())
    exe(np.zeros(100, np.float32))
    gone = weakref.ref(exe)
    del exe
    gc.collect()
    assert gone() is None


def test_constants_are_bound_once(adder: Executable) -> None:
    b = ones()
    bound = adder.bind({"B": b})
    b[:] = 99  # a copy was bound
    assert [spec.name for spec in bound.inputs] == ["A"]
    assert (bound(ones()) == 2).all()
    out = np.empty((4, 6), np.float32)
    assert bound(ones(), out) is out
    assert [spec.name for spec in adder.inputs] == ["A", "B"]
    fixed = Executable(add(), constants={"A": ones(), "B": ones()})
    assert (fixed() == 2).all()
    assert fixed.benchmark(repeats=1).median > 0
    with pytest.raises(TypeError, match=r"got 3 argument\(s\); bound already: B"):
        bound(ones(), ones(), out)


def test_mistaken_constants(adder: Executable) -> None:
    with pytest.raises(ValueError, match="add: no input 'W' to bind; inputs are A, B"):
        adder.bind({"W": ones()})
    with pytest.raises(ValueError, match=r"constant 'B': expected shape \(4, 6\), got \(2,\)"):
        adder.bind({"B": ones((2,))})
    with pytest.raises(TypeError, match="constant 'B': expected dtype float32, got int64"):
        adder.bind({"B": np.zeros((4, 6), np.int64)})
    with pytest.raises(ValueError, match="already bound: B"):
        adder.bind({"B": ones()}).bind({"B": ones()})


def test_bound_bfloat16() -> None:
    kind = ml_dtypes.bfloat16
    exe = Executable(add((4,), "bfloat16"), constants={"B": np.zeros(4, kind)})
    a = np.array([1, 2, 3, 4], kind)
    np.testing.assert_array_equal(exe(a), a)


def test_source() -> None:
    exe = Executable(add(), script="the script")
    assert exe.source() == exe.source("script") == "the script"
    assert exe.source("llvm") == exe.kernel.llvm
    assert "define" in exe.source("llvm-optimized")
    assert "add:" in exe.source("asm")
    with pytest.raises(ValueError, match="unknown kind 'c'"):
        exe.source("c")
    with pytest.raises(ValueError, match="no script was given"):
        Executable(add()).source()


def test_code_for_another_machine_can_be_looked_at() -> None:
    target = resolve("aarch64" if resolve().arch == "x86_64" else "x86-64-v3")
    exe = Executable(add(target=target), threads=2)
    assert "add:" in exe.source("asm")
    for attempt in (lambda: exe(ones(), ones()), exe.benchmark):
        with pytest.raises(RuntimeError, match="this machine lacks architecture"):
            attempt()


def test_many_arguments() -> None:
    """More than anyone would unroll by hand; the first input is the result."""
    kernel = fails()
    specs = tuple(replace(kernel.inputs[0], name=f"A{i}") for i in range(100))
    exe = Executable(Kernel("fails", kernel.llvm, specs, kernel.outputs, kernel.target))
    assert exe(*[np.array(0, np.int32) for _ in range(100)]).shape == ()


def test_a_repeat_that_takes_too_long_is_cut_short() -> None:
    """Two threads that wait for each other on a busy machine may take a thousand times as long as they did
    when the number of calls was chosen."""
    calls: list[int] = []

    def slow(*_: int) -> int:
        calls.append(1)
        time.sleep(2e-3)
        return 0

    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(slow)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    times = (ctypes.c_double * 1)()
    assert native_module().bench(address, None, None, None, 100, 1, 5e-3, times) == 0
    assert len(calls) <= 4  # looked at the clock after 1, 2 and 4
    assert times[0] >= 2e-3
    calls.clear()
    assert native_module().bench(address, None, None, None, 3, 1, 60.0, times) == 0
    assert len(calls) == 3


def test_benchmark(adder: Executable) -> None:
    timing = adder.benchmark(repeats=5)
    assert len(timing.times) == 5
    assert 0 < timing.min <= timing.median <= max(timing.times)
    assert "5 repeats of" in str(timing)
    out = np.zeros((4, 6), np.float32)
    adder.benchmark(ones(), ones(), out, min_time=0.002)
    assert (out == 2).all()
    assert Executable(scratch()).benchmark(min_time=0.002).median > 0
    with pytest.raises(ValueError, match="expected shape"):
        adder.benchmark(ones(), ones((2,)))
    with pytest.raises(TypeError, match=r"got 1 argument"):
        adder.benchmark(ones())
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        adder.benchmark(repeats=0)
