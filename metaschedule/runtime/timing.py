"""Timing of a kernel in a native loop, and data to time it with."""

from __future__ import annotations

import ctypes
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metaschedule.ir import is_float

from . import pages
from .kernel import ArgSpec, Values
from .layout import Context, Runtime
from .native import native_module

REPEAT_TIME = 1e-3  # a repeat shorter than this is too noisy to count
LONGEST = 20e-3  # and one of several calls that takes longer is disturbed: those that it had are enough
SLOW = 0.1  # a call longer than this is not tried more often than needed
MAX_REPEATS = 1000


@dataclass(frozen=True)
class Timing:
    """Seconds per call of each repeat; a repeat is the mean of `number` calls in a row."""

    times: tuple[float, ...]
    number: int

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def min(self) -> float:
        return min(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    def __str__(self) -> str:
        return (
            f"median {duration(self.median)}, min {duration(self.min)} "
            f"({len(self.times)} repeats of {self.number})"
        )


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(1.5e-6), duration(0.0123), duration(2)
    ('1.50 us', '12.3 ms', '2.00 s')
    """
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:#.3g} {name}"
    return f"{seconds * 1e9:.0f} ns"


class KernelStatus(Exception):
    """A timed kernel returned something else than 0."""

    def __init__(self, status: int, value: int) -> None:
        super().__init__(status, value)
        self.status, self.value = status, value


def time_kernel(
    context: Context,
    addresses: Sequence[int],
    repeats: int | None,
    min_time: float,
    watch: Callable[[Callable[[], list[float]]], list[float]] | None = None,
) -> Timing:
    """Time calls with these arguments (all of the kernel's, bound ones included), warm.

    `number` of calls per repeat doubles until a repeat lasts REPEAT_TIME, which also warms up.
    Without `repeats` there are enough of them for `min_time` seconds in all, and at least three. `watch`
    gets every repeat to run, and says what counts: the times it returned, or none.
    """
    native = native_module()
    runtime = Runtime()
    table = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
    need = native.prepare(ctypes.addressof(context), ctypes.byref(runtime))
    workspace = native.take(ctypes.addressof(context), need) if need else None
    if need and not workspace:
        raise MemoryError(f"no memory for a workspace of {need} bytes")

    def run(number: int, repeats: int) -> list[float]:
        times = (ctypes.c_double * repeats)()
        status = native.bench(
            context.entry, table, workspace, ctypes.byref(runtime), number, repeats, LONGEST, times
        )
        if status:
            raise KernelStatus(status, runtime.value)
        return list(times)

    try:
        samples = 3 if run(1, 1)[0] < SLOW else 1  # one alone may have been interrupted
        number = 1
        while (per_call := min(run(number, samples))) * number < REPEAT_TIME:
            wanted = REPEAT_TIME / per_call if per_call > 0 else math.inf
            number = math.ceil(min(10 * number, max(2 * number, 1.1 * wanted)))
        if repeats is None:
            repeats = min(MAX_REPEATS, max(3, math.ceil(min_time / (per_call * number))))
        if watch is None:
            return Timing(tuple(run(number, repeats)), number)
        return Timing(tuple(t for _ in range(repeats) for t in watch(lambda: run(number, 1))), number)
    finally:
        if workspace:
            native.give(ctypes.addressof(context), workspace)


def random_arrays(
    specs: Iterable[ArgSpec], seed: int = 0, values: Mapping[str, Values] | None = None
) -> list[np.ndarray]:
    """Data to time with, on large pages: floats of mean 0; small integers, of which wide ones, often
    indices, are 0 or 1. `values` are those of inputs of which more is known."""
    known = values or {}
    rng = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for spec in specs:
        if spec.name in known:
            drawn = known[spec.name].draw(spec.shape, rng)
        elif is_float(spec.dtype):
            drawn = rng.standard_normal(spec.shape, np.float32)
        elif spec.dtype in ("int8", "int16"):
            drawn = rng.integers(-4, 5, spec.shape)
        else:
            drawn = rng.integers(0, 2, spec.shape)
        arrays.append(spec.array(pages.zeros(spec.nbytes)))
        arrays[-1][...] = drawn
    return arrays
