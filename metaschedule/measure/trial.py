"""One candidate in the process that runs candidates: is it right, how long does it take, is it still right?

Checks use arrays that end at guard pages, timing others, aligned as users' mostly are. Before a check
outputs and workspace are filled with garbage, because what the last candidate left is right. There are three:
before timing, of what the last timed call left, and after; two calls in a row, for what goes wrong by turns.

Samples during which something else ran are thrown away and taken again, for as long as patience lasts. A
calibration before and after them tells whether the machine was as fast as it usually is.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ..runtime import ArgSpec, Executable, Kernel, KernelError, pages, rest
from ..runtime.gpu import DeviceExecutable
from ..runtime.kernel import align
from .arena import Arena
from .calibration import SLOW, Calibration
from .cold import Cooler
from .compare import difference
from .device import load_stage
from .frames import Frame, Header
from .outcome import one_line, typical
from .stage import KernelStage
from .watch import Sample, ThreadWatch
from .workload import Built

NAN, HUGE = 0xFF, 0x7F  # every byte so: floats are NaN, or the largest there are, which no result is
HOPELESS = 4.0  # times the best: not worth more calls
OVERHEAD = 5e-6  # seconds of a call from Python, at most
FEWEST, MOST = 5, 1000  # single calls; fewer may all have been interrupted
MOST_COLD = 8  # single calls, if caches are swept before each
LONG = 0.03  # seconds; a call that long needs no native loop, nor company to be believed
LONGEST = 0.3  # seconds for all calls
ENOUGH = 3  # undisturbed calls are believed, whatever became of others
PATIENCE = 8.0  # times what an undisturbed measurement takes
REST = 1e-3  # seconds, after a disturbed call


class Wrong(RuntimeError):
    """A result that is not the reference's."""


class Times(NamedTuple):
    """`kept` are seconds of calls, `disturbed` the share of those that were thrown away. If all would have to
    be, all are kept, and the share is 1."""

    kept: list[float]
    disturbed: float = 0.0

    def answer(self) -> Header:
        return {"kind": "ok", "times": self.kept, "disturbed": self.disturbed}

    @staticmethod
    def of_one(sample: Sample) -> Times:
        return Times([sample.seconds], float(sample.disturbed))


class Trial:
    """The arrays of one workload. `setup` has specs of the parameters, the arena's file, the cores to use."""

    def __init__(self, setup: Header) -> None:
        bind_threads(setup["cores"])
        self._threads = len(setup["cores"])
        inputs = [ArgSpec(**spec) for spec in setup["inputs"]]
        self._outputs = [ArgSpec(**spec) for spec in setup["outputs"]]
        arena = Arena([*inputs, *self._outputs, *self._outputs], setup["arena"])
        first, second = len(inputs), len(inputs) + len(self._outputs)
        self._guarded, self._expected = arena.arrays[:second], arena.arrays[second:]
        self._written = arena.bytes[first:second]
        arena.protect(writable=range(first, second))
        self._timed = allocate_aligned(inputs + self._outputs)
        self._input_count = first
        self._cold: list[int] = setup["cold"]
        self._cooler = Cooler(setup["cache"]) if self._cold else None
        self._watch = ThreadWatch()
        self._calibration = Calibration(Kernel.from_json(setup["calibration"]), self._threads, self._watch)

    def answer(self, header: Header, code: bytes) -> Frame:
        try:
            times = self._measure(header, Built.unpack((header, code)).stages)
        except (KernelError, Wrong) as error:  # a kernel failed, or its result is another
            return {"kind": "wrong result", "detail": one_line(str(error))}, b""
        return times.answer() if times else {"kind": "ok"}, b""

    def _measure(self, header: Header, stages: Sequence[KernelStage]) -> Times | None:
        """None of the reference, whose result the parent reads from the guarded outputs."""
        *preparation, stage = stages
        reference = "reference" in header
        constants = self._prepare(preparation[0]) if preparation else {}
        threads = 1 if reference else self._threads
        exe = load_stage(stage, constants, threads)
        first = self._call(exe, stage, NAN)
        if reference:
            return None
        self._compare(self._guarded, header["tolerance"])
        bar = HOPELESS * header["best"] + OVERHEAD if header["best"] else math.inf
        if isinstance(exe, DeviceExecutable):  # whose first call compiles
            times = self._time_on_device(exe, stage, header["min_time"])
        elif first.least > max(bar, LONG):
            return Times.of_one(first)
        else:
            times = self._time(exe, stage, bar, header["min_time"])
        self._compare(self._timed, header["tolerance"])
        self._call(exe, stage, HUGE)
        self._compare(self._guarded, header["tolerance"])
        return times

    def _prepare(self, stage: KernelStage) -> dict[str, np.ndarray]:
        """The constants that a stage makes of the workload's."""
        exe = load_stage(stage, threads=self._threads)
        results = exe(*[self._guarded[n] for n in stage.takes])
        names = [spec.name for spec in stage.kernel.outputs]
        return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))

    def _arguments(self, stage: KernelStage, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [*(arrays[n] for n in stage.takes), *arrays[self._input_count :]]

    def _call(self, exe: Executable | DeviceExecutable, stage: KernelStage, garbage: int) -> Sample:
        for memory in self._written:
            memory.fill(garbage)
        exe.fill_workspace(garbage)
        sample = self._watch.time(partial(exe, *self._arguments(stage, self._guarded)))
        for spec, memory in zip(self._outputs, self._written, strict=True):
            if spec.strides is not None and (memory[between_elements(spec)] != garbage).any():
                raise Wrong(f"memory between the elements of {spec.name} was overwritten")
        return sample

    def _compare(self, arguments: Sequence[np.ndarray], tolerance: float) -> None:
        results = arguments[self._input_count :]
        for spec, got, want in zip(self._outputs, results, self._expected, strict=True):
            if found := difference(spec, got, want, tolerance):
                raise Wrong(found)

    def _time(self, exe: Executable, stage: KernelStage, bar: float, min_time: float) -> Times:
        """Repeated calls; one only, if none of the first is below the bar.

        Single calls come first: an interruption spoils one of them, but all that a repeat in a native loop
        holds. The loop, which is more exact, counts if enough of its repeats were undisturbed; it is not for
        programs whose weights must be cold.
        """
        for array, source in zip(self._timed, self._guarded[: self._input_count]):
            array[...] = source
        arguments = self._arguments(stage, self._timed)
        deadline = time.perf_counter() + PATIENCE * min_time
        self._watch.follow()
        self._wait_for_speed(deadline)
        samples = self._samples(partial(exe, *arguments), bar, min_time, deadline)
        if len(samples) == FEWEST and min(sample.least for sample in samples) > bar:
            return Times.of_one(min(samples))
        kept = [sample.seconds for sample in samples if not sample.disturbed]
        disturbed = 1 - len(kept) / len(samples)
        believed = kept and (len(kept) >= ENOUGH or not disturbed) and self._has_speed()
        if not believed:
            return Times([sample.seconds for sample in samples], 1.0)
        if not self._cooler and min(kept) <= LONG:
            deadline = time.perf_counter() + PATIENCE * min_time / 2
            watch = partial(self._time_undisturbed, deadline)
            repeats = exe.benchmark(*arguments, min_time=min_time / 2, watch=watch).times
            if len(repeats) >= ENOUGH:
                kept = min(kept, list(repeats), key=typical)
        return Times(kept, disturbed)

    def _time_on_device(self, exe: DeviceExecutable, stage: KernelStage, min_time: float) -> Times:
        """What the device's events say of some calls, and one more call whose results are compared."""
        for array, source in zip(self._timed, self._guarded[: self._input_count]):
            array[...] = source
        arguments = self._arguments(stage, self._timed)
        times = list(exe.benchmark(*arguments, min_time=min_time).times)
        exe(*arguments)
        return Times(times)

    def _samples(
        self, call: Callable[[], object], bar: float, min_time: float, deadline: float
    ) -> list[Sample]:
        """Calls until undisturbed ones are enough, all are hopeless, or time is up."""
        samples: list[Sample] = []
        undisturbed = spent = 0.0
        count, most = 0, MOST_COLD if self._cooler else MOST
        while count < FEWEST or (count < most and undisturbed < min_time / 2):
            if self._cooler:
                self._cooler([a for n, a in enumerate(self._timed) if n not in self._cold])
            samples.append(sample := self._watch.time(call))
            spent += sample.seconds
            if sample.disturbed:
                self._rest()
            else:
                count += 1
                undisturbed += sample.seconds
            late = count < len(samples) >= ENOUGH and time.perf_counter() > deadline
            hopeless = len(samples) == FEWEST and min(s.least for s in samples) > bar
            if late or hopeless or spent > LONGEST:
                break
        return samples

    def _time_undisturbed(self, deadline: float, repeat: Callable[[], list[float]]) -> list[float]:
        """What a repeat in a native loop took, if nothing came between and time is not up."""
        times: list[float] = []
        if time.perf_counter() > deadline:
            return []
        if self._watch.time(lambda: times.extend(repeat())).disturbed:
            self._rest()
            return []
        return times

    def _has_speed(self) -> bool:
        """Whether the machine is about as fast as it usually is; true if it is too busy to tell."""
        return (self._calibration.slowdown(self._rest) or 1.0) <= SLOW

    def _wait_for_speed(self, deadline: float) -> None:
        while not self._has_speed() and time.perf_counter() < deadline:
            self._rest()

    def _rest(self) -> None:
        rest(self._threads, REST)


def bind_threads(cores: Sequence[int]) -> None:
    """Each thread to a core of its own: two that share one, while another is idle, are nobody's latency.

    The thread pool reads this when it is loaded, which it is not yet.
    """
    os.sched_setaffinity(0, cores)
    if "OMP_PROC_BIND" not in os.environ:
        os.environ |= {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores)}


def between_elements(spec: ArgSpec) -> np.ndarray:
    """Which bytes of a parameter's memory are no element's."""
    used = np.zeros(spec.nbytes, np.uint8)
    elements = spec.array(used)
    elements.view(f"V{elements.itemsize}")[...] = np.void(b"\1" * elements.itemsize)
    return used == 0


def allocate_aligned(specs: Sequence[ArgSpec]) -> list[np.ndarray]:
    """Arrays at the start of cache lines, with a line in between so that not all begin alike in a page; on
    large pages, because a candidate should not win by where its arrays happen to lie."""
    memory = pages.zeros(sum(align(spec.nbytes) + align(1) for spec in specs) + align(1))
    arrays: list[np.ndarray] = []
    at = -memory.ctypes.data % align(1)
    for spec in specs:
        arrays.append(spec.array(memory.data, at))
        at += align(spec.nbytes) + align(1)
    return arrays
