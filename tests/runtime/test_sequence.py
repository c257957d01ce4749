"""`Sequence`: kernels in a row on places behind bases."""

from __future__ import annotations

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
