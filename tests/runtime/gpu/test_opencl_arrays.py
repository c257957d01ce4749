"""Arrays of pyopencl as arguments: used where they are, in the context and the queue of their owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from tests.codegen.gpu.schedules import bound_product, opencl

SHAPES = {"b": 1, "n": 33, "m": 17, "k": 9}


@pytest.fixture
def queue() -> Iterator[Any]:
    opencl()
    import pyopencl as cl

    from metaschedule.runtime.gpu.device import open_device

    device: Any = open_device("opencl")
    context = cl.Context([device.queue.device])  # another than ours
    yield cl.CommandQueue(context)
    del context  # which the queue may not keep


def product() -> tuple[ms.runtime.Executable, np.ndarray, np.ndarray]:
    program = ms.workloads.create("GMM", **SHAPES)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, b.shape).astype("float32") for b in program.inputs)
    return ms.build(bound_product(program), target="opencl"), x, y


def test_outputs_are_where_inputs_are(queue: Any) -> None:
    from pyopencl import array

    exe, x, y = product()
    made: Any = exe(array.to_device(queue, x), array.to_device(queue, y))
    assert isinstance(made, array.Array)
    assert made.queue == queue
    np.testing.assert_array_equal(made.get(), x @ y)
    own = array.zeros(queue, made.shape, np.float32)
    assert exe(array.to_device(queue, x), array.to_device(queue, y), own) is own
    np.testing.assert_array_equal(own.get(), x @ y)
    assert exe.benchmark(array.to_device(queue, x), array.to_device(queue, y)).median > 0


def test_arrays_of_the_host_beside_them(queue: Any) -> None:
    from pyopencl import array

    exe, x, y = product()
    mixed: Any = exe(array.to_device(queue, x), y)
    np.testing.assert_array_equal(mixed.get(), x @ y)
    result = np.zeros((1, 33, 17), "float32")
    exe(x, array.to_device(queue, y), result)
    np.testing.assert_array_equal(result, x @ y)
    bound = exe.bind({exe.inputs[1].name: array.to_device(queue, y)})
    np.testing.assert_array_equal(bound(x), x @ y)


def test_parts_of_a_buffer(queue: Any) -> None:
    from pyopencl import array

    exe, x, y = product()
    unit = queue.device.mem_base_addr_align // 8 // 4
    large = array.to_device(queue, np.concatenate([np.zeros(unit, "float32"), x.reshape(-1)]))
    made: Any = exe(large[unit:].reshape(x.shape), array.to_device(queue, y))
    np.testing.assert_array_equal(made.get(), x @ y)
    with pytest.raises(ValueError, match=r"input 'X' \(argument 0\): expected memory of the device aligned"):
        exe(large[unit - 1 : -1].reshape(x.shape), array.to_device(queue, y))


def test_what_does_not_fit_is_refused(queue: Any) -> None:
    import pyopencl as cl
    from pyopencl import array

    exe, x, y = product()
    there = array.to_device(queue, y)
    with pytest.raises(ValueError, match="expected shape"):
        exe(there, there)
    with pytest.raises(TypeError, match="expected dtype float32"):
        exe(array.to_device(queue, x.astype("float64")), there)
    context = cl.Context([queue.device])
    other = cl.CommandQueue(context)
    with pytest.raises(ValueError, match="arrays on several devices"):
        exe(array.to_device(other, x), there)
    square = ms.build(bound_product(ms.workloads.create("GMM", b=1, n=8, m=8, k=8)), target="opencl")
    same = array.to_device(queue, np.ones((1, 8, 8), "float32"))
    with pytest.raises(ValueError, match="overlaps"):
        square(same, same, same)


def test_a_compiler_that_compiles_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is older than its CPU does not know that."""
    opencl()
    from metaschedule.runtime.gpu import device
    from metaschedule.runtime.gpu import opencl as module
    from metaschedule.target import opencl_devices

    ours: Any = device.open_device("opencl")
    monkeypatch.setattr(opencl_devices, "PROBE", "this is not OpenCL")
    with pytest.raises(device.DeviceError, match="compiles nothing: .*error"):
        module.OpenCL(ours.queue)
