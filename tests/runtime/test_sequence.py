"""`Sequence`: kernels in a row on places behind bases."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.runtime.sequence import KernelCall, Place, Sequence

INCREMENT = """
def increment(X: T.Tensor((100,), "float32"), Y: T.Output((100,), "float32")):
    for i in T.parallel(100):
        Y[i] = X[i] + 1.0
"""
POSITIVE = """
def positive(X: T.Tensor((100,), "float32"), Y: T.Output((100,), "float32")):
    for i in range(100):
        assert X[i] > 0.0, "not positive"
        Y[i] = X[i]
"""


def executable(text: str) -> ms.runtime.Executable:
    return ms.build(ms.Schedule(ms.parse(text)))


def test_results_pass_through_the_memory_between_kernels() -> None:
    increment = executable(INCREMENT)
    fixed = np.full(100, 5, "float32")
    calls = [
        KernelCall(increment, (Place(2, 0), Place(1, 0)), Place(1, 1024)),
        KernelCall(increment, (Place(1, 0), Place(1, 512)), Place(1, 1024)),
        KernelCall(increment, (Place(1, 512), Place(3, 400)), Place(1, 1024)),
        KernelCall(increment, (Place(0, fixed.ctypes.data), Place(3, 0)), Place(1, 1024)),
    ]
    run = Sequence(calls, bases=3)
    memory, x, y = np.zeros(4096, "uint8"), np.arange(100, dtype="float32"), np.zeros(200, "float32")
    run(2, memory.ctypes.data, x.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y[100:], x + 3)
    np.testing.assert_array_equal(y[:100], fixed + 1)


def test_a_failing_kernel_ends_the_sequence_and_is_named() -> None:
    increment, positive = executable(INCREMENT), executable(POSITIVE)
    calls = [
        KernelCall(positive, (Place(1, 0), Place(2, 0)), Place(1, 0)),
        KernelCall(increment, (Place(1, 0), Place(3, 0)), Place(1, 0)),
    ]
    run = Sequence(calls, bases=3)
    x, y, z = np.zeros(100, "float32"), np.zeros(100, "float32"), np.zeros(100, "float32")
    with pytest.raises(ms.runtime.KernelAssertion, match="positive: not positive"):
        run(1, x.ctypes.data, y.ctypes.data, z.ctypes.data)
    assert not z.any()


def test_a_wrong_number_of_bases_is_refused() -> None:
    run = Sequence([], bases=2)
    with pytest.raises(TypeError, match="2 addresses"):
        run(1, 0)


def test_a_clocked_sequence_says_what_each_kernel_took() -> None:
    increment = executable(INCREMENT)
    calls = [KernelCall(increment, (Place(1, 0), Place(2, 0)), Place(1, 0))] * 3
    run = Sequence(calls, bases=2, clocked=True)
    x, y = np.zeros(100, "float32"), np.zeros(100, "float32")
    run(2, x.ctypes.data, y.ctypes.data)
    assert len(run.seconds) == 3
    assert all(seconds > 0 for seconds in run.seconds)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_kernels_that_share_a_region_are_right_on_any_threads(threads: int) -> None:
    """Also more than there are cores, where some come late, and several callers at a time."""
    increment = executable(INCREMENT)
    steps = 20
    places = [Place(1, 512 * (n % 2)) for n in range(steps - 1)]
    calls = [
        KernelCall(increment, (source, to), Place(1, 2048))
        for source, to in zip([Place(2, 0), *places], [*places, Place(3, 0)])
    ]
    run = Sequence(calls, bases=3)
    wrong: list[int] = []

    def work(number: int) -> None:
        memory, x, y = np.zeros(4096, "uint8"), np.full(100, number, "float32"), np.zeros(100, "float32")
        for _ in range(50):
            y[:] = 0
            run(threads, memory.ctypes.data, x.ctypes.data, y.ctypes.data)
            if not (y == number + steps).all():
                wrong.append(number)

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
