"""One candidate in the process that runs candidates: is it right, how long does it take, is it still right?

Checks use arrays that end at guard pages, timing others, aligned as users' mostly are. Before a check
outputs and workspace are filled with garbage, because what the last candidate left is right. There are three:
before timing, of what the last timed call left, and after; two calls in a row, for what goes wrong by turns.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import numpy_dtype
from ..runtime import ArgSpec, Executable, pages
from ..runtime.kernel import align
from .arena import Arena
from .cold import Cooler
from .compare import difference
from .frames import Frame, Header
from .outcome import one_line
from .steps import Step, parted

NAN, HUGE = 0xFF, 0x7F  # every byte so: floats are NaN, or the largest there are, which no result is
HOPELESS = 4.0  # times the best: not worth more calls
OVERHEAD = 5e-6  # seconds of a call from Python, at most
FEWEST, MOST = 5, 1000  # single calls; fewer may all have been interrupted
MOST_COLD = 8  # single calls, if caches are swept before each
LONG = 0.03  # seconds; a call that long needs no native loop, nor company to be believed
LONGEST = 0.3  # seconds for all calls


class Wrong(RuntimeError):
    """A result that is not the reference's."""


class Trial:
    """The arrays of one workload. `setup` has specs of the parameters, the arena's file, the cores to use."""

    def __init__(self, setup: Header) -> None:
        os.sched_setaffinity(0, setup["cores"])
        self._threads = len(setup["cores"])
        inputs = [ArgSpec(**spec) for spec in setup["inputs"]]
        self._outputs = [ArgSpec(**spec) for spec in setup["outputs"]]
        arena = Arena([*inputs, *self._outputs, *self._outputs], setup["arena"])
        first, second = len(inputs), len(inputs) + len(self._outputs)
        self._guarded, self._expected = arena.arrays[:second], arena.arrays[second:]
        arena.protect(writable=range(first, second))
        self._timed = aligned(inputs + self._outputs)
        self._input_count = first
        self._cold: list[int] = setup["cold"]
        self._cooler = Cooler(setup["cache"]) if self._cold else None

    def answer(self, header: Header, codes: bytes) -> Frame:
        steps = [Step.from_json(step) for step in header["steps"]]
        *preparation, (step, code) = zip(steps, parted(header["sizes"], codes), strict=True)
        reference = "reference" in header
        constants = self._prepared(*preparation[0]) if preparation else {}
        threads = 1 if reference else self._threads
        exe = Executable(step.kernel, code=code, constants=constants, threads=threads)
        try:
            seconds = self._call(exe, step, NAN)
            if reference:  # the parent reads it from the guarded outputs
                return {"kind": "ok"}, b""
            self._compare(self._guarded, header["tolerance"])
            bar = HOPELESS * header["best"] + OVERHEAD if header["best"] else math.inf
            if seconds > max(bar, LONG):
                return {"kind": "ok", "times": [seconds]}, b""
            times = self._time(exe, step, bar, header["min_time"])
            self._compare(self._timed, header["tolerance"])
            self._call(exe, step, HUGE)
            self._compare(self._guarded, header["tolerance"])
        except RuntimeError as error:  # also what a failed assertion raises
            return {"kind": "wrong result", "detail": one_line(str(error))}, b""
        return {"kind": "ok", "times": times}, b""

    def _prepared(self, step: Step, code: bytes) -> dict[str, np.ndarray]:
        """The constants that a step makes of the workload's."""
        exe = Executable(step.kernel, code=code, threads=self._threads)
        results = exe(*[self._guarded[n] for n in step.takes])
        names = [spec.name for spec in step.kernel.outputs]
        return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))

    def _arguments(self, step: Step, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [*(arrays[n] for n in step.takes), *arrays[self._input_count :]]

    def _call(self, exe: Executable, step: Step, garbage: int) -> float:
        for array in self._guarded[self._input_count :]:
            array.reshape(-1).view(np.uint8)[...] = garbage
        exe.fill_workspace(garbage)
        return stopwatch(exe, self._arguments(step, self._guarded))

    def _compare(self, arguments: Sequence[np.ndarray], tolerance: float) -> None:
        results = arguments[self._input_count :]
        for spec, got, want in zip(self._outputs, results, self._expected, strict=True):
            if found := difference(spec, got, want, tolerance):
                raise Wrong(found)

    def _time(self, exe: Executable, step: Step, bar: float, min_time: float) -> list[float]:
        """Seconds of repeated calls; of one only, if none of the first is below the bar.

        Single calls come first: an interruption spoils one of them, but all that a repeat in a native loop
        holds, and a thread that waits for another that does not run waits long. So the loop, which is more
        exact, is for when the machine is otherwise idle; and for programs whose weights may be warm.
        """
        for array, source in zip(self._timed, self._guarded[: self._input_count]):
            array[...] = source
        arguments = self._arguments(step, self._timed)
        calls: list[float] = []
        total = 0.0
        most = MOST_COLD if self._cooler else MOST
        while len(calls) < FEWEST or (len(calls) < most and total < min_time / 2):
            if self._cooler:
                self._cooler([a for n, a in enumerate(self._timed) if n not in self._cold])
            calls.append(stopwatch(exe, arguments))
            total += calls[-1]
            if len(calls) == FEWEST and min(calls) > bar:
                return [min(calls)]
            if total > LONGEST:
                return calls
        interrupted = total > 2 * len(calls) * statistics.median(calls)
        if interrupted or self._cooler or min(calls) > LONG:
            return calls
        repeats = list(exe.benchmark(*arguments, min_time=min_time / 2).times)
        return min(calls, repeats, key=statistics.median)


def stopwatch(exe: Executable, arguments: Sequence[Any]) -> float:
    begin = time.perf_counter()
    exe(*arguments)
    return time.perf_counter() - begin


def aligned(specs: Sequence[ArgSpec]) -> list[np.ndarray]:
    """Arrays at the start of cache lines, with a line in between so that not all begin alike in a page; on
    large pages, because a candidate should not win by where its arrays happen to lie."""
    memory = pages.zeros(sum(align(spec.nbytes) + align(1) for spec in specs) + align(1))
    arrays: list[np.ndarray] = []
    at = -memory.ctypes.data % align(1)
    for spec in specs:
        arrays.append(np.ndarray(spec.shape, numpy_dtype(spec.dtype), memory.data, at))
        at += align(spec.nbytes) + align(1)
    return arrays
